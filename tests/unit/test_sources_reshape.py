"""Tokens back on the picture: every layout, every prefix, sizes that are not square."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import usu
from usu.sources.recording import LayerGrid, find_grid


def embedding(patch: int, channels: int = 3) -> nn.Module:
    return nn.Sequential(nn.Conv2d(channels, 4, patch, stride=patch), nn.Flatten(2))


@given(st.integers(2, 6), st.integers(2, 6), st.sampled_from([3, 4, 8]), st.integers(0, 8), st.integers(0, 2))
def test_tokens_go_where_they_came_from(h, w, patch, prefix, margin):
    to_maps = usu.reshape_transform(embedding(patch), (h * patch + margin, w * patch))
    maps = torch.arange(2 * 5 * h * w, dtype=torch.float32).reshape(2, 5, h, w)
    tokens = torch.cat([torch.full((2, prefix, 5), -1.0), maps.flatten(2).mT], 1)
    assert torch.equal(to_maps(tokens), maps)


def test_layouts_and_outputs():
    to_maps = usu.reshape_transform(embedding(8), (64, 32))
    maps = torch.randn(2, 96, 8, 4)
    assert torch.equal(to_maps(maps), maps)
    assert torch.equal(to_maps(maps.movedim(1, -1)), maps)
    for output in (maps.flatten(2).mT, (maps.flatten(2).mT, None), {"last_hidden_state": maps.flatten(2).mT}):
        assert torch.equal(to_maps(output), maps)


def test_the_size_can_be_an_example_or_the_models_own():
    model = embedding(8, channels=2)
    given_size = usu.reshape_transform(model, (16, 32))
    for example in (torch.randn(3, 2, 16, 32), torch.randn(2, 16, 32), np.zeros((2, 16, 32), dtype=np.float32)):
        assert usu.reshape_transform(model, example) == given_size
    model.image_size = 16
    assert usu.reshape_transform(model).size == (16, 16)
    model.image_size = (16, 32)
    assert usu.reshape_transform(model) == given_size


def test_a_half_precision_model_is_shown_a_picture_of_its_kind():
    assert usu.reshape_transform(embedding(8).to(torch.bfloat16), (16, 16)).patches == {(2, 2)}


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (50 * 75, LayerGrid((50, 75), "tokens")),
        (25 * 38, LayerGrid((25, 38), "tokens")),
        (13 * 19, LayerGrid((13, 19), "tokens")),
    ],
)
def test_patches_that_were_merged_with_an_odd_row(tokens, expected):
    assert find_grid((1, tokens, 8), 1, (200, 300), {(50, 75)}) == expected


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ((embedding(8),), ValueError, "`input_size` .* got None for a Sequential"),
        ((embedding(8), 16), ValueError, "`input_size` .* got 16"),
        ((embedding(8), (16, 0)), ValueError, "`input_size` .* got 0"),
        ((embedding(8), torch.zeros(2)), ValueError, "`input_size` .* got an array of 2"),
        ((lambda x: x, (16, 16)), TypeError, "`model` .* got function"),
    ],
)
def test_bad_arguments(arguments, kind, message):
    with pytest.raises(kind, match=message):
        usu.reshape_transform(*arguments)


def test_outputs_that_do_not_lie_over_the_picture():
    to_maps = usu.reshape_transform(embedding(8), (16, 16))
    with pytest.raises(ValueError, match=r"`tokens` .* 16 x 16; got 1 x 77 x 8"):
        to_maps(torch.zeros(1, 77, 8))
    with pytest.raises(TypeError, match=r"`tokens` .* got NoneType"):
        to_maps(None)
