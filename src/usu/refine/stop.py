"""When to stop, and how to say why."""

from __future__ import annotations

from enum import Enum

from usu import _checks as check
from usu.types import Array


class StopReason(str, Enum):
    """Why refinement ended; the text says what to try."""

    CONVERGED = "The scores no longer change; a smaller tolerance would refine further."
    DEPTH = "The greatest depth was reached; a greater depth would refine further."
    EVALUATIONS = "The model evaluations are spent; allow more evaluations to refine further."
    STABLE = "The expected stability is reached; a higher one would take more evaluations."
    NOTHING_TO_MOVE = (
        "The coarse map is zero everywhere: there is no mass to move. Try another layer, target or source."
    )
    NOTHING_TO_REFINE = "No segment is left to split; a lower threshold or more parts would refine further."


def changed(new: Array, old: Array, tolerance: float) -> bool:
    """The comparator: is the root-mean-square difference of two score fields above the tolerance?

    The paper's Frobenius norm divided by sqrt(H · W), so that the tolerance does not depend on the picture's size.
    With leading dimensions (several targets) one field that changed is enough.

    Guarantees: symmetric; a field has never changed from itself.

    >>> import torch
    >>> changed(torch.tensor([[0.3, 0.0]]), torch.tensor([[0.0, 0.4]]), 0.36)  # the difference is 0.5 / sqrt(2) = 0.354
    False
    """
    limit = check.real_number("tolerance", tolerance, least=0)
    left, right = check.as_tensor("new", new).detach(), check.as_tensor("old", old).detach()
    if left.ndim < 2 or left.shape != right.shape:
        raise ValueError(f"`new` and `old` must both be (..., H, W); got {check.shape(left)} and {check.shape(right)}.")
    squares = (left.double() - right.double()).square().mean((-2, -1))
    return bool((squares.sqrt() > limit).any())
