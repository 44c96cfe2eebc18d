"""IROF beside the installed Quantus, which can do pictures with one channel only."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from skimage.segmentation import slic
from torch import nn

from usu.metrics.curves import irof


def theirs(quantus, net, image, pixel_map, fill) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Quantus' own
        call = quantus.IROF(
            perturb_baseline=fill, return_aggregate=False, disable_warnings=True, display_progressbar=False
        )
        return float(
            call(net, image[None], np.array([1]), a_batch=pixel_map[None, None], device="cpu", channel_first=True)[0]
        )


def test_one_channel(quantus, monkeypatch):
    """Their number is K minus the area under the ratios after each removal; ours has the picture itself on the curve,
    clips, and divides by K.
    """
    if not hasattr(np, "trapz"):
        monkeypatch.setattr(np, "trapz", np.trapezoid, raising=False)
    rng = np.random.default_rng(0)
    image, pixel_map = rng.random((1, 32, 32)).astype("float32"), rng.random((32, 32)).astype("float32")
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(1024, 3)).eval()
    segments = slic(image.transpose(1, 2, 0).astype("double"), start_label=0)
    count = len(np.unique(segments))
    wanted = theirs(quantus, net, image, pixel_map, 0.2)
    same = irof(pixel_map, image, net, 1, fill=0.2, compat="quantus")
    assert same.value == pytest.approx(wanted, abs=1e-4)
    ours = irof(pixel_map, image, net, 1, segments=segments, fill=0.2)
    assert same.evaluations == ours.evaluations == count + 1 > 20
    ratios = ours.curve / ours.curve[0]
    assert count - np.sum((ratios[2:] + ratios[1:-1]) / 2) == pytest.approx(wanted, abs=1e-4)
    clipped = np.clip(ratios, 0, 1)
    assert ours.value == pytest.approx(1 - np.mean((clipped[1:] + clipped[:-1]) / 2))


def test_three_channels_are_beyond_it(quantus):
    """The trap of Quantus 0.6.0; when this fails, the docstring of `irof` has to change."""
    rng = np.random.default_rng(0)
    image, pixel_map = rng.random((3, 32, 32)).astype("float32"), rng.random((32, 32)).astype("float32")
    net = nn.Sequential(nn.Flatten(), nn.Linear(3072, 3)).eval()
    with pytest.raises(AssertionError):
        theirs(quantus, net, image, pixel_map, 0.2)
    assert 0 <= irof(pixel_map, image, net, 1).value <= 1
