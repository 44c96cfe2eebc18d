"""Base measures: what a pixel attracts before any score is asked."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from usu import _checks as check
from usu.operator.cells import partition_of
from usu.operator.interpolate import interpolate, large_enough
from usu.types import Array, ArrayT

#: Keeps a place alive where one of the maps is zero, as a part of the map's largest value.
FLOOR = 0.03
#: Exponents of the coarse map and of the finer ones, the next finer first.
OF_COARSE, OF_FINER = 0.5, (1.0, 0.5)


def own_sign(pixel_map: ArrayT, coarse: Array) -> ArrayT:
    """The part of a map that has its cell's sign, as a base measure for `usu.redistribute`: max(0, sign(a_k) · b(x)).

    >>> own_sign(torch.tensor([[1.0, -2.0, 3.0, -4.0]]), torch.tensor([[1.0, -1.0]]))
    tensor([[1., 0., 0., 4.]])
    """
    pixels = check.as_tensor("pixel_map", pixel_map)
    values = check.as_tensor("coarse", coarse, like=pixels)
    if pixels.ndim < 2 or values.ndim < 2 or pixels.shape[:-2] != values.shape[:-2]:
        raise ValueError(
            f"`pixel_map` must be (..., H, W) with the leading dimensions of `coarse` ({check.shape(values)}); "
            f"got {check.shape(pixels)}."
        )
    size = (int(pixels.shape[-2]), int(pixels.shape[-1]))
    large_enough("pixel_map", size, values)
    check.finite("pixel_map", pixels)
    sign = interpolate(values.detach().sign(), size, "nearest")
    return check.like_input(pixel_map)((sign * pixels).clamp(min=0))  # type: ignore[no-any-return]


def painted(coarse: Tensor, scores: Tensor, cells: Array | None) -> Tensor:
    """The coarse map on the pixels: smooth on a grid, flat on any other cells.

    >>> painted(torch.tensor([0.0, 4.0]), torch.zeros(4), torch.tensor([0, 0, 1, 1])).tolist()
    [0.0, 0.0, 4.0, 4.0]
    """
    if cells is None:
        return interpolate(coarse, (int(scores.shape[-2]), int(scores.shape[-1])), "bilinear")
    partition, batch = partition_of(coarse, scores, cells)
    return partition.spread(coarse.reshape(-1, coarse.shape[-1])).reshape(*batch, *partition.lattice)


def layered(smooth: Tensor, finer: Sequence[Tensor]) -> Tensor:
    """What several layers agree on: p = b^½ · l₁ · l₂^½, each map (..., H, W) over its largest value plus a floor.

    The finer maps know only what speaks for the target; where the coarse one is negative it stands alone, negative.

    >>> smooth, finer = torch.tensor([[0.97, 0.0]]).double(), torch.tensor([[0.97, 0.97]]).double()
    >>> layered(smooth, [finer]).log().round(decimals=2).tolist()  # ½ log 1.03 + log 1.03; ½ log 0.03 + log 1.03
    [[0.04, -1.72]]
    """
    size = (smooth.shape[-2], smooth.shape[-1])
    logs = OF_COARSE * _unit(smooth.abs()).log()
    alone = -logs.exp()
    for level, exponent in zip(finer, OF_FINER, strict=False):
        logs = logs + exponent * _unit(interpolate(level.to(smooth), size, "bilinear").clamp(min=0)).log()
    return torch.where(smooth < 0, alone, logs.exp())


def _unit(values: Tensor) -> Tensor:
    top = values.amax((-2, -1), keepdim=True)
    return values / top.where(top > 0, 1) + FLOOR


def with_trace(coarse: Tensor, trace: float, inner: int) -> Tensor:
    """Empty cells with a trace of the mean cell's density, less than D1 promises: their pixels then have an order.

    The last ``inner`` dimensions are one map's; a map of zeros stays so.

    >>> with_trace(torch.tensor([0.0, 4.0]), 0.25, 1).tolist()
    [0.5, 4.0]
    """
    if not trace:
        return coarse
    spatial = tuple(range(-inner, 0))
    return torch.where(coarse == 0, trace * coarse.detach().abs().mean(spatial, keepdim=True), coarse)
