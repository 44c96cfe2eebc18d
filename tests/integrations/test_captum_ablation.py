"""Deleting one segment at a time is captum's FeatureAblation; their numbers are the oracle."""

from __future__ import annotations

import pytest
import torch
from skimage import data, transform
from torch import nn

from usu.forward import engine
from usu.forward.fills import filled
from usu.score import delete, sampled

captum_attr = pytest.importorskip("captum.attr")


def picture(name: str) -> torch.Tensor:
    pixels = transform.resize(getattr(data, name)(), (48, 60), anti_aliasing=True)
    return torch.tensor(pixels, dtype=torch.float32).permute(2, 0, 1)


@pytest.fixture
def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 5, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(3), nn.Flatten(),
        nn.Linear(72, 6),
    ).eval()  # fmt: skip


def blocks(size: tuple[int, int]) -> torch.Tensor:
    rows, columns = torch.arange(size[0]) // 9, torch.arange(size[1]) // 11
    return rows[:, None] * (int(columns.max()) + 1) + columns


@pytest.mark.parametrize("name", ["chelsea", "coffee", "astronaut"])
@pytest.mark.parametrize("fill", ["blur", "mean", "noise", 0.0])
def test_equals_feature_ablation(net, name, fill):
    image = picture(name)
    segments = blocks(image.shape[1:])
    with torch.no_grad():
        theirs = captum_attr.FeatureAblation(net).attribute(
            image[None], baselines=filled(image, fill)[None], target=4, feature_mask=segments[None, None]
        )[0, 0]
    ours = delete(engine(net, 4), image, segments, fill=fill).values[0]
    assert torch.allclose(ours[segments].float(), theirs, atol=1e-6)
    assert float(theirs.abs().max()) > 3e-4


def test_kernel_shap_equals_exact_shapley_values(net):
    """Four segments are few enough for captum's exact Shapley values."""
    image = picture("chelsea")
    segments = (torch.arange(48) // 24)[:, None] * 2 + torch.arange(60) // 30
    with torch.no_grad():
        theirs = captum_attr.ShapleyValues(net).attribute(
            image[None], baselines=filled(image, "blur")[None], target=4, feature_mask=segments[None, None]
        )[0, 0]
    exact = torch.stack([theirs[segments == p][0] for p in range(4)]).double()
    ours = sampled(engine(net, 4), image, segments, fit="kernel_shap", strength=0, evaluations=1000).values[0]
    assert torch.allclose(ours, exact, atol=0.03 * float(exact.abs().max()))
