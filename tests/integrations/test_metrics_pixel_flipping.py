"""Pixel flipping beside the installed Quantus: the same curves, and the same areas where numpy still has its rule."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from torch import nn

from usu.metrics.curves import pixel_flipping


@pytest.fixture(scope="module")
def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Linear(128, 5),
    ).eval()  # fmt: skip


def scene(channels: int = 3, dtype: str = "float32"):
    rng = np.random.default_rng(4)
    return rng.normal(size=(channels, 16, 16)).astype("float32"), rng.normal(size=(16, 16)).astype(dtype)


def theirs(metric, net, image, pixel_map, **settings) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Quantus' own
        call = metric(disable_warnings=True, display_progressbar=False, **settings)
        return np.array(
            call(net, image[None], np.array([2]), a_batch=pixel_map[None, None], device="cpu", channel_first=True)
        )[0]


@pytest.mark.parametrize("fill", ["black", "white", "mean", "uniform", 0.25])
@pytest.mark.parametrize("features", [4, 64])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_curve_is_quantus(quantus, net, fill, features, dtype):
    image, pixel_map = scene(dtype=dtype)
    np.random.seed(11)
    expected = theirs(quantus.PixelFlipping, net, image, pixel_map, features_in_step=features, perturb_baseline=fill)
    ours = pixel_flipping(
        pixel_map, image, net, 2, fill=fill, steps=3 * 256 // features, compat="quantus", generator=11
    )
    np.testing.assert_allclose(ours.curve, expected, atol=1e-6)
    assert np.ptp(expected) > 1e-2
    assert ours.value == pytest.approx(np.sum((expected[1:] + expected[:-1]) / 2), abs=1e-4)


def test_black_is_the_default_and_tensors_are_welcome(quantus, net):
    image, pixel_map = scene()
    expected = theirs(quantus.PixelFlipping, net, image, pixel_map, features_in_step=32)
    ours = pixel_flipping(torch.from_numpy(pixel_map), torch.from_numpy(image), net, 2, steps=24, compat="quantus")
    np.testing.assert_allclose(ours.curve, expected, atol=1e-6)


def test_a_map_with_ties(quantus, net):
    """Few values: numpy alone decides who is first, and here it is the same numpy."""
    image, pixel_map = scene()
    pixel_map = np.round(pixel_map)
    expected = theirs(quantus.PixelFlipping, net, image, pixel_map, features_in_step=32)
    ours = pixel_flipping(pixel_map, image, net, 2, steps=24, compat="quantus")
    np.testing.assert_allclose(ours.curve, expected, atol=1e-6)


def test_the_area_is_quantus(quantus, net, monkeypatch):
    """numpy 2.4 has lost the rule its areas use; with the new name under the old one they are there again."""
    image, pixel_map = scene()
    if not hasattr(np, "trapz"):
        monkeypatch.setattr(np, "trapz", np.trapezoid, raising=False)
    expected = theirs(quantus.PixelFlipping, net, image, pixel_map, features_in_step=64, return_auc_per_sample=True)
    ours = pixel_flipping(pixel_map, image, net, 2, steps=12, compat="quantus")
    assert ours.value == pytest.approx(float(expected), abs=1e-5)


def test_logits_too(quantus, net):
    image, pixel_map = scene()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = quantus.PixelFlipping(features_in_step=64, disable_warnings=True)(
            net, image[None], np.array([2]), a_batch=pixel_map[None, None], softmax=False, device="cpu",
            channel_first=True,
        )[0]  # fmt: skip
    ours = pixel_flipping(pixel_map, image, net, 2, steps=12, compat="quantus", link="logit")
    np.testing.assert_allclose(ours.curve, expected, atol=1e-5)


def test_with_one_channel_both_definitions_agree(quantus):
    """No channels to come apart, no ties: what remains is the fill and the division by the number of steps."""
    torch.manual_seed(1)
    net = nn.Sequential(nn.Flatten(), nn.Linear(256, 4)).eval()
    image, pixel_map = scene(channels=1)
    expected = theirs(quantus.PixelFlipping, net, image, pixel_map, features_in_step=16)
    ours = pixel_flipping(pixel_map, image, net, 2, fill=float(image.min()), steps=16)
    np.testing.assert_allclose(ours.curve, expected, atol=1e-6)
    assert ours.value == pytest.approx(np.mean((expected[1:] + expected[:-1]) / 2), abs=1e-6)


def test_with_three_channels_they_do_not(quantus, net):
    """The trap: Quantus takes a third as many values per step and lets the channels of a pixel go apart."""
    image, pixel_map = scene()
    expected = theirs(quantus.PixelFlipping, net, image, pixel_map, features_in_step=64)
    ours = pixel_flipping(pixel_map, image, net, 2, fill=float(image.min()), steps=12)
    assert np.abs(ours.curve - expected).max() > 1e-3
