"""ROAD against removing pixels in a loop, and a model whose answer can be written down."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from usu.metrics.road import noisy_linear, road


def unsure(batch):
    value = 3 * (batch * batch.roll(1, -1)).mean((1, 2, 3)) - batch[:, :, 0].mean((1, 2))
    return torch.stack([value, value * 0], 1)


@settings(max_examples=12)
@given(seed=st.integers(0, 10**6), order=st.sampled_from(["both", "most", "least"]))
def test_against_a_loop(seed, order):
    rng = np.random.default_rng(seed)
    image, field = rng.normal(size=(2, 10, 13)), rng.normal(size=(10, 13))
    percentages = (10, 50, 90.5)
    ranked = np.argsort(-field, axis=None)
    curve = []
    for one in ("most", "least"):
        for percentage in percentages:
            count = round(130 * percentage / 100)
            keep = np.ones(130, dtype=bool)
            keep[ranked[:count] if one == "most" else ranked[130 - count :]] = False
            picture = noisy_linear(image, keep.reshape(10, 13), noise=0)
            curve.append(float(torch.softmax(unsure(torch.from_numpy(picture)[None]), 1)[0, 0]))
    most, least = np.array(curve[:3]), np.array(curve[3:])
    measured = road(field, image, unsure, 0, percentages=percentages, order=order, noise=0)
    expected = {"both": np.stack([most, least]), "most": most, "least": least}[order]
    np.testing.assert_allclose(measured.curve, expected, atol=1e-12)
    value = {"both": (least - most).mean() / 2, "most": most.mean(), "least": least.mean()}[order]
    assert measured.value == pytest.approx(value, abs=1e-12)
    assert -0.5 <= measured.value <= 1


def test_written_down():
    """One bright square on black. Without it the picture is black: 0; without the rest nothing is lost: 1."""
    picture = torch.zeros(1, 20, 20)
    picture[:, 5:10, 5:9] = 1.0  # 5 % of the pixels

    def brightest(batch):
        return batch.amax((1, 2, 3))[:, None]

    measured = road(picture[0], picture, brightest, 0, percentages=[5, 50, 95], noise=0, link="logit")
    np.testing.assert_allclose(measured.curve, [[0, 0, 0], [1, 1, 1]], atol=1e-6)
    assert measured.value == pytest.approx(0.5)
    assert road(-picture[0], picture, brightest, 0, percentages=[5], noise=0, link="logit").value == pytest.approx(-0.5)
    assert road(picture[0], picture, brightest, 0, noise=0, link="logit", order="least").value == pytest.approx(1)
    assert road(picture[0], picture, brightest, 0, noise=0, link="logit", order="most").value == pytest.approx(0)


def test_noise_and_its_seed():
    rng = torch.Generator().manual_seed(0)
    image, field = torch.rand(3, 12, 12, generator=rng), torch.rand(12, 12, generator=rng)
    shaken = [road(field, image, unsure, 0, noise=0.3, generator=seed).value for seed in (0, 0, 1)]
    assert shaken[0] == shaken[1] != shaken[2]
    assert road(field, image, unsure, 0, noise=0.3, generator=torch.Generator().manual_seed(0)).value == shaken[0]
    assert road(field, image, unsure, 0, noise=0).value != shaken[0]


def test_ties_are_shuffled():
    """A constant map is a random one: its value has mean 0 over seeds and is not always the same."""
    image = torch.linspace(2, 0, 12)[:, None].expand(12, 12)[None].contiguous()
    constant = torch.ones(12, 12)

    def top(batch):
        return batch[:, :, :6].mean((1, 2, 3))[:, None]

    values = [
        road(constant, image, top, 0, percentages=[50], noise=0, link="logit", generator=seed).value
        for seed in range(60)
    ]
    assert np.std(values) > 0
    assert abs(np.mean(values)) < 4 * np.std(values) / np.sqrt(60)
    known = road(image[0], image, top, 0, percentages=[50], noise=0, link="logit").value
    assert known > 10 * np.std(values)


@settings(max_examples=8)
@given(seed=st.integers(0, 10**6), factor=st.sampled_from([1e-6, 1e6]))
def test_only_the_order_matters(seed, factor):
    rng = np.random.default_rng(seed)
    image, field = rng.normal(size=(1, 8, 8)), rng.normal(size=(8, 8))
    value = road(field, image, unsure, 0).value
    assert road(field * factor, image, unsure, 0).value == value
    assert road(np.exp(field), image, unsure, 0).value == value


@pytest.mark.parametrize(("target", "extra"), [(0, 0), (None, 1)])
@pytest.mark.parametrize(("order", "walks"), [("both", 2), ("most", 1), ("least", 1)])
def test_the_cost_is_counted(target, extra, order, walks):
    seen = []

    def model(batch):
        seen.append(len(batch))
        return unsure(batch)

    picture = torch.rand(1, 6, 6)
    measured = road(picture[0], picture, model, target, percentages=(10, 30, 60), order=order)
    assert measured.evaluations == sum(seen) == 3 * walks + extra
    seen.clear()
    assert road(picture[0], picture, model, 0).evaluations == sum(seen) == 8


def test_a_chunk_built_twice_has_the_same_noise():
    """Out of memory halves the chunk and builds its pictures again."""
    picture = torch.rand(1, 8, 8)

    def tight(batch):
        if len(batch) > 1:
            raise MemoryError
        return unsure(batch)

    assert road(picture[0], picture, tight, 0, noise=0.5).value == road(picture[0], picture, unsure, 0, noise=0.5).value
