"""Masses of cells counted one by one, gains pixel by pixel."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import usu
from usu.metrics.mass import largest_gain, mass_error, moved_mass

ROW = np.array([[1.0, 3.0, 5.0, 6.0]])


@st.composite
def problems(draw):
    shape = draw(hnp.array_shapes(min_dims=2, max_dims=2, max_side=6))
    count = draw(st.integers(1, 5))
    numbers = st.integers(-4, 4).map(float)
    cells = draw(hnp.arrays(np.int64, shape, elements=st.integers(0, count - 1)))
    return (
        draw(hnp.arrays(np.float64, shape, elements=numbers)),
        draw(hnp.arrays(np.float64, count, elements=numbers)),
        cells,
    )


def divided(error, scale):
    return 0.0 if error == 0 else error / scale if scale else np.inf


@settings(max_examples=40)
@given(problems(), st.sampled_from(["density", "mass"]), st.sampled_from([-1e6, 1e-6, 1.0, 1e6]))
def test_cells_counted_one_by_one_with_any_factor_on_both(problem, coarse_is, factor):
    pixel_map, coarse, cells = problem
    found = [pixel_map[cells == k].sum() for k in range(coarse.size)]
    wanted = [a * (cells == k).sum() if coarse_is == "density" else a for k, a in enumerate(coarse)]
    mean = np.mean(np.abs(wanted))
    errors = [divided(abs(s - m), abs(m) or mean) for s, m in zip(found, wanted, strict=True)]
    moved = divided(0.5 * sum(abs(s - m) for s, m in zip(found, wanted, strict=True)), np.sum(np.abs(wanted)))
    # a factor leaves its own rounding, no more
    arguments = {"cells": cells, "coarse_is": coarse_is}
    assert mass_error(factor * pixel_map, factor * coarse, **arguments) == pytest.approx(
        max(errors), rel=1e-9, abs=1e-12
    )
    assert moved_mass(factor * pixel_map, factor * coarse, **arguments) == pytest.approx(moved, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("library", [np.asarray, torch.as_tensor])
def test_known_answers(library):
    pixel_map = library(ROW)  # cells of 4 and 11
    assert mass_error(pixel_map, library(np.array([[2.0, 5.5]]))) == 0
    assert moved_mass(pixel_map, library(np.array([[2.0, 5.5]]))) == 0
    assert mass_error(pixel_map, library(np.array([[4.0, 5.0]]))) == pytest.approx(1 / 2)  # 4 of 8, 11 of 10
    assert moved_mass(pixel_map, library(np.array([[4.0, 5.0]]))) == pytest.approx(2.5 / 18)
    assert mass_error(pixel_map, library(np.array([[0.0, 4.0]]))) == pytest.approx(1)  # 4 beside a mean of 4; 3 of 8
    assert mass_error(pixel_map, library(np.array([[8.0, 10.0]])), coarse_is="mass") == pytest.approx(1 / 2)
    odd = library(np.array([[0, 1, 0, 1]]))  # cells of 6 and 9
    assert mass_error(pixel_map, library(np.array([3.0, 6.0])), cells=odd) == pytest.approx(1 / 4)
    assert moved_mass(pixel_map, library(np.array([3.0, 6.0])), cells=odd) == pytest.approx(1.5 / 18)
    # a cell without pixels: no mass as a density, lost mass otherwise
    assert mass_error(pixel_map, library(np.array([3.0, 4.5, 7.0])), cells=odd) == 0
    assert mass_error(pixel_map, library(np.array([6.0, 9.0, 7.0])), cells=odd, coarse_is="mass") == 1


def test_nothing_wanted():
    zeros = np.zeros((1, 2))
    for metric in (mass_error, moved_mass):
        assert metric(0 * ROW, zeros) == 0
        assert metric(np.array([[1.0, -1.0, 0.0, 0.0]]), zeros) == 0  # without mass in any cell
        assert metric(ROW, zeros) == np.inf


def test_redistribution_keeps_mass_and_bilinear_moves_it():
    rng = np.random.default_rng(0)
    coarse, scores = np.maximum(rng.normal(size=(7, 7)), 0), rng.random((20, 25))
    assert mass_error(usu.redistribute(coarse, scores), coarse) < 1e-12
    bilinear = usu.interpolate(coarse, (56, 56), "bilinear")
    assert mass_error(bilinear, coarse) > 0.3
    assert 0.1 < moved_mass(bilinear, coarse) < 0.4
    assert mass_error(usu.redistribute(coarse.astype(np.float32), scores.astype(np.float32)), coarse) < 1e-5


def test_a_factor_on_one_map_is_seen():
    assert mass_error(3 * ROW, np.array([[2.0, 5.5]])) == pytest.approx(2)


@settings(max_examples=40)
@given(st.data(), st.sampled_from(["density", "mass"]), st.sampled_from([-1e6, 1e-6, 1.0, 1e6]))
def test_the_loop_over_pixels_with_any_factor_on_both(data, coarse_is, factor):
    shape = data.draw(hnp.array_shapes(min_dims=2, max_dims=2, max_side=6))
    numbers = st.integers(-4, 4).map(float)
    pixel_map = data.draw(hnp.arrays(np.float64, shape, elements=numbers))
    cells = data.draw(hnp.arrays(np.int64, shape, elements=st.integers(0, 3)))
    coarse = data.draw(hnp.arrays(np.float64, 4, elements=numbers))
    gains = [0.0]
    for value, cell in zip(pixel_map.ravel(), cells.ravel(), strict=True):
        density = coarse[cell] / ((cells == cell).sum() if coarse_is == "mass" else 1)
        if density != 0:
            gains.append(abs(value / density))
    found = largest_gain(factor * pixel_map, factor * coarse, cells=cells, coarse_is=coarse_is)
    assert found == pytest.approx(max(gains), rel=1e-9)


@pytest.mark.parametrize("library", [np.asarray, torch.as_tensor])
def test_largest_gain_known_answers(library):
    pixel_map = library(np.array([[1.0, 3.0, 5.0, -6.0]]))
    assert largest_gain(pixel_map, library(np.array([[2.0, 8.0]]))) == 1.5
    assert largest_gain(pixel_map, library(np.array([[6.0, -2.0]]))) == 3  # of either sign
    assert largest_gain(pixel_map, library(np.array([[0.0, 8.0]]))) == 0.75  # a cell without mass is left out
    assert largest_gain(pixel_map, library(np.array([[1e-9, 8.0]]))) == 0.75  # and one of nearly none
    assert largest_gain(pixel_map, library(np.array([[0.0, 0.0]]))) == 0
    assert largest_gain(pixel_map, library(np.array([[4.0, 16.0]])), coarse_is="mass") == 1.5
    odd = library(np.array([[0, 1, 0, 1]]))
    assert largest_gain(pixel_map, library(np.array([2.5, 3.0])), cells=odd) == 2


def test_nearest_neighbour_gains_nothing_and_one_pixel_gains_its_cell():
    coarse = np.random.default_rng(0).normal(size=(3, 4))
    assert largest_gain(usu.interpolate(coarse, (20, 21), "nearest"), coarse) == pytest.approx(1, abs=1e-12)
    scores = np.zeros((12, 16))
    scores[::4, ::4] = 1  # one pixel of each cell of 16
    assert largest_gain(usu.redistribute(coarse, scores, temperature=0.01, signed="literal"), coarse) == pytest.approx(
        16
    )
