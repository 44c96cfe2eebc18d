"""Imputation and ROAD beside pytorch-grad-cam's."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter
from skimage import data, transform
from torch import nn

from usu.metrics.road import noisy_linear, road

#: On 32 x 32 pixels these remove as many pixels as grad-cam's thresholds do.
PERCENTAGES = (20, 40, 60, 80)


@pytest.fixture
def theirs(pytorch_grad_cam, monkeypatch):
    """Its module, with the noise off."""
    import pytorch_grad_cam.metrics.road as module

    monkeypatch.setattr(torch, "randn_like", torch.zeros_like)
    return module


@pytest.fixture(scope="module")
def net() -> nn.Module:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Linear(512, 5), nn.Softmax(1),
    ).eval()  # fmt: skip
    with torch.no_grad():  # an opinion, so that removing pixels shows
        net[5].weight.mul_(30)
    return net


def photograph(side: int) -> torch.Tensor:
    pixels = transform.resize(data.chelsea(), (side, side), anti_aliasing=True)
    return torch.from_numpy(pixels.transpose(2, 0, 1).astype("float32")) * 4 - 2


@pytest.mark.parametrize(("side", "share", "blobs"), [(64, 0.5, 4), (64, 0.95, 0), (61, 0.8, 9), (224, 0.5, 12)])
def test_the_same_imputation(theirs, side, share, blobs):
    field = gaussian_filter(np.random.default_rng(0).standard_normal((side, side)), blobs)
    keep = torch.from_numpy(field > np.quantile(field, share))
    image = photograph(side)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own
        expected = theirs.NoisyLinearImputer(noise=0)(image.clone(), keep.float())
    found = noisy_linear(image, keep, noise=0)
    assert float((found - expected).abs().max()) < 1e-4 * float(image.max() - image.min())
    assert float((found - image).abs().max()) > 0.1


def measured_by(metric, net, image, field) -> float:
    from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own
        return float(metric(image[None], field[None], [ClassifierOutputTarget(2)], net)[0])


def scene() -> tuple[torch.Tensor, np.ndarray]:
    field = gaussian_filter(np.random.default_rng(3).standard_normal((32, 32)), 3)
    return photograph(32), ((field - field.min()) / np.ptp(field)).astype("float32")


@pytest.mark.parametrize("percentage", PERCENTAGES)
@pytest.mark.parametrize(("order", "name"), [("most", "ROADMostRelevantFirst"), ("least", "ROADLeastRelevantFirst")])
def test_one_order_at_a_time(theirs, net, percentage, order, name):
    """Its percentile is what stays, and its number a difference to the whole picture."""
    image, field = scene()
    expected = measured_by(getattr(theirs, name)(percentile=100 - percentage), net, image, field)
    with torch.no_grad():
        whole = float(net(image[None])[0, 2])
    found = road(field, image, net, 2, percentages=[percentage], order=order, noise=0, link="logit")
    assert found.value - whole == pytest.approx(expected, abs=2e-5)
    assert abs(expected) > 2e-4


def test_both_orders_combined(theirs, net):
    image, field = scene()
    expected = measured_by(theirs.ROADCombined(percentiles=list(PERCENTAGES)), net, image, field)
    found = road(field, image, net, 2, percentages=PERCENTAGES, noise=0, link="logit")
    assert found.value == pytest.approx(expected, abs=2e-5)
    assert abs(expected) > 2e-3
