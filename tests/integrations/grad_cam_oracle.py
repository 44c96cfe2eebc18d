"""What pytorch-grad-cam itself computes before it scales, recorded while it runs unchanged; and a small network."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import nn

from usu import PRESETS

#: Temperature without end, no base measure, no ceiling: the scores are asked for and move nothing.
EVEN = replace(PRESETS["cell"], temperature=1e9, base=None, max_gain=None, evaluations=2, parts=4)
#: Real scores at little cost.
QUICK = replace(PRESETS["cell"], evaluations=12, parts=9)
#: The tolerance asked for, relative to the largest value.
CLOSE = 1e-6


def library_maps(cam: Any, images: torch.Tensor, targets: Any = None, **settings: Any) -> list[np.ndarray]:
    """The library's raw maps, one (B, h, w) per layer."""
    if hasattr(cam, "bias_data"):
        return library_fullgrad(cam, images, targets)
    base = getattr(cam, "base_cam", cam)
    found = []
    compute = base.get_cam_image

    def spy(*args: Any) -> np.ndarray:
        found.append(np.array(compute(*args)))
        return found[-1]

    with mock.patch.object(base, "get_cam_image", spy):
        cam(images, targets, **settings)
    return found


def library_fullgrad(cam: Any, images: torch.Tensor, targets: Any) -> list[np.ndarray]:
    import pytorch_grad_cam.fullgrad_cam as module

    found = []

    def spy(tensor: np.ndarray, size: tuple[int, int]) -> np.ndarray:
        found.append(tensor.sum(axis=1))
        return np.zeros((*tensor.shape[:2], size[1], size[0]), dtype=np.float32)  # its resize takes seconds

    with mock.patch.object(module, "scale_accross_batch_and_channels", spy):
        cam(images, targets)
    return found


def nearest(maps: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """torch's nearest-exact."""
    grid = torch.from_numpy(np.asarray(maps, dtype=np.float64))[:, None]
    return torch.nn.functional.interpolate(grid, size, mode="nearest-exact")[:, 0].numpy()


def assert_close(ours: np.ndarray, theirs: np.ndarray, tolerance: float = CLOSE) -> None:
    assert ours.shape == theirs.shape
    largest = np.abs(theirs).max()
    assert largest > 0
    assert np.abs(ours - theirs).max() <= tolerance * largest


def cell_sums(pixel_map: np.ndarray, grid: tuple[int, int]) -> np.ndarray:
    """(B, h, w) sums over the cells of a regular grid."""
    (h, w), (height, width) = grid, pixel_map.shape[1:]
    rows, columns = ([int((i + 0.5) * k / n) for i in range(n)] for k, n in ((h, height), (w, width)))
    sums = np.zeros((len(pixel_map), h, w))
    np.add.at(sums, (slice(None), *np.ix_(rows, columns)), pixel_map)
    return sums


def small_network(seed: int = 0) -> nn.Sequential:
    """24 x 24 pictures, layers of 12 x 12 ([2]) and 6 x 6 ([6]), five classes."""
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(3, 6, 3, stride=2, padding=1),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Conv2d(6, 8, 3, stride=2, padding=1),
        nn.BatchNorm2d(8),
        nn.Dropout(0.5),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
    ).eval()
    for norm in (model[1], model[4]):
        nn.init.normal_(norm.bias, std=0.5)
        nn.init.normal_(norm.running_mean, std=0.5)
    return model


def small_pictures(count: int = 2) -> torch.Tensor:
    return torch.randn(count, 3, 24, 24, generator=torch.Generator().manual_seed(1))
