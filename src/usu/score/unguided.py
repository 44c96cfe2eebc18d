"""No model: a segment is as important as the coarse map says it is."""

from __future__ import annotations

import torch

from usu import _checks as check
from usu.score.scores import Scores, label_map
from usu.types import Array


def unguided(coarse: Array, segments: Array) -> Scores:
    """The mean over S_p of the bilinear coarse map (half-pixel centres): the picture speaks through its segments only.

    ``coarse`` is (h, w), or (T, h, w) with one map per target. A label without pixels scores 0.

    >>> unguided(torch.tensor([[1.0, 3.0]]), torch.tensor([[0, 0, 1, 1]])).values
    tensor([[1.2500, 2.7500]], dtype=torch.float64)
    """
    maps = check.as_tensor("coarse", coarse)
    labels, count = label_map(segments)
    if maps.ndim not in (2, 3) or labels.ndim != 2:
        raise ValueError(
            f"`coarse` must be (h, w) or (T, h, w) and `segments` (H, W); got {check.shape(maps)} and "
            f"{check.shape(labels)}. Pass the pictures of a batch one by one."
        )
    check.finite("coarse", maps)
    maps = maps.detach().reshape(-1, *maps.shape[-2:]).double().cpu()
    flat = labels.flatten().cpu()
    field = torch.nn.functional.interpolate(maps[:, None], size=tuple(labels.shape), mode="bilinear").flatten(1)
    total = torch.zeros(len(maps), count, dtype=torch.float64).index_add_(1, flat, field)
    return Scores(total / torch.bincount(flat, minlength=count).clamp(min=1), None, 0)
