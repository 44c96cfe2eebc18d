"""How much mass a cell receives by its importance, and the most that one of its pixels may have (the ceiling)."""

from __future__ import annotations

import torch
from torch import Tensor

from usu.operator.cells import Partition, finite_or_zero


def by_importance(
    mass: Tensor, field: Tensor, cells: Partition, temperature: float, prior: str, importance: str
) -> Tensor:
    """M̃_k of `usu.SoftIWMR`, (B, K), for masses (B, K) of one sign and the scores (B, *lattice) that attract them.

    >>> from usu.operator.cells import Grid
    >>> halves = Grid((1, 2), (1, 4), torch.device("cpu"))
    >>> by_importance(torch.tensor([[6.0, 2.0]]), torch.full((1, 1, 4), 0.5), halves, 0.1, "area", "max").tolist()
    [[4.0, 4.0]]
    """
    sizes = cells.sizes
    # K values, in float64 from here on
    top = cells.peak(field).double().where(sizes > 0, 0)
    above = field - cells.spread(top.to(field.dtype))
    if importance == "logmeanexp":
        mean = cells.total((above * _over(temperature, field.dtype)).exp()) / sizes.clamp(min=1)
        value = top + temperature * mean.where(sizes > 0, 1).log()
    else:  # adds zeros: what has a derivative is the mean of the pixels at the top
        value = top + cells.total(above.where(above == 0, 0)) / cells.total(above == 0).clamp(min=1)
    weight = sizes.double().expand_as(mass) if prior == "area" else mass
    # the largest importance that has any weight, so that a cold Λ cannot underflow everywhere at once
    alive = value.detach().where(weight.detach() != 0, -torch.inf).amax(1, keepdim=True)
    below = (value - alive) * _over(temperature, torch.float64)
    weight = weight * below.where(below <= 0, 0).exp()  # not clamp: versions of torch differ in its slope at 0
    norm = weight.sum(1, keepdim=True)
    return mass.sum(1, keepdim=True) * (weight / norm.where(norm != 0, 1))


def _over(temperature: float, dtype: torch.dtype) -> float:
    """1 / temperature, not more than ``dtype`` can hold: zero times it stays zero."""
    return min(1 / temperature, torch.finfo(dtype).max)


#: Rounds after which the pixels at the ceiling are counted instead.
_ROUNDS = 24


def at_ceiling(logits: Tensor, cells: Partition, gain: float) -> Tensor:
    """Which pixels sit at the ceiling gain / n_k when a cell's shares are filled up like water.

    What is above the ceiling when the others hold the rest is set to it, which leaves more for them, again and again.
    Nothing is taken back, so this ends at the smallest such set, as a rule in a few rounds. Where logits fall so evenly
    that it would take many, the number of full pixels is found by bisection over ranks. A logit of inf is full in any
    case, one of -inf never is.
    """
    full, sizes = logits == torch.inf, cells.sizes
    for _ in range(_ROUNDS):
        top, held = _held(logits, full, cells)
        count = cells.total(full)
        # a share of exp(logit - top) (1 - gain count / n) / held is above gain / n
        left = (sizes - gain * count).clamp(min=0)
        level = (top + (gain * held / left).log()).where(left > 0, torch.inf)
        above = (logits > cells.spread(level.to(logits))) & ~full
        try:
            if not bool(above.any()):
                return full
        except RuntimeError:  # inside torch.vmap no tensor has a truth value
            break
        full = full | above
    return _ranked_ceiling(logits, cells, gain)


def _ranked_ceiling(logits: Tensor, cells: Partition, gain: float) -> Tensor:
    """With the pixels of a cell in falling order and m of them at the ceiling, the others may be scaled up to hold the
    rest if and only if n_k <= gain · (m + Σ_{rank >= m} exp(logit - logit_m)). The smallest such m, by bisection.
    """
    rank = rank_within(cells, logits.flatten(1).argsort(1, descending=True))
    low = cells.total(logits == torch.inf).long()
    high = cells.sizes.expand_as(low)
    for _ in range(int(cells.sizes.max()).bit_length() + 1):
        middle = (low + high) // 2
        held = middle + _held(logits, rank < cells.spread(middle), cells)[1]
        enough = (gain * held >= cells.sizes) | (middle >= cells.sizes)
        low, high = low.where(enough, middle + 1), middle.where(enough, high)
        low = torch.minimum(low, high)
    return rank < cells.spread(high)


def _held(logits: Tensor, full: Tensor, cells: Partition) -> tuple[Tensor, Tensor]:
    """The highest logit in each cell beside the full ones, and the sum of exp(logit - that)."""
    rest = logits.masked_fill(full, -torch.inf)
    top = finite_or_zero(cells.peak(rest))
    return top, cells.total((rest - cells.spread(top)).exp())


def rank_within(cells: Partition, order: Tensor) -> Tensor:
    """The place of each pixel (..., *lattice) among those of its cell, for pixel indices in ``order`` (..., pixels).

    >>> from usu.operator.cells import Labels
    >>> rank_within(Labels(torch.tensor([0, 1, 0, 1]), 2), torch.tensor([3, 2, 1, 0]))
    tensor([1, 1, 0, 0])
    """
    labels, sizes = cells.labels().flatten(), cells.sizes
    order = order.gather(-1, labels[order].argsort(dim=-1, stable=True))  # cell by cell
    place = torch.arange(len(labels), device=order.device) - (sizes.cumsum(0) - sizes)[labels[order]]
    return torch.zeros_like(order).scatter(-1, order, place).reshape(*order.shape[:-1], *cells.lattice)
