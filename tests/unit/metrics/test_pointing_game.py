"""The pointing game against a loop over all pairs of pixels."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from usu.metrics.pointing_game import pointing_game


def by_pairs(pixel_map, truth, tolerance):
    """Every highest pixel asks every pixel of the object how far it is."""
    highest = np.argwhere(pixel_map == pixel_map.max())
    hits = sum(
        any(math.hypot(y - v, x - u) <= tolerance for v, u in np.argwhere(truth).tolist()) for y, x in highest.tolist()
    )
    return hits / len(highest)


@given(st.data(), st.sampled_from([0, 1, 1.5, 2, 5]), st.sampled_from([1e-6, 1.0, 1e6]))
def test_the_loop_over_pairs_at_any_scale(data, tolerance, factor):
    shape = data.draw(hnp.array_shapes(min_dims=2, max_dims=2, max_side=7))
    pixel_map = data.draw(hnp.arrays(np.float64, shape, elements=st.integers(-2, 2).map(float)))
    truth = np.zeros(shape, dtype=bool)
    for _ in range(data.draw(st.integers(1, 3))):
        truth.flat[data.draw(st.integers(0, truth.size - 1))] = True
    found = pointing_game(pixel_map * factor, truth, tolerance=tolerance)
    assert found == pytest.approx(by_pairs(pixel_map, truth, tolerance), abs=1e-15)


@pytest.mark.parametrize("library", [np.asarray, torch.as_tensor])
def test_known_answers(library):
    truth = np.zeros((5, 5), dtype=bool)
    truth[2, 2] = True

    def at(*places):
        pixel_map = np.full((5, 5), -3.0)
        for place in places:
            pixel_map[place] = -1.0
        return library(pixel_map)

    truth = library(truth)
    assert pointing_game(at((2, 2)), truth) == 1
    assert pointing_game(at((2, 3)), truth) == 0
    assert pointing_game(at((2, 2), (0, 0), (4, 4), (0, 4)), truth) == 1 / 4  # the share of the highest
    assert pointing_game(library(np.zeros((5, 5))), truth) == 1 / 25  # all of them: the area share
    assert pointing_game(at((2, 3)), truth, tolerance=1) == 1
    assert pointing_game(at((1, 1)), truth, tolerance=1) == 0  # a disc, not a square
    assert pointing_game(at((1, 1)), truth, tolerance=math.sqrt(2)) == 1
    assert pointing_game(library(-5 * np.eye(5)), truth) == 0  # the highest, not the largest magnitude


def test_every_pixel_inside_is_always_hit():
    assert pointing_game(np.eye(3), np.ones((3, 3))) == 1
    assert pointing_game(np.eye(3), np.ones((3, 3)), tolerance=2) == 1


def test_a_permuted_map_scores_at_chance():
    rng = np.random.default_rng(0)
    truth = np.zeros((16, 16), dtype=bool)
    truth[4:12, 4:12] = True
    pixel_map = rng.normal(size=truth.shape) + 9 * truth
    assert pointing_game(pixel_map, truth) == 1
    found = [pointing_game(rng.permutation(pixel_map.ravel()).reshape(truth.shape), truth) for _ in range(1000)]
    assert np.mean(found) == pytest.approx(0.25, abs=0.04)  # three standard errors


def test_an_increasing_function_changes_nothing():
    pixel_map = np.random.default_rng(1).integers(-2, 3, size=(12, 12)).astype(float)  # many of the highest
    truth = np.arange(144).reshape(12, 12) < 50
    assert 0 < pointing_game(pixel_map, truth) < 1
    assert pointing_game(np.exp(pixel_map), truth) == pointing_game(pixel_map, truth)


def test_bad_input():
    ones = np.ones((2, 2))
    with pytest.raises(ValueError, match=r"^`truth` must mark the object"):
        pointing_game(ones, np.zeros((2, 2)))
    with pytest.raises(ValueError, match=r"^`truth` must be as large as `pixel_map`"):
        pointing_game(ones, np.ones((2, 3)))
    with pytest.raises(ValueError, match=r"^`tolerance` must be at least 0 pixels; got -1\. 0 asks"):
        pointing_game(ones, ones, tolerance=-1)
    with pytest.raises(TypeError, match=r"^`tolerance` must be a number; got str"):
        pointing_game(ones, ones, tolerance="15")
    with pytest.raises(ValueError, match=r"^`tolerance` must be finite"):
        pointing_game(ones, ones, tolerance=math.inf)
