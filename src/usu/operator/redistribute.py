"""The operator: a coarse map's mass, shared out inside cells by scores.

    Ã(x) = M_k · b(x) φ(Φ(x)) / Σ_{y in cell k} b(y) φ(Φ(y))          for x in cell k

M_k is the cell's budget, Φ the score field, φ the potential and b the base measure (1 in the paper). Everything the
paper proves follows from this one line: the shares of a cell add up to one (D1), φ increases (D2), log φ is a straight
line (D3), and the sum runs over the cell alone (D4).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import reduce
from math import exp, prod
from operator import add
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from usu import _checks as check
from usu.operator.budgets import at_ceiling, by_importance
from usu.operator.cells import Grid, Labels, Partition, boxes, centred, finite_or_zero, in_bands, partition_of, share
from usu.types import Array, ArrayT

#: exp(-64) is far from the smallest number of single precision, so up to here 1 will do as everybody's maximum.
_MILD_RATE = 64.0


@dataclass(frozen=True)
class SoftIWMR:
    """Budgets by importance: mass flows to cells that hold a high score; only the total is kept.

    M̃_k = M_total · Λ(λ_k) c_k / Σ_j Λ(λ_j) c_j with Λ(λ) = exp(λ / temperature) and λ_k the cell's importance.

    - ``prior="area"`` (the paper): c_k = pixels of the cell. ``"mass"``: c_k = M_k, which equal importances leave so.
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
    soft: SoftIWMR = field(default_factory=SoftIWMR)

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
BUDGETS = ("cell", "iwmr", "hybrid")
_OfCells: TypeAlias = Literal["cell"] | SoftIWMR | Hybrid


def checked_budget(budget: Budget) -> _OfCells | SoftPrior:
    """A budget as an object, whatever named it; ``"cell"`` is its own."""
    if isinstance(budget, (SoftIWMR, Hybrid, SoftPrior)):
        return budget
    if not isinstance(budget, str):
        raise TypeError(
            f"`budget` must be 'cell', 'iwmr', 'hybrid', SoftIWMR, Hybrid or SoftPrior; got {type(budget).__name__}."
        )
    check.choice("budget", budget, BUDGETS)
    return "cell" if budget == "cell" else SoftIWMR() if budget == "iwmr" else Hybrid()


def redistribute(
    coarse: ArrayT, scores: Array, *, cells: Array | Labels | None = None, temperature: float = 0.1,
    potential: Callable[[Any], Any] | None = None, budget: Budget = "cell", base: Array | None = None,
    signed: Literal["flip", "literal"] = "flip", coarse_is: Literal["density", "mass"] = "density",
    max_gain: float | None = None,
) -> ArrayT:  # fmt: skip
    """Share every cell's mass among its pixels by score: Ã(x) = M_k · φ(Φ(x)) / Σ_{y in cell} φ(Φ(y)).

    Args:
        coarse: (..., h, w) on a regular grid, or (..., K) with ``cells``: value k belongs to label k.
        scores: (..., H, W), or (..., *lattice) with ``cells``; in [0, 1]. Leading dimensions broadcast.
        cells: labels 0..K-1, one per pixel of a lattice of any dimension; unused labels are empty cells. For a grid
            over a signal or a volume, `usu.operator.cells.boxes`.
        temperature: of the tensor potential; low concentrates, high approaches nearest-neighbour.
        potential: `usu.potentials` or any positive, increasing callable on [0, 1]; replaces the tensor potential.
        budget: what a cell receives: ``"cell"`` its own mass, ``"iwmr"`` = `SoftIWMR()`, ``"hybrid"`` = `Hybrid()`,
            or one of these or `SoftPrior` with other settings.
        base: a non-negative prior measure b like ``scores``; shares become proportional to b · φ. Where it is zero
            throughout a cell, or full under ``max_gain``, the scores decide alone.
        signed: ``"flip"`` reverses the scores for negative mass, so that a high score always means more;
            ``"literal"`` is the paper's formula, which gives it the most negative value.
        coarse_is: ``"density"`` (a value per pixel, M_k = a_k · pixels) or ``"mass"`` (M_k = a_k).
        max_gain: no pixel gets more than this many times its cell's mean density; the rest is re-shared exactly.

    Returns:
        (..., H, W) in the library, dtype and device of ``coarse``; differentiable in ``coarse``, ``scores``, ``base``.

    Guarantees:
        D1: cell sums equal M_k to 1e-6 relative in float32, 1e-12 in float64 (``budget="cell"``). D2 with
        ``signed="flip"`` or non-negative maps, and no ``base``. D3 with the tensor potential, no ``base`` and no
        ``max_gain``. D4 with ``budget="cell"``. Total mass: every budget.

    >>> coarse = torch.tensor([[6.0, 0.0]])
    >>> scores = torch.tensor([[1.0, 0.0, 1.0, 1.0]])
    >>> redistribute(coarse, scores, temperature=1 / torch.tensor(2.0).log().item())
    tensor([[8., 4., 0., 0.]])
    """
    values, guide, extremes = _checked(coarse, scores, signed, coarse_is)
    budget = checked_budget(budget)
    if max_gain is not None:
        check.real_number("max_gain", max_gain, least=1)
    if base is not None:
        base = check.as_tensor("base", base, like=values)
        # a signed prior guides each sign of mass with its own part
        (check.finite if isinstance(budget, SoftPrior) else check.non_negative)("base", base)
    if potential is None:
        check.positive_number("temperature", temperature)
    result = redistributed(
        values, guide, cells=cells, temperature=temperature, potential=potential, budget=budget,
        base=base, signed=signed, coarse_is=coarse_is, max_gain=max_gain, extremes=extremes, like=scores,
    )  # fmt: skip
    return check.like_input(coarse)(result)  # type: ignore[no-any-return]


def redistributed(
    coarse: Tensor, scores: Tensor, *, cells: Array | Labels | None = None, temperature: float = 0.1,
    potential: Callable[[Any], Any] | None = None, budget: Budget = "cell", base: Tensor | None = None,
    signed: str = "flip", coarse_is: str = "density", max_gain: float | None = None,
    extremes: tuple[float, float] | None = None, like: Array | None = None,
) -> Tensor:  # fmt: skip
    """`redistribute`, of values that are known to be right; ``like``: what a potential of the caller's own takes."""
    low, high = extremes or map(float, torch.aminmax(coarse.detach()))
    mass, guide, parts, batch = _flat(coarse, scores, cells, coarse_is)
    most = torch.finfo(guide.dtype).max
    phi: float | Callable[[Tensor], Tensor]
    if potential is None:
        phi = min(1 / temperature, most)
    else:
        from usu.operator.potentials import checked_potential

        known = checked_potential(potential, like=scores if like is None else like)
        phi = known.log if known.slope is None else min(known.slope, most)
    if base is not None:
        try:
            base = base.to(guide).expand(*batch, *parts.lattice).reshape(guide.shape)
        except RuntimeError:
            wanted = f"the shape of `scores` ({' x '.join(map(str, (*batch, *parts.lattice)))})"
            raise ValueError(f"`base` must have {wanted}; got {check.shape(base)}.") from None
    mild = low >= 0 and high * exp(_MILD_RATE) < most and not callable(phi) and phi <= _MILD_RATE
    problem = _Problem(mass, guide, parts, phi, base, signed == "flip", max_gain, low < 0, mild)
    result = problem.solve("cell" if budget == "cell" else checked_budget(budget))
    return result.reshape(*batch, *parts.lattice).to(coarse.dtype)


def cell_budgets(
    coarse: ArrayT, scores: Array, *, cells: Array | Labels | None = None, budget: Budget = "cell",
    signed: Literal["flip", "literal"] = "flip", coarse_is: Literal["density", "mass"] = "density",
) -> ArrayT:  # fmt: skip
    """The mass each cell receives under a budget, (..., K): what the cell sums of `redistribute` equal (D1-G).

    >>> cell_budgets(torch.tensor([[3.0, 1.0]]), torch.ones(1, 4), budget=Hybrid(0.25))  # between 6, 2 and 4, 4
    tensor([5.5000, 2.5000])
    """
    values, guide, (low, _) = _checked(coarse, scores, signed, coarse_is)
    known = checked_budget(budget)
    if isinstance(known, SoftPrior):
        raise ValueError("`budget` must give every cell a budget; got SoftPrior, which knows no cells.")
    mass, guide, parts, batch = _flat(values, guide, cells, coarse_is)
    problem = _Problem(mass, guide, parts, 1.0, None, signed == "flip", None, low < 0, False)
    found = reduce(add, [mass for mass, _ in problem.budgeted(known)])
    return check.like_input(coarse)(found.reshape(*batch, -1))  # type: ignore[no-any-return]


def _checked(coarse: Array, scores: Array, signed: str, coarse_is: str) -> tuple[Tensor, Tensor, tuple[float, float]]:
    values = check.as_tensor("coarse", coarse)
    guide = check.as_tensor("scores", scores, like=values)
    check.choice("signed", signed, ("flip", "literal"))
    check.choice("coarse_is", coarse_is, ("density", "mass"))
    check.in_unit_interval("scores", guide)
    return values, guide, check.finite("coarse", values)


def _flat(
    coarse: Tensor, scores: Tensor, cells: Array | Labels | None, coarse_is: str
) -> tuple[Tensor, Tensor, Partition, tuple[int, ...]]:
    """Masses (B, K), scores (B, *lattice), the cells, and the leading dimensions of both together."""
    parts, batch = partition_of(coarse, scores, cells)
    lattice = parts.lattice
    try:
        # not torch's own, which imports a computer algebra system first
        lead = np.broadcast_shapes(batch, scores.shape[: scores.ndim - len(lattice)])
    except ValueError:
        wanted = f"broadcast with `coarse` ({check.shape(coarse)}) in front"
        raise ValueError(f"`scores` must {wanted}; got {check.shape(scores)}.") from None
    mass = coarse.double().flatten(len(batch)).expand(*lead, -1).reshape(prod(lead), -1)
    if coarse_is == "density":
        mass = mass * parts.sizes
    else:
        empty = (parts.sizes == 0).nonzero().flatten()
        if len(empty) and check.extremes(mass.index_select(1, empty)) != (0, 0):
            raise ValueError("`cells` must have a pixel for every mass in `coarse`; got masses without one.")
    dtype = torch.promote_types(torch.promote_types(coarse.dtype, scores.dtype), torch.float32)
    return mass, scores.to(dtype).expand(*lead, *lattice).reshape(-1, *lattice), parts, lead


@dataclass(frozen=True)
class _Problem:
    """What is shared out, flat: fields (B, *lattice), cell values (B, K)."""

    mass: Tensor
    scores: Tensor
    cells: Partition
    #: The slope of log φ, where that is a straight line; else log φ.
    potential: float | Callable[[Tensor], Tensor]
    base: Tensor | None
    flip: bool
    max_gain: float | None
    #: Whether there is negative mass.
    negative: bool
    #: Whether 1 will do as the maximum of every cell: a · exp(slope), the largest number on the way, does not overflow.
    mild: bool

    def solve(self, budget: _OfCells | SoftPrior) -> Tensor:
        """The pixel map, (B, *lattice)."""
        if isinstance(budget, SoftPrior):
            return self._over_whole_lattice(budget)
        if budget == "cell" and not callable(self.potential) and self.base is None:
            # a cell has one sign, and flipping a straight line is a change of its slope: no copy of the scores is made
            rate: float | Tensor = self.potential
            if self.negative and self.flip:
                below = self.mass.detach() < 0
                rate = torch.full_like(self.mass, self.potential).where(~below, -self.potential)
            if self.max_gain is None:
                return share(self.scores, self.mass, rate, self.cells, mild=self.mild)
            return self._shared(centred(self.scores, rate, self.cells), self.mass)
        return reduce(add, [self._shared(self._logits(down, self.base), mass) for mass, down in self.budgeted(budget)])

    def budgeted(self, budget: _OfCells) -> list[tuple[Tensor, bool]]:
        """As `_parts`, with the mass M̃_k that each cell receives."""
        if budget == "cell":
            return self._parts()
        hybrid = budget if isinstance(budget, Hybrid) else Hybrid(1.0, budget)
        found = []
        for mass, down in self._parts():
            led = by_importance(mass, self._attracting(down), self.cells, **vars(hybrid.soft))
            found.append(((1 - hybrid.gamma) * mass + hybrid.gamma * led, down))
        return found

    def _parts(self) -> list[tuple[Tensor, bool]]:
        """(mass, whether low scores attract it), one pair per sign that occurs."""
        if not self.negative:
            return [(self.mass, False)]
        up = self.mass.detach() >= 0  # zero is of one sign: as part of both it would have two derivatives
        return [(self.mass.where(up, 0), False), (self.mass.where(~up, 0), self.flip)]

    def _attracting(self, down: bool) -> Tensor:
        return 1 - self.scores if down else self.scores

    def _logits(self, down: bool, prior: Tensor | None, exponent: float = 1.0) -> Tensor:
        """log φ(Φ) + exponent · log b, with -inf for a pixel that gets nothing and inf for one that is full."""
        potential = self.potential
        field = potential(self._attracting(down)) if callable(potential) else -self.scores if down else self.scores
        if prior is None or exponent == 0:
            return field if callable(potential) else centred(field, potential, self.cells)
        # pixels without base get nothing as long as those with one can hold the cell's mass; else these are full
        count = self.cells.total(prior > 0)
        enough = count > 0 if self.max_gain is None else self.max_gain * count >= self.cells.sizes
        enough = self.cells.spread(enough)
        if callable(potential):
            return in_bands(lambda field, prior, enough: _led(field, prior, enough, exponent), field, prior, enough)

        def heard(field: Tensor, prior: Tensor, enough: Tensor) -> Tensor:
            return field.masked_fill((prior > 0) != enough, -torch.inf)

        top = self.cells.peak(in_bands(heard, field, prior, enough))
        return in_bands(
            lambda field, top, prior, enough: _led((field - top) * potential, prior, enough, exponent),
            field, self.cells.spread(finite_or_zero(top)), prior, enough,
        )  # fmt: skip

    def _over_whole_lattice(self, soft: SoftPrior) -> Tensor:
        lattice, device = self.cells.lattice, self.scores.device
        one = boxes([1] * len(lattice), lattice, device) if len(lattice) != 2 else Grid((1, 1), lattice, device)
        whole, spatial, found = replace(self, cells=one), tuple(range(1, self.scores.ndim)), []
        for sign, (mass, down) in zip((1, -1), self._parts(), strict=False):
            if self.base is not None:
                prior = (self.base if sign > 0 else -self.base).clamp(min=0)
            else:
                prior = self.cells.spread((mass / self.cells.sizes.clamp(min=1)).to(self.scores.dtype).abs())
            if soft.floor:
                prior = prior + soft.floor * prior.amax(spatial, keepdim=True)
            logits = whole._logits(down, prior, soft.exponent)
            found.append(whole._shared(logits, mass.sum(1, keepdim=True)))
        return reduce(add, found)

    def _shared(self, logits: Tensor, mass: Tensor) -> Tensor:
        """The softmax of the logits times the mass, no pixel above the ceiling."""
        if self.max_gain is None:
            return share(logits, mass, 1.0, self.cells)
        full = at_ceiling(logits.detach(), self.cells, self.max_gain)
        ceiling = self.max_gain / self.cells.sizes.clamp(min=1).double()
        left = (1 - ceiling * self.cells.total(full)).clamp(min=0)
        rest = share(logits.masked_fill(full, -torch.inf), mass * left, 1.0, self.cells)
        return self.cells.spread(mass * ceiling).to(rest.dtype).where(full, rest)


def _led(logits: Tensor, prior: Tensor, enough: Tensor, exponent: float) -> Tensor:
    """Logits + exponent · log b, with -inf for a pixel that gets nothing and inf for one that is full."""
    there = prior > 0
    found = logits + exponent * prior.where(there, 1).log()
    return found.masked_fill(~there & enough, -torch.inf).masked_fill(there & ~enough, torch.inf)
