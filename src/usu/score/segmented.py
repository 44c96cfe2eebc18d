"""What every way of scoring takes and returns: a picture whose segments are shown or filled, and their effects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from usu import _checks as check
from usu.errors import UsuError
from usu.forward import Engine, Progress
from usu.forward.fills import Drop, Fill, apply, filled, keep_shown
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
    #: Labels of the segments to evaluate: asked for and not empty.
    asked: Tensor
    #: (P,) values to start from: NaN for a segment that was not asked for, else 0.
    start: Tensor
    #: Whether the model is told by one more channel what is hidden.
    drops: bool = False

    def values(
        self, engine: Engine, count: int, shown: Callable[[slice], Tensor], progress: Progress | None = None
    ) -> Tensor:
        """Values (count, T) of pictures in which only the segments ``shown(rows)``, (n, P) booleans, survive."""

        def build(rows: slice) -> Tensor:
            keep = keep_shown(shown(rows).to(self.segments.device), self.segments)
            batch = apply(self.image, self.filled, keep)
            return torch.cat([batch, keep[:, None].to(batch)], 1) if self.drops else batch

        return engine.evaluate(self.image, count, build, progress=progress)

    def values_of_groups(self, engine: Engine, groups: Tensor, progress: Progress | None = None) -> Tensor:
        """The same for ``groups`` (n, P') of the segments asked for; all others are shown."""

        def shown(rows: slice) -> Tensor:
            every = torch.ones(rows.stop - rows.start, self.count, dtype=torch.bool)
            every[:, self.asked] = groups[rows]
            return every

        return self.values(engine, len(groups), shown, progress)


def segmented(engine: Engine, image: Array, segments: Array, fill: Fill, which: Array | None = None) -> Segmented:
    """Everything checked, on the model's device; ``which``: labels or booleans of the segments to evaluate, or all."""
    placed, drops = engine.place(image), isinstance(fill, Drop)
    if isinstance(fill, Drop):
        from usu.forward.tokens import TokenDrop

        fill = fill.rest
        if not isinstance(engine.model, TokenDrop):
            raise UsuError("Drop() needs the model that usu.sources.token_drop(model, image) makes.")
    labels = check.labels("segments", segments, size=placed.shape[1:])
    present = torch.bincount(labels.flatten()).cpu() > 0
    wanted = torch.ones_like(present)
    if which is not None:
        given = torch.as_tensor(which).cpu().flatten()
        if given.dtype == torch.bool and len(given) == len(present):
            wanted = given
        else:
            wanted[:] = False
            if given.numel():
                chosen = check.labels("which", given)
                check.whole_number("which", int(chosen.max()), most=len(present) - 1)
                wanted[chosen] = True
    start = torch.zeros(len(present), dtype=torch.float64).masked_fill(~wanted, torch.nan)
    asked = (wanted & present).nonzero().flatten()
    return Segmented(placed, filled(placed, fill), labels.to(placed.device), len(present), asked, start, drops)
