"""Monotonicity correlation in our definition; Quantus' is compared with Quantus in the integration tests."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr

from usu.metrics.curves import monotonicity_correlation


def total(batch):
    return batch.sum((1, 2, 3))[:, None]


def unsure(batch):
    value = batch.square().sum((1, 2, 3)) - batch[:, :, 0].sum((1, 2))
    return torch.stack([value, value * 0], 1)


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), steps=st.integers(2, 12))
def test_against_filling_each_group_by_hand(seed, steps):
    rng = np.random.default_rng(seed)
    image, field = rng.normal(size=(2, 3, 4)), rng.normal(size=(3, 4))

    def f(picture):
        return float(torch.softmax(unsure(torch.from_numpy(picture)[None]), 1)[0, 0])

    order = np.argsort(np.abs(field).reshape(-1))
    edges = np.floor(np.arange(steps + 1) * 12 / steps + 0.5).astype(int)
    attributions, changes = [], []
    for start, stop in itertools.pairwise(edges):
        rows, columns = np.unravel_index(order[start:stop], (3, 4))
        picture = image.copy()
        picture[:, rows, columns] = image.mean((1, 2))[:, None]
        attributions.append(np.abs(field)[rows, columns].mean())
        changes.append((f(image) - f(picture)) ** 2)
    measured = monotonicity_correlation(field, image, unsure, 0, steps=steps)
    np.testing.assert_allclose(measured.curve, changes, atol=1e-12)
    assert measured.value == pytest.approx(spearmanr(attributions, changes).statistic)
    assert -1 <= measured.value <= 1


def test_an_additive_model_written_down():
    """Filling the pixel worth x changes the sum by x, so x² orders as |x| does; a map of the other order gives -1."""
    picture = torch.tensor([[[1.0, -4.0], [3.0, 2.0]]])
    settings = {"fill": 0, "steps": 4, "link": "logit"}
    measured = monotonicity_correlation(picture[0], picture, total, 0, **settings)
    assert measured.curve.tolist() == [1, 4, 9, 16]
    assert measured.value == pytest.approx(1)
    assert monotonicity_correlation(1 / picture[0], picture, total, 0, **settings).value == pytest.approx(-1)
    swapped = torch.tensor([[1.0, 3.0], [4.0, 2.0]])  # ranks 1 2 4 3 of 1 2 3 4: 1 - 6 · 2 / (4 · 15)
    assert monotonicity_correlation(swapped, picture, total, 0, **settings).value == pytest.approx(0.8)


@pytest.mark.parametrize("compat", [None, "quantus"])
def test_a_constant_map_gives_zero(compat):
    """A constant map (in groups of unequal size, whose sums differ) orders nothing."""
    generator = torch.Generator().manual_seed(0)
    picture, steps = torch.rand(1, 3, 5, generator=generator), 4 if compat is None else 5
    for flat in (torch.full((3, 5), 0.1), torch.zeros(3, 5)):
        measured = monotonicity_correlation(flat, picture, total, 0, steps=steps, fill=0.0, link="logit", compat=compat)
        assert measured.value == 0
        assert np.ptp(measured.curve) > 0


@pytest.mark.parametrize("compat", [None, "quantus"])
def test_a_blind_model_gives_zero(compat):
    picture = torch.arange(15.0).reshape(1, 3, 5)
    measured = monotonicity_correlation(
        picture[0], picture, lambda batch: torch.ones(len(batch), 2), 0, steps=5, fill=0.0, compat=compat
    )
    assert measured.value == 0


def test_a_permuted_map_is_at_chance():
    generator = torch.Generator().manual_seed(0)
    picture = torch.rand(1, 8, 8, generator=generator)
    values = []
    for _ in range(200):
        permuted = picture.flatten()[torch.randperm(64, generator=generator)].reshape(8, 8)
        values.append(monotonicity_correlation(permuted, picture, total, 0, fill=0, steps=16, link="logit").value)
    assert abs(np.mean(values)) < 4 * np.std(values) / np.sqrt(200)
    assert monotonicity_correlation(picture[0], picture, total, 0, fill=0, steps=16, link="logit").value > 0.99


@pytest.mark.parametrize("factor", [1e-6, 1e6, -1])
@pytest.mark.parametrize("compat", [None, "quantus"])
def test_the_scale_of_the_map_does_not_matter(factor, compat):
    generator = torch.Generator().manual_seed(0)
    picture, pixel_map = torch.rand(2, 6, 6, generator=generator), torch.randn(6, 6, generator=generator)
    first, second = (
        monotonicity_correlation(pixel_map * f, picture, unsure, 0, steps=12, fill=0.5, compat=compat).value
        for f in (1, factor)
    )
    assert first == second != 0


@pytest.mark.parametrize(("target", "extra"), [(0, 0), (None, 1)])
@pytest.mark.parametrize(
    ("settings", "cost"),
    [({}, 9), ({"compat": "quantus"}, 9), ({"compat": "quantus", "samples": 3}, 25)],
)
def test_the_cost_is_counted(target, extra, settings, cost):
    seen = []

    def model(batch):
        seen.append(len(batch))
        return unsure(batch)

    picture = torch.rand(3, 4, 4)
    measured = monotonicity_correlation(picture[0], picture, model, target, steps=8, **settings)
    assert measured.evaluations == sum(seen) == cost + extra
