"""Half deletion against sorting cell by cell, and what a map that says nothing inside its cells gets."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.problems import grid_labels
from usu.metrics.curves import half_deletion, halves


def total(batch):
    return batch.sum((1, 2, 3))[:, None]


def unsure(batch):
    value = batch.square().sum((1, 2, 3)) - batch[:, :, 0].sum((1, 2))
    return torch.stack([value, value * 0], 1)


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), odd=st.booleans())
def test_against_sorting_each_cell(seed, odd):
    rng = np.random.default_rng(seed)
    image, field = rng.normal(size=(2, 7, 6)), rng.normal(size=(7, 6))
    cells = (3, 2) if odd else rng.integers(0, 5, (7, 6)) * 10
    labels = grid_labels((3, 2), (7, 6)) if odd else cells
    fill = image.mean((1, 2))
    values = []
    for sign in (-1, 1):  # top, bottom
        picture = image.copy()
        for cell in np.unique(labels):
            rows, columns = np.nonzero(labels == cell)
            first = np.argsort(sign * field[rows, columns])[: len(rows) // 2]
            picture[:, rows[first], columns[first]] = fill[:, None]
        values.append(float(torch.softmax(unsure(torch.from_numpy(picture)[None]), 1)[0, 0]))
    measured = half_deletion(field, image, unsure, cells, 0)
    np.testing.assert_allclose(measured.curve, values, atol=1e-12)
    assert measured.value == pytest.approx(values[1] - values[0], abs=1e-12)
    assert -1 <= measured.value <= 1


def test_an_additive_model_written_down():
    """Cells {1, 2, 9} and {4, 6}: filling the top takes 9 + 6, the bottom 1 + 4; the 2 in the middle stays."""
    picture, cells = torch.tensor([[[1.0, 2.0, 9.0, 4.0, 6.0]]]), torch.tensor([[0, 0, 0, 1, 1]])
    measured = half_deletion(picture[0], picture, total, cells, 0, fill=0, link="logit")
    np.testing.assert_allclose(measured.curve, [22 - 15, 22 - 5])
    assert measured.value == 10
    assert half_deletion(-picture[0], picture, total, cells, 0, fill=0, link="logit").value == -10


def test_the_perfect_map_is_the_best_of_all_halves():
    picture = torch.randn(1, 2, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    values = []
    for left in combinations([0, 1, 4, 5], 2):
        for right in combinations([2, 3, 6, 7], 2):
            pixel_map = torch.zeros(8, dtype=torch.float64)
            pixel_map[[*left, *right]] = 1
            values.append(half_deletion(pixel_map.reshape(2, 4), picture, total, (1, 2), 0, fill=0, link="logit").value)
    best = half_deletion(picture[0], picture, total, (1, 2), 0, fill=0, link="logit").value
    assert best == pytest.approx(max(values))
    assert best > 0


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6))
def test_both_halves_are_equal_in_every_cell(seed):
    rng = np.random.default_rng(seed)
    labels = torch.from_numpy(rng.integers(0, 4, (5, 6)))
    field = torch.from_numpy(rng.integers(0, 3, (5, 6)).astype(float))  # many ties
    half = halves(field, labels, 5, torch.Generator().manual_seed(seed))
    top, bottom = half == 0, half == 1
    for cell in range(4):
        inside = labels == cell
        assert (top & inside).sum() == (bottom & inside).sum() == inside.sum() // 2
        if bool((top & inside).any()):
            assert field[top & inside].min() >= field[bottom & inside].max()
    assert not bool((top & bottom).any())


@pytest.mark.parametrize("kind", ["nearest", "permuted"])
def test_chance_is_zero(kind):
    """A map constant in its cells is all ties; a permuted one knows nothing. Without the shuffle the first would not
    be at chance here: the model likes the top rows.
    """
    generator = torch.Generator().manual_seed(0)
    picture = torch.linspace(2, 0, 8)[:, None].expand(8, 8)[None].contiguous()
    values = []
    for seed in range(144):
        coarse = torch.rand(2, 2, generator=generator)
        pixel_map = coarse.repeat_interleave(4, 0).repeat_interleave(4, 1)
        if kind == "permuted":
            pixel_map = picture.flatten()[torch.randperm(64, generator=generator)].reshape(8, 8)
        values.append(half_deletion(pixel_map, picture, total, (2, 2), 0, fill=0, link="logit", generator=seed).value)
    assert np.std(values) > 1
    assert abs(np.mean(values)) < 4 * np.std(values) / 12
    assert half_deletion(picture[0], picture, total, (2, 2), 0, fill=0, link="logit").value > 10 * np.std(values) / 12


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), factor=st.sampled_from([1e-6, 1e6]))
def test_only_the_order_in_each_cell_matters(seed, factor):
    rng = np.random.default_rng(seed)
    image, field = rng.normal(size=(1, 6, 6)), rng.normal(size=(6, 6))
    value = half_deletion(field, image, unsure, (3, 3), 0).value
    assert half_deletion(field * factor, image, unsure, (3, 3), 0).value == value
    lifted = field + 100.0 * grid_labels((3, 3), (6, 6))
    assert half_deletion(lifted, image, unsure, (3, 3), 0).value == value


@pytest.mark.parametrize(("target", "extra"), [(0, 0), (None, 1)])
def test_the_cost_is_counted(target, extra):
    seen = []

    def model(batch):
        seen.append(len(batch))
        return unsure(batch)

    picture = torch.rand(1, 4, 4)
    measured = half_deletion(picture[0], picture, model, (2, 2), target)
    assert measured.evaluations == sum(seen) == 2 + extra
