"""The operator: a coarse map's mass, shared out inside cells by scores.

    Ã(x) = M_k · b(x) φ(Φ(x)) / Σ_{y in cell k} b(y) φ(Φ(y))          for x in cell k

M_k is the cell's budget, Φ the score field, φ the potential and b the base measure (1 in the paper). Everything the
paper proves follows from this one line: the shares of a cell add up to one (D1), φ increases (D2), log φ is a straight
line (D3), and the sum runs over the cell alone (D4).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from usu import _checks as check
from usu.operator.arguments import flat_field, log_potential, partition_of
from usu.operator.ceiling import at_ceiling
from usu.operator.cells import Labels, Partition, share
from usu.types import Array, ArrayT

#: log of a base measure of zero: low enough that such a pixel gets exactly nothing while any other pixel of its cell
#: can take mass, high enough that a cell made only of such pixels is still shared by score.
_LOG_NOTHING = -1e4


@dataclass(frozen=True)
class SoftIWMR:
    """Budgets by importance: mass flows to cells that hold a high score; only the total is kept.

    M̃_k = M_total · Λ(λ_k) c_k / Σ_j Λ(λ_j) c_j with Λ(λ) = exp(λ / temperature) and λ_k the cell's importance.

    - ``prior="area"`` (the paper): c_k = pixels of the cell. The coarse map enters only through its total: two maps
      of equal total give the same output.
    - ``prior="mass"``: c_k = M_k. Equal importances then give M̃_k = M_k.
    - ``importance="max"`` (the paper): λ_k = the highest score in the cell. ``"logmeanexp"``: its smooth form,
      temperature · log mean exp(Φ / temperature); with the area prior and one temperature for both it is a single
      softmax over the whole lattice, so no seams.

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
        if not 0 <= check.real_number("gamma", self.gamma) <= 1:
            raise ValueError(f"`gamma` must lie in [0, 1]; got {self.gamma}. 0 is cell, 1 is soft.")
        if not isinstance(self.soft, SoftIWMR):
            raise TypeError(f"`soft` must be a usu.SoftIWMR; got {type(self.soft).__name__}. Build one.")


@dataclass(frozen=True)
class SoftPrior:
    """One softmax over the whole lattice with the coarse map as a prior that has an exponent.

    Ã = M_total · p^exponent · φ(Φ) / Σ_lattice p^exponent · φ(Φ), with p = b + floor · max b.

    b is ``base`` if given (a smooth one leaves no seams), else the coarse map itself. An exponent of 0 is the scores
    alone; an exponent of 1, no floor and a high temperature give b back. ``floor`` keeps places alive where the
    coarse map is zero. Not in the paper.

    Guarantees: mass. Cells do not keep theirs.
    """

    exponent: float = 0.5
    floor: float = 0.03

    def __post_init__(self) -> None:
        for name in ("exponent", "floor"):
            if check.real_number(name, getattr(self, name)) < 0:
                raise ValueError(f"`{name}` must be at least 0; got {getattr(self, name)}. Use 0 to switch it off.")


Budget: TypeAlias = Literal["cell", "iwmr", "hybrid"] | SoftIWMR | Hybrid | SoftPrior


def checked_budget(budget: Budget) -> Literal["cell"] | SoftIWMR | Hybrid | SoftPrior:
    """What a budget's name stands for, or the budget itself."""
    if isinstance(budget, (SoftIWMR, Hybrid, SoftPrior)):
        return budget
    named: dict[str, Literal["cell"] | SoftIWMR | Hybrid] = {"cell": "cell", "iwmr": SoftIWMR(), "hybrid": Hybrid()}
    if not isinstance(budget, str):
        raise TypeError(
            f"`budget` must be 'cell', 'iwmr', 'hybrid', SoftIWMR, Hybrid or SoftPrior; got {type(budget).__name__}."
        )
    check.choice("budget", budget, tuple(named))
    return named[budget]


def checked_gain(max_gain: float | None) -> None:
    """A ceiling no lower than an even spread, or none."""
    if max_gain is not None:
        check.real_number("max_gain", max_gain, least=1)


def redistribute(
    coarse: ArrayT,
    scores: Array,
    *,
    cells: Array | None = None,
    temperature: float = 0.1,
    potential: Callable[[Any], Any] | None = None,
    budget: Budget = "cell",
    base: Array | None = None,
    signed: Literal["flip", "literal"] = "flip",
    coarse_is: Literal["density", "mass"] = "density",
    max_gain: float | None = None,
) -> ArrayT:
    """Share every cell's mass among its pixels by score: Ã(x) = M_k · φ(Φ(x)) / Σ_{y in cell} φ(Φ(y)).

    Args:
        coarse: (..., h, w) on a regular grid, or (..., K) with ``cells``: value k belongs to label k.
        scores: (..., H, W), or (..., *lattice) with ``cells``; in [0, 1]. Leading dimensions broadcast.
        cells: integer labels 0..K-1, one per pixel of a lattice of any dimension; unused labels are empty cells.
        temperature: of the tensor potential; low concentrates, high approaches nearest-neighbour.
        potential: `usu.potentials` or any positive, increasing callable on [0, 1]; replaces the tensor potential.
        budget: how much a cell receives: ``"cell"`` its own mass, ``"iwmr"`` = `SoftIWMR()`,
            ``"hybrid"`` = `Hybrid()`, `SoftPrior()`, or such an object with other settings.
        base: a non-negative prior measure b like ``scores``; shares become proportional to b · φ. Where it is zero
            throughout a cell, or full under ``max_gain``, the scores decide alone.
        signed: ``"flip"`` reverses the scores for negative mass, so that a high score always means more;
            ``"literal"`` is the paper's formula, which gives it the most negative value.
        coarse_is: ``"density"`` (a value per pixel, M_k = a_k · pixels) or ``"mass"`` (M_k = a_k).
        max_gain: no pixel gets more than this many times its cell's mean density; the rest is re-shared exactly.

    Returns:
        (..., H, W) in the library, dtype and device of ``coarse``; differentiable in ``coarse``, ``scores``, ``base``.

    Guarantees:
        D1: cell sums equal M_k to 1e-6 relative in float32, 1e-12 in float64 (``budget="cell"``; half precision is
        limited by its own rounding). D2 with ``signed="flip"`` or non-negative maps, and no ``base``. D3 with the
        tensor potential, no ``base`` and no ``max_gain``. D4 with ``budget="cell"``. Total mass: every budget.

    >>> coarse = torch.tensor([[6.0, 0.0]])
    >>> scores = torch.tensor([[1.0, 0.0, 1.0, 1.0]])
    >>> redistribute(coarse, scores, temperature=1 / torch.tensor(2.0).log().item())
    tensor([[8., 4., 0., 0.]])
    """
    problem = _Problem.checked(coarse, scores, cells, temperature, potential, budget, base, signed, coarse_is, max_gain)
    return check.like_input(coarse)(problem.solve())  # type: ignore[no-any-return]


def cell_budgets(
    coarse: ArrayT,
    scores: Array,
    *,
    cells: Array | None = None,
    budget: Budget = "cell",
    signed: Literal["flip", "literal"] = "flip",
    coarse_is: Literal["density", "mass"] = "density",
) -> ArrayT:
    """The mass each cell receives under a budget, (..., K): what the cell sums of `redistribute` equal (D1-G).

    >>> coarse, scores = torch.tensor([[3.0, 1.0]]), torch.tensor([[0.5, 0.5, 0.5, 0.5]])
    >>> cell_budgets(coarse, scores)
    tensor([6., 2.])
    >>> cell_budgets(coarse, scores, budget=SoftIWMR(prior="area"))  # equal importances: the map itself is ignored
    tensor([4., 4.])
    """
    problem = _Problem.checked(coarse, scores, cells, 0.1, None, budget, None, signed, coarse_is, None)
    if isinstance(problem.budget, SoftPrior):
        raise ValueError("`budget` must give every cell a budget; got SoftPrior, which knows no cells. Use SoftIWMR.")
    shares = sum(problem.budgets(mass, field) for mass, field in problem.parts())
    return check.like_input(coarse)(torch.as_tensor(shares).reshape(*problem.batch, -1))  # type: ignore[no-any-return]


@dataclass(frozen=True)
class _Problem:
    """Checked arguments, flat: fields (B, *lattice), cell values (B, K)."""

    mass: Tensor
    scores: Tensor
    cells: Partition
    log_potential: Callable[[Tensor], Tensor]
    slope: float | None
    budget: Literal["cell"] | SoftIWMR | Hybrid | SoftPrior
    base: Tensor | None
    flip: bool
    max_gain: float | None
    batch: tuple[int, ...]

    @classmethod
    def checked(
        cls,
        coarse: Array,
        scores: Array,
        cells: Array | None,
        temperature: float,
        potential: Callable[[Any], Any] | None,
        budget: Budget,
        base: Array | None,
        signed: str,
        coarse_is: str,
        max_gain: float | None,
    ) -> _Problem:
        values = check.as_tensor("coarse", coarse)
        field = check.as_tensor("scores", scores, like=values)
        check.choice("signed", signed, ("flip", "literal"))
        check.choice("coarse_is", coarse_is, ("density", "mass"))
        checked_gain(max_gain)
        chosen = checked_budget(budget)
        check.finite("coarse", values)
        check.in_unit_interval("scores", field)

        partition, batch = partition_of(values, field, cells)
        dtype = torch.promote_types(torch.promote_types(values.dtype, field.dtype), torch.float32)
        lead = torch.broadcast_shapes(batch, field.shape[: field.ndim - len(partition.lattice)])
        flat_cells = values.double().flatten(len(batch)).expand(*lead, -1).reshape(prod(lead), -1)
        sizes = partition.sizes
        if coarse_is == "mass":
            lost = flat_cells.detach()[:, sizes == 0]
            if lost.any():
                raise ValueError(
                    "`cells` must have a pixel for every mass in `coarse`; got masses without one. "
                    "Drop those entries, or set them to zero."
                )
            mass = flat_cells
        else:
            mass = flat_cells * sizes

        prior = None
        if base is not None:
            prior = check.as_tensor("base", base, like=values)
            if isinstance(chosen, SoftPrior):
                check.finite("base", prior)  # a signed prior guides each sign of mass with its own part
            else:
                check.non_negative("base", prior)
            prior = flat_field("base", prior, partition.lattice, lead, dtype)
        phi, slope = log_potential(potential, temperature, like=scores)
        return cls(
            mass=mass,
            scores=flat_field("scores", field, partition.lattice, lead, dtype),
            cells=partition,
            log_potential=phi,
            slope=slope,
            budget=chosen,
            base=prior,
            flip=signed == "flip",
            max_gain=max_gain,
            batch=tuple(lead),
        )

    def solve(self) -> Tensor:
        """The pixel map, (*batch, *lattice)."""
        if isinstance(self.budget, SoftPrior):
            result = self._over_whole_lattice(self.budget)
        elif self.budget == "cell" and self.slope is not None and self.base is None:
            # a cell has one sign, and flipping a straight line is a change of its slope: no copy of the scores is made
            down = self.flip & (self.mass.detach() < 0)
            slope = self.mass.new_tensor(self.slope)
            result = self._shared(
                self.scores, self.mass, slope.where(~down, -slope) if down.any() else slope, unit=True
            )
        else:
            parts = [
                self._shared(self._logits(field), self.budgets(mass, field), self.mass.new_ones(()))
                for mass, field in self.parts()
            ]
            result = parts[0] if len(parts) == 1 else parts[0] + parts[1]
        return result.reshape(*self.batch, *self.cells.lattice)

    def parts(self) -> list[tuple[Tensor, Tensor]]:
        """(mass, scores that attract it), one pair per sign that occurs."""
        if not (self.mass.detach() < 0).any():
            return [(self.mass, self.scores)]
        return [
            (self.mass.clamp(min=0), self.scores),
            (self.mass.clamp(max=0), 1 - self.scores if self.flip else self.scores),
        ]

    def budgets(self, mass: Tensor, field: Tensor) -> Tensor:
        """M̃_k, (B, K), for masses of one sign."""
        if self.budget == "cell":
            return mass
        hybrid = self.budget if isinstance(self.budget, Hybrid) else Hybrid(1.0, self.budget)  # type: ignore[arg-type]
        soft, sizes = hybrid.soft, self.cells.sizes
        # peak and log-mean-exp, in float64 from here on: K values
        top = self.cells.peak(field).double().where(sizes > 0, 0)
        importance = top
        if soft.importance == "logmeanexp":
            above = (field - self.cells.spread(top).to(field.dtype)) / soft.temperature
            mean = self.cells.total(above.exp()) / sizes.clamp(min=1)
            importance = top + soft.temperature * mean.where(sizes > 0, 1).log()
        weight = sizes.double().expand_as(mass) if soft.prior == "area" else mass
        # the largest importance that has any weight, so that a cold Λ cannot underflow everywhere at once
        alive = importance.detach().where(weight.detach() != 0, -torch.inf).amax(1, keepdim=True)
        weight = weight * ((importance - alive) / soft.temperature).clamp(max=0).exp()
        norm = weight.sum(1, keepdim=True)
        redistributed = mass.sum(1, keepdim=True) * weight / norm.where(norm != 0, 1)
        return (1 - hybrid.gamma) * mass + hybrid.gamma * redistributed

    def _logits(self, field: Tensor, base: Tensor | None = None, exponent: float = 1.0) -> Tensor:
        """log φ(Φ) + exponent · log b."""
        base = self.base if base is None else base
        logits = field * self.slope if self.slope is not None else self.log_potential(field)
        if base is None or exponent == 0:
            return logits
        # log(where(...)): a zero base must not send an infinite slope backwards
        log_base = base.where(base > 0, 1).log().where(base > 0, _LOG_NOTHING)
        return logits + exponent * log_base.to(logits.dtype)

    def _over_whole_lattice(self, soft: SoftPrior) -> Tensor:
        everything = Labels(torch.zeros(self.cells.lattice, dtype=torch.int64, device=self.scores.device), 1)
        whole = replace(self, cells=everything)
        result = torch.zeros_like(self.scores)
        signs = (1, -1) if (self.mass.detach() < 0).any() else (1,)
        spatial = tuple(range(1, self.scores.ndim))
        for sign, (mass, field) in zip(signs, self.parts(), strict=True):
            prior = (
                self.base if self.base is not None else self.cells.spread(mass / self.cells.sizes.clamp(min=1)).abs()
            )
            prior = (prior * (sign if self.base is not None else 1)).clamp(min=0)
            prior = prior + soft.floor * prior.amax(spatial, keepdim=True)
            logits = self._logits(field, prior.to(field.dtype), soft.exponent)
            result = result + whole._shared(logits, mass.sum(1, keepdim=True), mass.new_ones(()))
        return result

    def _shared(self, field: Tensor, mass: Tensor, rate: Tensor, *, unit: bool = False) -> Tensor:
        if self.max_gain is None:
            return share(field, mass, rate, self.cells, unit=unit)
        logits = field * self.cells.spread(rate.expand_as(mass).to(field.dtype))
        full = at_ceiling(logits.detach(), self.cells, self.max_gain)
        ceiling = self.max_gain / self.cells.sizes.clamp(min=1).double()
        left = (1 - ceiling * self.cells.total(full)).clamp(min=0)
        rest = share(logits.masked_fill(full, 2 * _LOG_NOTHING), mass * left, mass.new_ones(()), self.cells)
        return self.cells.spread(mass * ceiling).to(rest.dtype).where(full, rest)
