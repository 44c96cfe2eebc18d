"""What D4 saves: segments whose score cannot change the result need no evaluation."""

from __future__ import annotations

import torch
from torch import Tensor

from usu import _checks as check
from usu.score.scores import label_map
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
    labels, count = label_map(segments)
    regions, _ = label_map(cells, "cells")
    mass = check.any_tensor("masses", masses).flatten()
    if regions.shape != labels.shape or int(regions.max()) >= len(mass):
        raise ValueError(
            f"`cells` must have the shape of `segments` ({check.shape(labels)}) and one of {len(mass)} masses per "
            f"label; got {check.shape(regions)} with labels up to {int(regions.max())}. Pass them as one label map."
        )
    meetings = torch.unique(regions.cpu().flatten() * count + labels.cpu().flatten())
    cell, segment = meetings // count, meetings % count
    decides = (torch.bincount(cell, minlength=len(mass)) > 1) & (mass.detach().cpu() != 0)
    result = torch.zeros(count, dtype=torch.bool)
    result[segment[decides[cell]]] = True
    return result
