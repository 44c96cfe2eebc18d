"""The last step: a coarse map, scores and the settings make the pixel map."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from usu.operator.base import layered, painted, with_trace
from usu.operator.budgets import SoftPrior
from usu.operator.redistribute import redistribute
from usu.settings import Settings
from usu.types import Array


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
        base = painted(coarse, scores, cells)
        base = layered(base, finer) if settings.base == "layers" else base
        base = base if whole else base.abs()
    return redistribute(
        with_trace(coarse, settings.trace, 2 if cells is None else 1), scores, cells=cells,
        temperature=settings.temperature, potential=settings.potential, budget=settings.budget, base=base,
        signed=settings.signed, max_gain=settings.max_gain,
    )  # fmt: skip
