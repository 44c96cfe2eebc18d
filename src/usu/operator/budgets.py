"""How much mass a cell receives (budgets), and the most that one of its pixels may have (the ceiling)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from usu import _checks as check
from usu.operator.cells import Partition, rank_within


@dataclass(frozen=True)
class SoftIWMR:
    """Budgets by importance: mass flows to cells that hold a high score; only the total is kept.

    M̃_k = M_total · Λ(λ_k) c_k / Σ_j Λ(λ_j) c_j with Λ(λ) = exp(λ / temperature) and λ_k the cell's importance.

    - ``prior="area"`` (the paper): c_k = pixels of the cell; two coarse maps of equal total give the same output.
    - ``prior="mass"``: c_k = M_k. Equal importances then give M̃_k = M_k.
    - ``importance="max"`` (the paper): λ_k = the highest score in the cell. ``"logmeanexp"``: its smooth form,
      temperature · log mean exp(Φ / temperature); with the area prior a single softmax over the lattice, so no seams.

    Positive and negative mass are budgeted separately; a total of zero gives zeros.

    Guarantees: mass, D1-G, D2, D3 (tensor potential), D4'.
    """

    temperature: float = 0.1
    prior: Literal["area", "mass"] = "area"
    importance: Literal["max", "logmeanexp"] = "max"

    def __post_init__(self) -> None:
        check.positive_number("temperature", self.temperature)
        check.choice("prior", self.prior, ("area", "mass"))
        check.choice("importance", self.importance, ("max", "logmeanexp"))


@dataclass(frozen=True)
class Hybrid:
    """Between the two: (1 - gamma) · M_k + gamma · M̃_k. The paper names a hybrid without defining it; this is ours.

    Guarantees: mass, D1-G, D2, D3 (tensor potential), D4'; D1 and D4 for gamma = 0.
    """

    gamma: float = 0.5
    soft: SoftIWMR = SoftIWMR()

    def __post_init__(self) -> None:
        check.real_number("gamma", self.gamma, least=0, most=1)
        if not isinstance(self.soft, SoftIWMR):
            raise TypeError(f"`soft` must be a usu.SoftIWMR; got {type(self.soft).__name__}.")


@dataclass(frozen=True)
class SoftPrior:
    """One softmax over the whole lattice with the coarse map as a prior that has an exponent.

    Ã = M_total · p^exponent · φ(Φ) / Σ_lattice p^exponent · φ(Φ), with p = b + floor · max b.

    b is ``base`` if given (a smooth one leaves no seams), else the coarse map; ``floor`` keeps places alive where that
    is zero. An exponent of 0 is the scores alone. Not in the paper.

    Guarantees: mass. Cells do not keep theirs.
    """

    exponent: float = 0.5
    floor: float = 0.03

    def __post_init__(self) -> None:
        check.real_number("exponent", self.exponent, least=0)
        check.real_number("floor", self.floor, least=0)


Budget: TypeAlias = Literal["cell", "iwmr", "hybrid"] | SoftIWMR | Hybrid | SoftPrior
_NAMED: dict[str, Literal["cell"] | SoftIWMR | Hybrid] = {"cell": "cell", "iwmr": SoftIWMR(), "hybrid": Hybrid()}
BUDGETS = tuple(_NAMED)


def checked_budget(budget: Budget) -> Literal["cell"] | SoftIWMR | Hybrid | SoftPrior:
    """A budget as an object, whatever named it; ``"cell"`` is its own."""
    if isinstance(budget, (SoftIWMR, Hybrid, SoftPrior)):
        return budget
    if not isinstance(budget, str):
        raise TypeError(
            f"`budget` must be 'cell', 'iwmr', 'hybrid', SoftIWMR, Hybrid or SoftPrior; got {type(budget).__name__}."
        )
    check.choice("budget", budget, BUDGETS)
    return _NAMED[budget]


def budgeted(mass: Tensor, field: Tensor, cells: Partition, budget: Literal["cell"] | SoftIWMR | Hybrid) -> Tensor:
    """M̃_k, (B, K), for masses (B, K) of one sign and the scores (B, *lattice) that attract them.

    >>> from usu.operator.cells import Grid
    >>> halves = Grid((1, 2), (1, 4), torch.device("cpu"))
    >>> budgeted(torch.tensor([[6.0, 2.0]]), torch.full((1, 1, 4), 0.5), halves, Hybrid(0.5)).tolist()
    [[5.0, 3.0]]
    """
    if budget == "cell":
        return mass
    hybrid = budget if isinstance(budget, Hybrid) else Hybrid(1.0, budget)
    soft, sizes = hybrid.soft, cells.sizes
    # K values, in float64 from here on
    top = cells.peak(field).double().where(sizes > 0, 0)
    above = field - cells.spread(top.to(field.dtype))
    if soft.importance == "logmeanexp":
        mean = cells.total((above * _over(soft.temperature, field.dtype)).exp()) / sizes.clamp(min=1)
        importance = top + soft.temperature * mean.where(sizes > 0, 1).log()
    else:  # adds zeros: what has a derivative is the mean of the pixels at the top
        importance = top + cells.total(above.where(above == 0, 0)) / cells.total(above == 0).clamp(min=1)
    weight = sizes.double().expand_as(mass) if soft.prior == "area" else mass
    # the largest importance that has any weight, so that a cold Λ cannot underflow everywhere at once
    alive = importance.detach().where(weight.detach() != 0, -torch.inf).amax(1, keepdim=True)
    below = (importance - alive) * _over(soft.temperature, torch.float64)
    weight = weight * below.where(below <= 0, 0).exp()  # not clamp: versions of torch differ in its slope at 0
    norm = weight.sum(1, keepdim=True)
    redistributed = mass.sum(1, keepdim=True) * (weight / norm.where(norm != 0, 1))
    return (1 - hybrid.gamma) * mass + hybrid.gamma * redistributed


def _over(temperature: float, dtype: torch.dtype) -> float:
    """1 / temperature, not more than ``dtype`` can hold: zero times it stays zero."""
    return min(1 / temperature, torch.finfo(dtype).max)


#: Rounds after which the pixels at the ceiling are counted instead.
_ROUNDS = 24


def at_ceiling(logits: Tensor, cells: Partition, gain: float) -> Tensor:
    """Which pixels sit at the ceiling gain / n_k when a cell's shares are filled up like water.

    Again and again, what is above the ceiling when the others hold the rest is set to it, which leaves more for them;
    each time the rest is shared anew. Nothing is ever taken back, so this ends at the smallest such set, as a rule in a
    few rounds. Where logits fall so evenly that it would take many, the number of full pixels is found by bisection
    over ranks instead. A logit of inf is full in any case, one of -inf never is.
    """
    full, sizes = logits == torch.inf, cells.sizes
    for _ in range(_ROUNDS):
        rest = logits.masked_fill(full, -torch.inf)
        top = cells.peak(rest)
        top = top.where(top.isfinite(), 0)
        count = cells.total(full)
        held = cells.total((rest - cells.spread(top)).exp())
        # a share of exp(logit - top) (1 - gain count / n) / held is above gain / n
        left = (sizes - gain * count).clamp(min=0)
        level = top + (gain * held / left).log()
        above = rest > cells.spread(level.where(left > 0, torch.inf).to(logits))
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
        rest = logits.masked_fill(rank < cells.spread(middle), -torch.inf)
        top = cells.peak(rest)
        top = top.where(top.isfinite(), 0)
        held = middle + cells.total((rest - cells.spread(top)).exp())
        enough = (gain * held >= cells.sizes) | (middle >= cells.sizes)
        low, high = low.where(enough, middle + 1), middle.where(enough, high)
        low = torch.minimum(low, high)
    return rank < cells.spread(high)
