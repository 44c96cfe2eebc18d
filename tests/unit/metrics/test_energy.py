"""Energy in the object: sums of the positive part, written out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from usu.metrics.concentration import concentration
from usu.metrics.energy import energy_in_mask

TRUTH = np.array([[True, True, False], [False, False, False]])


@pytest.mark.parametrize(
    ("pixel_map", "wanted"),
    [
        ([[1, 1, 0], [0, 0, 0]], 1),
        ([[0, 0, 1], [1, 1, 1]], 0),
        ([[1, -2, 3], [-4, 0, 0]], 1 / 4),  # the positive alone
        ([[5, 5, 5], [5, 5, 5]], 1 / 3),
        ([[-1, -1, -9], [0, 0, 0]], 1 / 3),  # points nowhere: as a constant
        ([[0, 0, 0], [0, 0, 0]], 1 / 3),
    ],
)
@pytest.mark.parametrize("library", [np.asarray, torch.as_tensor])
def test_known_answers(pixel_map, wanted, library):
    pixel_map = library(np.array(pixel_map, dtype=np.float64))
    assert energy_in_mask(pixel_map, library(TRUTH)) == pytest.approx(wanted, abs=1e-15)


@given(st.data(), st.sampled_from([1e-6, 1e6]))
def test_the_sum_pixel_by_pixel_and_any_positive_factor(data, factor):
    shape = data.draw(hnp.array_shapes(min_dims=2, max_dims=2, max_side=6))
    pixel_map = data.draw(hnp.arrays(np.float64, shape, elements=st.floats(-1, 1, width=32)))
    truth = data.draw(hnp.arrays(np.bool_, shape))
    truth.flat[0] = True
    inside = total = 0.0
    for value, hit in zip(pixel_map.ravel().tolist(), truth.ravel().tolist(), strict=True):
        if value > 0:
            total += value
            inside += value if hit else 0.0
    found = energy_in_mask(pixel_map, truth)
    assert found == pytest.approx(inside / total if total else truth.mean(), abs=1e-12)
    assert energy_in_mask(factor * pixel_map, truth) == pytest.approx(found, abs=1e-12)
    assert energy_in_mask(np.abs(pixel_map), truth) == concentration(pixel_map, truth)


def test_a_permuted_map_scores_at_chance():
    rng = np.random.default_rng(0)
    truth = np.zeros((32, 32), dtype=bool)
    truth[8:24, 8:24] = True
    pixel_map = rng.normal(size=truth.shape) + 4 * truth - 2
    assert energy_in_mask(pixel_map, truth) > 0.9
    found = [energy_in_mask(rng.permutation(pixel_map.ravel()).reshape(truth.shape), truth) for _ in range(200)]
    assert np.mean(found) == pytest.approx(0.25, abs=0.01)


def test_bad_input():
    with pytest.raises(ValueError, match=r"^`truth` must mark the object"):
        energy_in_mask(np.ones((2, 2)), np.zeros((2, 2)))
    with pytest.raises(ValueError, match=r"^`truth` must be boolean, or hold 0 and 1; got values such as 2"):
        energy_in_mask(np.ones((2, 2)), np.full((2, 2), 2))
    with pytest.raises(ValueError, match=r"^`pixel_map` must be finite; got infinity"):
        energy_in_mask(np.full((2, 2), np.inf), np.ones((2, 2)))
