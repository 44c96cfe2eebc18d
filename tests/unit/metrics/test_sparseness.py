"""The Gini index against its definition by pairs: Σ_ij |a_i - a_j| / (2 n² mean a)."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from usu.metrics.mass import sparseness

MAPS = hnp.arrays(np.float64, hnp.array_shapes(min_dims=2, max_dims=2, max_side=7), elements=st.floats(-1, 1, width=32))


def by_pairs(pixel_map):
    sizes = np.abs(pixel_map).ravel()
    if not sizes.any():
        return 0.0
    return np.abs(sizes[:, None] - sizes).sum() / (2 * sizes.size**2 * sizes.mean())


@settings(max_examples=40)
@given(MAPS)
def test_the_definition_by_pairs(pixel_map):
    found = sparseness(pixel_map)
    assert found == pytest.approx(by_pairs(pixel_map), abs=1e-12)
    assert 0 <= found <= 1 - 1 / pixel_map.size


@pytest.mark.parametrize(
    ("pixel_map", "wanted"),
    [
        ([[0, 0], [0, 9]], 3 / 4),  # one of four
        ([[0, 0], [9, -9]], 1 / 2),  # two of four, of either sign
        ([[1, 2], [3, 4]], 1 / 4),  # (-3·1 - 1·2 + 1·3 + 3·4) / (4 · 10)
        ([[0.3, -0.3], [0.3, 0.3]], 0),
        ([[0, 0], [0, 0]], 0),
        ([[7]], 0),
    ],
)
@pytest.mark.parametrize("library", [np.asarray, torch.as_tensor])
def test_known_answers(pixel_map, wanted, library):
    pixel_map = library(np.array(pixel_map, dtype=np.float64))
    assert sparseness(pixel_map) == pytest.approx(wanted, abs=1e-15)
    assert sparseness(pixel_map, compat="quantus") == pytest.approx(wanted, abs=1e-6)


@settings(max_examples=40)
@given(MAPS, st.sampled_from([-1e6, -1.0, 1e-300, 1e-6, 1e6, 1e300]))
def test_scale_sign_and_place_change_nothing(pixel_map, factor):
    for compat in (None, "quantus"):
        wanted = sparseness(pixel_map, compat=compat)
        assert sparseness(factor * pixel_map, compat=compat) == pytest.approx(wanted, abs=1e-9)
        assert sparseness(pixel_map[::-1, ::-1], compat=compat) == wanted


@pytest.mark.parametrize("compat", [None, "quantus"])
def test_a_constant_map_is_not_below_zero(compat):
    for width in range(1, 60):
        assert 0 <= sparseness(np.full((1, width), 0.3), compat=compat) < 1e-15


def test_what_quantus_adds_makes_it_a_little_less_sparse():
    spike = np.zeros((100, 100))
    spike[0, 0] = 1
    assert sparseness(spike) == 1 - 1e-4
    assert sparseness(spike, compat="quantus") == pytest.approx((1 - 1e-4) / (1 + 1e4 * 1e-7), abs=1e-12)
