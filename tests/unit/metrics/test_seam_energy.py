"""Seam energy against a loop over neighbours, and against the auditor's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import usu
from usu.metrics.mass import seam_energy


def by_neighbours(pixel_map, cells, segments):
    height, width = pixel_map.shape
    squares = []
    for y in range(height):
        for x in range(width):
            for v, u in ((y + 1, x), (y, x + 1)):
                if v < height and u < width and cells[y, x] != cells[v, u] and segments[y, x] == segments[v, u]:
                    squares.append((pixel_map[y, x] - pixel_map[v, u]) ** 2)
    energy = np.mean(pixel_map**2)
    return np.mean(squares) / energy if squares and energy else 0.0


@settings(max_examples=40)
@given(st.data(), st.sampled_from([-1e6, 1e-300, 1e-6, 1.0, 1e6, 1e300]))
def test_the_loop_over_neighbours_at_any_scale(data, factor):
    shape = data.draw(hnp.array_shapes(min_dims=2, max_dims=2, max_side=6))
    pixel_map = data.draw(hnp.arrays(np.float64, shape, elements=st.integers(-3, 3).map(float)))
    cells, segments = (data.draw(hnp.arrays(np.int64, shape, elements=st.integers(-1, 1))) for _ in range(2))
    found = seam_energy(pixel_map * factor, cells, segments)
    assert found == pytest.approx(by_neighbours(pixel_map, cells, segments), rel=1e-12)


@pytest.mark.parametrize("library", [np.asarray, torch.as_tensor])
def test_known_answers(library):
    pixel_map = library(np.array([[1.0, 1.0, 3.0, 3.0], [1.0, 1.0, 3.0, 3.0]]))  # mean square 5, both jumps 4
    one = library(np.zeros((2, 4), dtype=int))
    assert seam_energy(pixel_map, (1, 2), one) == pytest.approx(4 / 5)
    assert seam_energy(pixel_map, (2, 2), one) == pytest.approx((4 + 4 + 0 * 4) / 6 / 5)  # and four borders without
    assert seam_energy(pixel_map, (1, 4), one) == pytest.approx((4 + 4 + 0 * 4) / 6 / 5)
    halves = library(np.array([[0, 0, 1, 1], [0, 0, 1, 1]]))  # the jump is where the segment ends
    assert seam_energy(pixel_map, (1, 2), halves) == 0
    assert seam_energy(pixel_map, (1, 1), one) == 0
    assert seam_energy(pixel_map * 0, (1, 2), one) == 0
    assert seam_energy(pixel_map * 0 + 5, (1, 2), one) == 0


def test_bilinear_hides_the_grid_that_nearest_neighbour_shows():
    coarse, one = np.random.default_rng(0).random((7, 7)), np.zeros((56, 56), dtype=int)
    nearest, bilinear = (usu.interpolate(coarse, (56, 56), mode) for mode in ("nearest", "bilinear"))
    assert seam_energy(bilinear, (7, 7), one) < 0.05 * seam_energy(nearest, (7, 7), one)
