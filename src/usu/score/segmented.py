"""What every way of scoring takes and returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from usu import _checks as check
from usu.forward import Engine
from usu.forward.fills import Fill, apply, filled, keep_shown
from usu.types import Array


@dataclass(frozen=True)
class Scores:
    """Raw effects (T, P) in float64 on the CPU: one row per target, one column per segment; higher = more important.

    NaN marks a segment that was left out with ``which``. A label without pixels has effect 0.
    """

    values: Tensor
    #: Standard errors of ``values``, where the way of scoring has any.
    stderr: Tensor | None
    #: Pictures passed through the model, reference passes included.
    evaluations: int
    #: What was explained, where the passes themselves had to tell.
    target: tuple[int, ...] | Callable[[Any], Tensor] | None = None


@dataclass(frozen=True, eq=False)
class Segmented:
    """A picture, its fill and its segments, ready to be shown in parts."""

    image: Tensor
    filled: Tensor
    segments: Tensor
    #: P: labels are 0 to P - 1.
    count: int

    def show(self, shown: Tensor) -> Tensor:
        """Pictures (n, C, H, W) in which only the segments ``shown`` (n, P) survive."""
        return apply(self.image, self.filled, keep_shown(shown.to(self.segments.device), self.segments))


def segmented(engine: Engine, image: Array, segments: Array, fill: Fill) -> Segmented:
    """Everything checked, on the model's device."""
    placed = engine.place(image)
    labels = check.labels("segments", segments, size=placed.shape[-2:])
    return Segmented(placed, filled(placed, fill), labels.to(placed.device), int(labels.max()) + 1)


def chosen(which: Array | None, segments: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Indices of the segments to evaluate (asked for and not empty), and (P,) values to start from: NaN or 0."""
    wanted = torch.ones(count, dtype=torch.bool)
    if which is not None:
        given = torch.as_tensor(which).cpu().flatten()
        if given.dtype == torch.bool and len(given) == count:
            wanted = given
        else:
            wanted[:] = False
            if given.numel():
                labels = check.labels("which", given)
                check.whole_number("which", int(labels.max()), most=count - 1)
                wanted[labels] = True
    present = torch.bincount(segments.flatten(), minlength=count).cpu() > 0
    start = torch.zeros(count, dtype=torch.float64).masked_fill(~wanted, torch.nan)
    return (wanted & present).nonzero().flatten(), start
