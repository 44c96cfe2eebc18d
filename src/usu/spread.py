"""The last step: a coarse map, a score field and the settings make the pixel map."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from usu.operator.arguments import partition_of
from usu.operator.interpolate import interpolate
from usu.operator.redistribute import SoftPrior, redistribute
from usu.refine import unit_scale
from usu.settings import Settings
from usu.types import Array, NDArray
from usu.upsamplers.filters import guided_filter

#: Keeps a place alive where one of the maps is zero, as a part of the map's largest value.
_FLOOR = 0.03
#: Exponents of the coarse map and of the finer ones, the next finer first. Only one is heard by ourselves; a second
#: may be handed in.
_OF_COARSE, _OF_FINER = 0.5, (1.0, 0.5)
#: The guided filter looks at windows of this part of the picture's side, to either direction.
_RADII_PER_SIDE = 28


def spread(
    coarse: Tensor, scores: Tensor, settings: Settings, *, cells: Array | None = None, finer: Sequence[Tensor] = ()
) -> Tensor:
    """`usu.redistribute` as the settings have it, with the base measure they name.

    ``finer``: maps (..., h', w') of finer layers for ``base="layers"``; without any the coarse map stands alone in it.
    A bilinear base needs a grid, so ``cells`` go without it.
    """
    whole = isinstance(settings.budget, SoftPrior)
    base = None
    if settings.base == "layers" or (settings.base == "bilinear" and cells is None):
        base = _painted(coarse, scores, cells)
        base = layered(base, finer) if settings.base == "layers" else base
        base = base if whole else base.abs()
    return redistribute(
        _with_trace(coarse, settings.trace, 2 if cells is None else 1), scores, cells=cells,
        temperature=settings.temperature, potential=settings.potential, budget=settings.budget, base=base,
        signed=settings.signed, max_gain=settings.max_gain,
    )  # fmt: skip


def follow_picture(scores: Tensor, picture: NDArray) -> Tensor:
    """Scores (T, H, W) whose edges are the picture's: a guided filter, and each field back to [0, 1].

    Segments cut where they must; inside of one, pixels that look like an important neighbour are more important.

    >>> picture = torch.tensor([[0.0, 1.0, 1.0, 1.0]])[..., None].expand(1, 4, 3).numpy()
    >>> follow_picture(torch.tensor([[[0.0, 0.0, 1.0, 1.0]]]).double(), picture).round(decimals=1).tolist()
    [[[0.0, 0.5, 0.9, 1.0]]]
    """
    flat = scores.flatten(1)
    constant = flat.amin(1) == flat.amax(1)
    if bool(constant.all()):
        return scores
    radius = max(1, round(min(scores.shape[-2:]) / _RADII_PER_SIDE))
    smooth = guided_filter(scores, picture, radius=radius).flatten(1)
    found = unit_scale(smooth)(smooth)
    return torch.where(constant[:, None], flat, found).reshape(scores.shape)


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


def _unit(values: Tensor) -> Tensor:
    top = values.amax((-2, -1), keepdim=True)
    return values / top.where(top > 0, 1) + _FLOOR


def _painted(coarse: Tensor, scores: Tensor, cells: Array | None) -> Tensor:
    """The coarse map on the pixels: smooth on a grid, flat on any other cells."""
    if cells is None:
        return interpolate(coarse, (int(scores.shape[-2]), int(scores.shape[-1])), "bilinear")
    partition, batch = partition_of(coarse, scores, cells)
    flat = partition.spread(coarse.reshape(-1, coarse.shape[-1]))
    return flat.reshape(*batch, *partition.lattice)


def _with_trace(coarse: Tensor, trace: float, inner: int) -> Tensor:
    """Empty cells with a trace of the mean cell's density, less than D1 promises: their pixels then have an order.

    The last ``inner`` dimensions are one map's; a map of zeros stays so.
    """
    if not trace:
        return coarse
    spatial = tuple(range(-inner, 0))
    return torch.where(coarse == 0, trace * coarse.detach().abs().mean(spatial, keepdim=True), coarse)
