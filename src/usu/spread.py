"""The last step: a coarse map, a score field and the settings make the pixel map."""

from __future__ import annotations

from torch import Tensor

from usu.interpolate import interpolate
from usu.presets import Settings
from usu.redistribute import SoftPrior, redistribute
from usu.types import Array


def spread(coarse: Tensor, scores: Tensor, settings: Settings, *, cells: Array | None = None) -> Tensor:
    """`usu.redistribute` as the settings have it; the bilinear base needs a grid, so ``cells`` go without it."""
    base = None
    if settings.base == "bilinear" and cells is None:
        base = interpolate(coarse, (int(scores.shape[-2]), int(scores.shape[-1])), "bilinear")
        base = base if isinstance(settings.budget, SoftPrior) else base.abs()
    return redistribute(
        coarse, scores, cells=cells, temperature=settings.temperature, potential=settings.potential,
        budget=settings.budget, base=base, signed=settings.signed, max_gain=settings.max_gain,
    )  # fmt: skip
