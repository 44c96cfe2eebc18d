"""Quantile matching: order from one map, values from the other."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from usu.metrics.maps import quantile_match


@st.composite
def two_maps(draw):
    shape = draw(hnp.array_shapes(min_dims=2, max_dims=2, max_side=7))
    numbers = st.one_of(st.integers(-2, 2).map(float), st.floats(-1, 1, width=32))
    return tuple(draw(hnp.arrays(np.float64, shape, elements=numbers)) for _ in range(2))


def in_order(low, high):
    """Wherever ``low`` rises from one pixel to another, ``high`` does not fall: of all pairs."""
    return not ((low.ravel()[:, None] < low.ravel()) & (high.ravel()[:, None] > high.ravel())).any()


@settings(max_examples=40)
@given(two_maps(), st.integers(0, 5), st.integers(0, 5))
def test_the_laws(maps, seed, other):
    pixel_map, like = maps
    found = quantile_match(pixel_map, like, generator=seed)
    assert np.array_equal(np.sort(found, axis=None), np.sort(like, axis=None))
    assert in_order(pixel_map, found)
    assert np.array_equal(quantile_match(found, like, generator=other), found)
    for same in (pixel_map * 2.0**20, pixel_map * 2.0**-20):
        assert np.array_equal(quantile_match(same, like, generator=seed), found)


@settings(max_examples=40)
@given(two_maps())
def test_matched_to_itself_a_map_is_itself(maps):
    assert np.array_equal(quantile_match(maps[0], maps[0]), maps[0])


def test_scikit_image_where_there_are_no_ties():
    exposure = pytest.importorskip("skimage.exposure")
    rng = np.random.default_rng(0)
    pixel_map, like = rng.normal(size=(20, 30)), rng.exponential(size=(20, 30))
    np.testing.assert_allclose(quantile_match(pixel_map, like), exposure.match_histograms(pixel_map, like), rtol=1e-12)


def test_a_known_answer():
    pixel_map = np.array([[0.5, -3.0], [8.0, 0.1]])
    like = np.array([[1.0, 1.0], [2.0, 100.0]])
    assert quantile_match(pixel_map, like).tolist() == [[2, 1], [100, 1]]


def test_ties_are_ranked_by_the_seed_and_not_by_the_place():
    like = np.arange(400.0).reshape(20, 20)
    found = [quantile_match(np.zeros((20, 20)), like, generator=seed) for seed in range(30)]
    assert np.array_equal(quantile_match(np.zeros((20, 20)), like, generator=3), found[3])
    assert not np.array_equal(found[0], found[1])
    assert np.abs(np.mean(found, axis=0)[:5].mean() - 199.5) < 15  # the first rows are no better than others
    drawn = torch.Generator().manual_seed(3)
    assert np.array_equal(quantile_match(np.zeros((20, 20)), like, generator=drawn), found[3])
    assert not np.array_equal(quantile_match(np.zeros((20, 20)), like, generator=drawn), found[3])


@pytest.mark.parametrize("values", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_the_library_of_the_map_and_exactly_the_values_of_the_other(values):
    rng = np.random.default_rng(0)
    pixel_map, like = rng.random((3, 4), dtype=np.float32), torch.tensor(rng.random((3, 4)), dtype=values)
    tensor = quantile_match(torch.tensor(pixel_map), like)
    assert isinstance(tensor, torch.Tensor)
    assert tensor.dtype == values
    array = quantile_match(pixel_map, like)
    assert isinstance(array, np.ndarray)
    for found in (tensor.double().numpy(), array):
        assert np.array_equal(np.sort(found, axis=None), np.sort(like.double().numpy(), axis=None))
    if values != torch.bfloat16:
        assert array.dtype == like.numpy().dtype
        assert isinstance(quantile_match(torch.tensor(pixel_map), like.numpy()), torch.Tensor)


def test_what_is_given_stays_as_it_is():
    pixel_map, like = np.array([[2.0, 1.0]]), np.array([[3.0, 4.0]])
    quantile_match(pixel_map, like)
    assert pixel_map.tolist() == [[2, 1]]
    assert like.tolist() == [[3, 4]]
