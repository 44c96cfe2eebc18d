"""Scoring within a budget of model evaluations."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from usu import _checks as check
from usu.types import Array, NDArray


class Score(Protocol):
    """Segments in, raw effects out."""

    def __call__(self, labels: NDArray, which: NDArray, budget: int | None, /) -> tuple[Array, int]:
        """Effects (targets, len(which)) of the segments ``which`` of a label map, and the evaluations this took.

        At most ``budget`` evaluations may be used; None means as many as it takes.
        """


class Purse:
    """The scoring function and what it may still spend."""

    def __init__(self, score: Score, total: int | None) -> None:
        self.score, self.total, self.spent = score, total, 0
        self.targets: int | None = None

    @property
    def left(self) -> int | None:
        """Evaluations that may still be made; None if there is no end to them."""
        return None if self.total is None else self.total - self.spent

    def children(self, cost: int) -> int | None:
        """How many segments can still be scored; None if there is no end to it."""
        return None if self.left is None or cost == 0 else self.left // cost

    def short_of(self, cost: int) -> bool:
        """Too little left to score the two halves of one segment."""
        return self.left is not None and self.left < max(1, 2 * cost)

    def spend(self, labels: NDArray, which: NDArray) -> Tensor:
        """Score ``which``: (targets, len(which)) in float64."""
        left = self.left
        values, used = self.score(labels.copy(), which.copy(), left)
        if left is not None and used > left:
            raise ValueError(
                f"`score` must use at most {left} evaluations, its `budget`; got {used}. "
                "Look at the budget before scoring."
            )
        self.spent += int(used)
        tensor = check.as_tensor("score's values", values).detach().to("cpu", torch.float64)
        if tensor.ndim != 2 or tensor.shape[1] != len(which) or self.targets not in (None, len(tensor)):
            targets = "targets" if self.targets is None else self.targets
            raise ValueError(
                f"`score` must return values of shape {targets} x {len(which)}, one for each target and segment asked "
                f"for; got {check.shape(tensor)}. Keep targets first."
            )
        check.finite("score's values", tensor)
        self.targets = len(tensor)
        return tensor
