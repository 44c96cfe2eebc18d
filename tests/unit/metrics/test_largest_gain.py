"""The largest gain against a loop over pixels, and against the auditor's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import usu
from usu.metrics.largest_gain import largest_gain

ROW = np.array([[1.0, 3.0, 5.0, -6.0]])


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
def test_known_answers(library):
    pixel_map = library(ROW)
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


def test_bad_input():
    with pytest.raises(
        ValueError, match=r"^`coarse` must be one map, h x w, no larger than `pixel_map` \(1 x 4\); got 2 x"
    ):
        largest_gain(ROW, np.ones((2, 1)))
    with pytest.raises(ValueError, match=r"^`coarse_is` must be one of 'density', 'mass'; got 'sum'"):
        largest_gain(ROW, np.ones((1, 2)), coarse_is="sum")
    with pytest.raises(ValueError, match=r"^`pixel_map` must be finite"):
        largest_gain(ROW * np.nan, np.ones((1, 2)))
