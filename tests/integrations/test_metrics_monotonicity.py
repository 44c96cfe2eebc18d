"""Monotonicity correlation beside the installed Quantus."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from torch import nn

from usu.metrics.curves import monotonicity_correlation


@pytest.fixture(scope="module")
def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 5)
    ).eval()  # fmt: skip


def scene(dtype: str = "float32"):
    rng = np.random.default_rng(4)
    return rng.normal(size=(3, 12, 12)).astype("float32"), rng.normal(size=(12, 12)).astype(dtype)


def theirs(quantus, net, image, pixel_map, **settings) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Quantus' own
        call = quantus.MonotonicityCorrelation(disable_warnings=True, display_progressbar=False, **settings)
        return call(net, image[None], np.array([2]), a_batch=pixel_map[None, None], device="cpu", channel_first=True)[0]


@pytest.mark.parametrize("fill", ["black", "white", "mean", -0.5])
@pytest.mark.parametrize("features", [2, 18])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_with_a_fill_that_is_not_drawn(quantus, net, fill, features, dtype):
    """One sample is enough there: Quantus' hundred are a hundred times the same."""
    image, pixel_map = scene(dtype)
    settings = {"features_in_step": features, "perturb_baseline": fill}
    expected = theirs(quantus, net, image, pixel_map, nr_samples=2, **settings)
    ours = monotonicity_correlation(pixel_map, image, net, 2, fill=fill, steps=432 // features, compat="quantus")
    assert ours.value == pytest.approx(expected, abs=1e-6)
    assert abs(expected) > 1e-3


@pytest.mark.parametrize("samples", [1, 5])
def test_with_the_random_fill_seeded_alike(quantus, net, samples):
    image, pixel_map = scene()
    np.random.seed(3)
    expected = theirs(quantus, net, image, pixel_map, features_in_step=18, nr_samples=samples)
    ours, other = (
        monotonicity_correlation(
            pixel_map, image, net, 2, steps=24, samples=samples, compat="quantus", generator=seed
        ).value
        for seed in (3, 4)
    )
    assert ours == pytest.approx(expected, abs=1e-6)
    assert ours != other


def test_a_class_the_model_does_not_see(quantus, net):
    """Where the class has less than 1e-5 Quantus does not divide by it; a correlation of ranks does not care."""
    image, pixel_map = scene()
    with torch.no_grad():
        net = nn.Sequential(net, nn.Linear(5, 5))
        net[1].weight.copy_(30 * torch.eye(5))
        net[1].bias.zero_()[2] -= 20
    settings = {"features_in_step": 18, "perturb_baseline": "black", "nr_samples": 1}
    expected = theirs(quantus, net.eval(), image, pixel_map, **settings)
    assert float(net(torch.from_numpy(image)[None]).detach().softmax(1)[0, 2]) < 1e-5
    ours = monotonicity_correlation(pixel_map, image, net, 2, fill="black", steps=24, compat="quantus")
    assert ours.value == pytest.approx(expected, abs=1e-6)


def test_logits_too(quantus, net):
    image, pixel_map = scene()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = quantus.MonotonicityCorrelation(
            features_in_step=18, perturb_baseline="black", nr_samples=1, disable_warnings=True
        )(
            net, image[None], np.array([2]), a_batch=pixel_map[None, None], softmax=False, device="cpu",
            channel_first=True,
        )[0]  # fmt: skip
    ours = monotonicity_correlation(pixel_map, image, net, 2, fill="black", steps=24, compat="quantus", link="logit")
    assert ours.value == pytest.approx(expected, abs=1e-6)


def test_what_quantus_refuses_is_zero_here(quantus, net):
    """A constant map by an assertion, a model that sees no difference by accident."""
    image, pixel_map = scene()
    flat = np.full_like(pixel_map, 0.3)
    blind = nn.Sequential(nn.Flatten(), nn.Linear(432, 5)).eval()
    nn.init.zeros_(blind[1].weight)
    settings = {"features_in_step": 18, "perturb_baseline": "black", "nr_samples": 1}
    for model, given, error in ((net, flat, AssertionError), (blind, pixel_map, AttributeError)):
        with pytest.raises(error):
            theirs(quantus, model, image, given, **settings)
        assert monotonicity_correlation(given, image, model, 2, fill="black", steps=24, compat="quantus").value == 0
