"""A ceiling on concentration: which pixels are full when no share may exceed a multiple of the mean."""

from __future__ import annotations

import torch
from torch import Tensor

from usu.operator.cells import Partition


def at_ceiling(logits: Tensor, cells: Partition, gain: float) -> Tensor:
    """Which pixels sit at the ceiling gain / n_k when a cell's shares are filled up like water.

    With the pixels of a cell in falling order and m of them at the ceiling, the others may be scaled up to hold the
    rest if and only if n_k <= gain · (m + Σ_{rank >= m} exp(logit - logit_m)). The smallest such m is found by
    bisection, for all cells at once. A logit of inf is full in any case, one of -inf never is.
    """
    labels = cells.labels().flatten()
    flat = logits.flatten(1)
    falling = flat.argsort(1, descending=True)
    by_cell = labels[falling].argsort(dim=1, stable=True)
    order = falling.gather(1, by_cell)
    first = cells.sizes.cumsum(0) - cells.sizes
    position = torch.arange(flat.shape[1], device=flat.device).expand_as(flat) - first[labels[order]]
    rank = torch.zeros_like(position).scatter(1, order, position).reshape(logits.shape)

    low = cells.total(logits == torch.inf).long()
    high = cells.sizes.expand_as(low)
    for _ in range(int(cells.sizes.max()).bit_length() + 1):
        middle = (low + high) // 2
        rest = logits.masked_fill(rank < cells.spread(middle), -torch.inf)
        top = cells.peak(rest)
        top = top.where(top.isfinite(), 0)
        held = middle + cells.total((rest - cells.spread(top)).exp())
        enough = (gain * held >= cells.sizes) | (middle >= cells.sizes)
        low, high = low.where(enough, middle + 1), middle.where(enough, high)
        low = torch.minimum(low, high)
    return rank < cells.spread(high)
