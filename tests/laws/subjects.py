"""What the numbers of the rooms are measured on: two networks, two photographs, fields of a seed; all in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from skimage import data
from torch import Tensor, nn
from torch.nn import functional

import usu

SIZE = (48, 64)
#: No side divides.
GRID = (5, 7)


class Patches(nn.Module):
    """6 x 8 patches and a class token that the head reads, with two layers of attention."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.start, self.head = nn.Conv2d(3, 8, 8, 8), nn.Parameter(torch.zeros(1, 1, 8)), nn.Linear(8, 5)
        self.mix = nn.ModuleList(nn.Linear(8, 24) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).mT
        tokens = torch.cat([self.start.expand(len(x), -1, -1), tokens], 1)
        for mix in self.mix:
            query, key, value = (part.unflatten(2, (2, 4)).transpose(1, 2) for part in mix(tokens).chunk(3, 2))
            tokens = tokens + functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
        return self.head(tokens[:, 0])


def convolutions() -> nn.Module:
    """Grids of 23 x 31, 11 x 15 and 5 x 7 for a picture of 48 x 64."""
    layers = [layer for a, b in ((3, 6), (6, 8), (8, 10)) for layer in (nn.Conv2d(a, b, 3, 2), nn.ReLU())]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(10, 5))


@cache
def network(make: Callable[[], nn.Module] = convolutions) -> nn.Module:
    """In float64, with weights that do not depend on torch's own random numbers."""
    rng, model = np.random.default_rng(5), make().double().eval()
    for weight in model.parameters():
        fan = weight[0].numel() if weight.ndim > 1 else 8
        weight.data.copy_(torch.from_numpy(rng.normal(size=tuple(weight.shape)) * math.sqrt(2 / fan)))
    return model


@cache
def photograph(name: str = "astronaut") -> np.ndarray:
    """48 x 64 x 3 in [0, 1]: means over blocks of a photograph."""
    pixels = getattr(data, name)()[:288, :384] / 255
    return np.asarray(pixels.reshape(48, 6, 64, 6, 3).mean((1, 3)))


def image_of(name: str = "astronaut") -> Tensor:
    return torch.from_numpy((photograph(name) - 0.45) / 0.25).permute(2, 0, 1).contiguous()


@cache
def parts() -> np.ndarray:
    return np.asarray(usu.segment.Slic(smoothing=1.0)(photograph(), 20))


def drawn(*shape: int, seed: int = 0, signed: bool = False) -> np.ndarray:
    """Numbers in [0, 1), or around 0."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=shape) if signed else rng.random(shape)


def labelled() -> np.ndarray:
    """Eleven cells of no regular form, of which one has no pixel."""
    rows, columns = np.mgrid[: SIZE[0], : SIZE[1]]
    found = ((rows // 11) * 3 + (columns + rows) // 29) % 11
    return np.where(found == 4, 5, found).astype(np.int64)
