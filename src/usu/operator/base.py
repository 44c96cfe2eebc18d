"""Base measures: what shares a cell's mass where the scores are equal."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from usu.operator.arguments import partition_of
from usu.operator.interpolate import interpolate
from usu.types import Array

#: Keeps a place alive where one of the maps is zero, as a part of the map's largest value.
_FLOOR = 0.03
#: Exponents of the coarse map and of the finer ones, the next finer first.
_OF_COARSE, _OF_FINER = 0.5, (1.0, 0.5)


def layered(smooth: Tensor, finer: Sequence[Tensor]) -> Tensor:
    """What several layers agree on: p = b^½ · l₁ · l₂^½, each map (..., H, W) over its largest value plus a floor.

    The finer maps know only what speaks for the target; where the coarse one is negative it stands alone, negative.

    >>> smooth, finer = torch.tensor([[0.97, 0.0]]).double(), torch.tensor([[0.97, 0.97]]).double()
    >>> layered(smooth, [finer]).log().round(decimals=2).tolist()  # ½ log 1.03 + log 1.03; ½ log 0.03 + log 1.03
    [[0.04, -1.72]]
    """
    size = (smooth.shape[-2], smooth.shape[-1])
    logs = _OF_COARSE * _unit(smooth.abs()).log()
    alone = -logs.exp()
    for level, exponent in zip(finer, _OF_FINER, strict=False):
        logs = logs + exponent * _unit(interpolate(level.to(smooth), size, "bilinear").clamp(min=0)).log()
    return torch.where(smooth < 0, alone, logs.exp())


def painted(coarse: Tensor, scores: Tensor, cells: Array | None) -> Tensor:
    """The coarse map on the pixels: smooth on a grid, flat on any other cells."""
    if cells is None:
        return interpolate(coarse, (int(scores.shape[-2]), int(scores.shape[-1])), "bilinear")
    partition, batch = partition_of(coarse, scores, cells)
    flat = partition.spread(coarse.reshape(-1, coarse.shape[-1]))
    return flat.reshape(*batch, *partition.lattice)


def with_trace(coarse: Tensor, trace: float, inner: int) -> Tensor:
    """Empty cells with a trace of the mean cell's density, less than D1 promises: their pixels then have an order.

    The last ``inner`` dimensions are one map's; a map of zeros stays so.
    """
    if not trace:
        return coarse
    spatial = tuple(range(-inner, 0))
    return torch.where(coarse == 0, trace * coarse.detach().abs().mean(spatial, keepdim=True), coarse)


def _unit(values: Tensor) -> Tensor:
    top = values.amax((-2, -1), keepdim=True)
    return values / top.where(top > 0, 1) + _FLOOR
