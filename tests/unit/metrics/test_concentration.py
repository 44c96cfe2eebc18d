"""Concentration: sums written out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from usu.metrics.concentration import concentration

TRUTH = np.array([[True, True, False], [False, False, False]])


@pytest.mark.parametrize(
    ("pixel_map", "wanted"),
    [
        ([[1, 1, 0], [0, 0, 0]], 1),
        ([[0, 0, 1], [1, 1, 1]], 0),
        ([[1, 2, 3], [0, 0, 0]], 1 / 2),
        ([[1, -2, 3], [-4, 0, 0]], 3 / 10),  # of either sign
        ([[5, 5, 5], [5, 5, 5]], 1 / 3),
        ([[0, 0, 0], [0, 0, 0]], 1 / 3),  # nothing said: as a constant
    ],
)
@pytest.mark.parametrize("library", [np.asarray, torch.as_tensor])
def test_known_answers(pixel_map, wanted, library):
    pixel_map = library(np.array(pixel_map, dtype=np.float64))
    assert concentration(pixel_map, library(TRUTH)) == pytest.approx(wanted, abs=1e-15)


@given(st.data(), st.sampled_from([-1e6, -1.0, 1e-6, 1e6]))
def test_the_sum_pixel_by_pixel_and_any_factor(data, factor):
    shape = data.draw(hnp.array_shapes(min_dims=2, max_dims=2, max_side=6))
    pixel_map = data.draw(hnp.arrays(np.float64, shape, elements=st.floats(-1, 1, width=32)))
    truth = data.draw(hnp.arrays(np.bool_, shape))
    truth.flat[0] = True
    inside = total = 0.0
    for value, hit in zip(pixel_map.ravel().tolist(), truth.ravel().tolist(), strict=True):
        total += abs(value)
        inside += abs(value) if hit else 0.0
    found = concentration(pixel_map, truth)
    assert found == pytest.approx(inside / total if total else truth.mean(), abs=1e-12)
    assert concentration(factor * pixel_map, truth) == pytest.approx(found, abs=1e-12)
    assert 0 <= found <= 1


def test_a_permuted_map_scores_at_chance():
    rng = np.random.default_rng(0)
    truth = np.zeros((32, 32), dtype=bool)
    truth[8:24, 8:24] = True
    pixel_map = rng.exponential(size=truth.shape) * (0.05 + truth)
    assert concentration(pixel_map, truth) > 0.85
    found = [concentration(rng.permutation(pixel_map.ravel()).reshape(truth.shape), truth) for _ in range(200)]
    assert np.mean(found) == pytest.approx(0.25, abs=0.01)


def test_bad_input():
    with pytest.raises(ValueError, match=r"^`truth` must mark the object"):
        concentration(np.ones((2, 2)), np.zeros((2, 2)))
    with pytest.raises(ValueError, match=r"^`truth` must be as large as `pixel_map` \(2 x 2\); got 2 x 3"):
        concentration(np.ones((2, 2)), np.ones((2, 3)))
    with pytest.raises(ValueError, match=r"^`pixel_map` must be one map, H x W; got 1 x 2 x 2"):
        concentration(np.ones((1, 2, 2)), np.ones((2, 2)))
    with pytest.raises(TypeError, match=r"^`pixel_map` must hold floating-point numbers"):
        concentration(np.ones((2, 2), dtype=int), np.ones((2, 2)))
