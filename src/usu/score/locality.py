"""What D4 saves: segments whose score cannot change the result need no evaluation."""

from __future__ import annotations

import torch
from torch import Tensor

from usu import _checks as check
from usu.types import Array


def needed(segments: Array, cells: Array, masses: Array) -> Tensor:
    """(P,) booleans: does the segment meet a cell of non-zero mass that also holds another segment?

    A cell without mass stays empty and a cell inside one segment is shared evenly, whatever the scores. ``cells`` are
    labels from 0 like ``segments``, and ``masses`` holds one number per cell, in the order of the labels.

    Guarantees:
        Changing the score of a segment that is not needed leaves ``redistribute(..., budget="cell")`` as it was, to
        rounding. That is a statement about scores in [0, 1]: a normalisation must not look at them either.

    >>> needed(torch.tensor([[0, 1, 1, 1, 2, 2]]), torch.tensor([[0, 0, 1, 1, 2, 2]]), torch.tensor([5.0, 5.0, 5.0]))
    tensor([ True,  True, False])
    """
    labels = check.labels("segments", segments)
    count = int(labels.max()) + 1
    regions = check.labels("cells", cells, size=labels.shape)
    mass = check.any_tensor("masses", masses).flatten()
    if int(regions.max()) >= len(mass):
        raise ValueError(f"`masses` must hold one number per cell ({int(regions.max()) + 1}); got {len(mass)}.")
    meetings = torch.unique(regions.cpu().flatten() * count + labels.cpu().flatten())
    cell, segment = meetings // count, meetings % count
    decides = (torch.bincount(cell, minlength=len(mass)) > 1) & (mass.detach().cpu() != 0)
    result = torch.zeros(count, dtype=torch.bool)
    result[segment[decides[cell]]] = True
    return result
