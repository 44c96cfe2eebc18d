"""The operator: a coarse map's mass, shared out inside cells by scores.

    Ã(x) = M_k · b(x) φ(Φ(x)) / Σ_{y in cell k} b(y) φ(Φ(y))          for x in cell k

M_k is the cell's budget, Φ the score field, φ the potential and b the base measure (1 in the paper). Everything the
paper proves follows from this one line: the shares of a cell add up to one (D1), φ increases (D2), log φ is a straight
line (D3), and the sum runs over the cell alone (D4).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import exp, prod
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad

from usu import _checks as check
from usu.operator.budgets import Budget, Hybrid, SoftIWMR, SoftPrior, at_ceiling, budgeted, checked_budget
from usu.operator.cells import (
    CACHED_PIXELS,
    Grid,
    Labels,
    Partition,
    centred,
    finite_or_zero,
    partition_of,
    plain_share,
)
from usu.types import Array, ArrayT

#: exp(-64) is far from the smallest number of single precision, so up to here 1 will do as everybody's maximum.
_MILD_RATE = 64.0


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
        cells: integer labels 0..K-1, one per pixel of a lattice of any dimension; unused labels are empty cells. For a
            grid over a signal or a volume, `usu.operator.cells.boxes`.
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
    problem = _Problem.checked(
        coarse, scores, cells, budget, signed, coarse_is, temperature=temperature, potential=potential, base=base,
        max_gain=max_gain,
    )  # fmt: skip
    return check.like_input(coarse)(problem.solve())  # type: ignore[no-any-return]


def cell_budgets(
    coarse: ArrayT, scores: Array, *, cells: Array | Labels | None = None, budget: Budget = "cell",
    signed: Literal["flip", "literal"] = "flip", coarse_is: Literal["density", "mass"] = "density",
) -> ArrayT:  # fmt: skip
    """The mass each cell receives under a budget, (..., K): what the cell sums of `redistribute` equal (D1-G).

    >>> coarse, scores = torch.tensor([[3.0, 1.0]]), torch.tensor([[0.5, 0.5, 0.5, 0.5]])
    >>> cell_budgets(coarse, scores)
    tensor([6., 2.])
    >>> cell_budgets(coarse, scores, budget=SoftIWMR(prior="area"))  # equal importances: the map itself is ignored
    tensor([4., 4.])
    """
    problem = _Problem.checked(coarse, scores, cells, budget, signed, coarse_is)
    return check.like_input(coarse)(problem.budgets())  # type: ignore[no-any-return]


@dataclass(frozen=True)
class _Problem:
    """Checked arguments, flat: fields (B, *lattice), cell values (B, K)."""

    mass: Tensor
    scores: Tensor
    cells: Partition
    #: The slope of log φ, where that is a straight line; else log φ.
    potential: float | Callable[[Tensor], Tensor]
    budget: Literal["cell"] | SoftIWMR | Hybrid | SoftPrior
    base: Tensor | None
    flip: bool
    max_gain: float | None
    batch: tuple[int, ...]
    #: Whether there is negative mass.
    negative: bool
    #: Whether 1 will do as the maximum of every cell: a · exp(slope), the largest number on the way, does not overflow.
    mild: bool

    @classmethod
    def checked(
        cls, coarse: Array, scores: Array, cells: Array | Labels | None, budget: Budget, signed: str, coarse_is: str, *,
        temperature: float = 1.0, potential: Callable[[Any], Any] | None = None, base: Array | None = None,
        max_gain: float | None = None,
    ) -> _Problem:  # fmt: skip
        values = check.as_tensor("coarse", coarse)
        field = check.as_tensor("scores", scores, like=values)
        check.choice("signed", signed, ("flip", "literal"))
        check.choice("coarse_is", coarse_is, ("density", "mass"))
        if max_gain is not None:
            check.real_number("max_gain", max_gain, least=1)
        found = check.finite("coarse", values)
        check.in_unit_interval("scores", field)
        budget = checked_budget(budget)
        if base is not None:
            base = check.as_tensor("base", base, like=values)
            # a signed prior guides each sign of mass with its own part
            (check.finite if isinstance(budget, SoftPrior) else check.non_negative)("base", base)
        dtype = torch.promote_types(torch.promote_types(values.dtype, field.dtype), torch.float32)
        phi = _log_potential(potential, temperature, scores, dtype)
        small = found.low >= 0 and found.high * exp(_MILD_RATE) < torch.finfo(dtype).max

        partition, batch = partition_of(values, field, cells)
        lattice = partition.lattice
        try:
            # not torch's own, which imports a computer algebra system first
            lead = np.broadcast_shapes(batch, field.shape[: field.ndim - len(lattice)])
        except ValueError:
            wanted = f"broadcast with `coarse` ({check.shape(values)}) in front"
            raise ValueError(f"`scores` must {wanted}; got {check.shape(field)}.") from None
        field = field.to(dtype).expand(*lead, *lattice)
        if base is not None:
            try:
                base = base.to(dtype).expand(field.shape).reshape(-1, *lattice)
            except RuntimeError:
                wanted = f"the shape of `scores` ({check.shape(field)})"
                raise ValueError(f"`base` must have {wanted}; got {check.shape(base)}.") from None
        mass = values.double().flatten(len(batch)).expand(*lead, -1).reshape(prod(lead), -1)
        if coarse_is == "density":
            mass = mass * partition.sizes
        else:
            empty = (partition.sizes == 0).nonzero().flatten()
            if len(empty) and check.extremes(mass.index_select(1, empty)) != (0, 0):
                raise ValueError("`cells` must have a pixel for every mass in `coarse`; got masses without one.")
        return cls(
            mass, field.reshape(-1, *lattice), partition, phi, budget, base, signed == "flip", max_gain, lead,
            found.low < 0, small and not callable(phi) and phi <= _MILD_RATE,
        )  # fmt: skip

    def solve(self) -> Tensor:
        """The pixel map, (*batch, *lattice)."""
        if isinstance(self.budget, SoftPrior):
            result = self._over_whole_lattice(self.budget)
        elif self.budget == "cell" and not callable(self.potential) and self.base is None:
            # a cell has one sign, and flipping a straight line is a change of its slope: no copy of the scores is made
            rate: float | Tensor = self.potential
            if self.negative and self.flip:
                below = self.mass.detach() < 0
                rate = torch.full_like(self.mass, self.potential).where(~below, -self.potential)
            if self.max_gain is None:
                result = share(self.scores, self.mass, rate, self.cells, mild=self.mild)
            else:
                result = self._shared(centred(self.scores, rate, self.cells), self.mass)
        else:
            result = torch.zeros_like(self.scores)
            for mass, down in self._budgeted(self.budget):
                result = result + self._shared(self._logits(down, self.base), mass)
        return result.reshape(*self.batch, *self.cells.lattice)

    def budgets(self) -> Tensor:
        """M̃_k, (*batch, K)."""
        if isinstance(self.budget, SoftPrior):
            raise ValueError("`budget` must give every cell a budget; got SoftPrior, which knows no cells.")
        return torch.stack([mass for mass, _ in self._budgeted(self.budget)]).sum(0).reshape(*self.batch, -1)

    def _budgeted(self, budget: Literal["cell"] | SoftIWMR | Hybrid) -> list[tuple[Tensor, bool]]:
        return [(budgeted(mass, self._attracting(down), self.cells, budget), down) for mass, down in self._parts()]

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
        if prior is None or exponent == 0:
            if callable(potential):
                return potential(self._attracting(down))
            return centred(-self.scores if down else self.scores, potential, self.cells)
        # pixels without base get nothing as long as those with one can hold the cell's mass; else these are full
        count = self.cells.total(prior > 0)
        enough = count > 0 if self.max_gain is None else self.max_gain * count >= self.cells.sizes
        enough = self.cells.spread(enough)
        if callable(potential):
            logits = potential(self._attracting(down))
            return _in_bands(lambda some, prior, enough: _led(some, prior, enough, exponent), logits, prior, enough)
        field = -self.scores if down else self.scores

        def heard(field: Tensor, prior: Tensor, enough: Tensor) -> Tensor:
            return field.masked_fill((prior > 0) != enough, -torch.inf)

        top = self.cells.peak(_in_bands(heard, field, prior, enough))
        return _in_bands(
            lambda field, top, prior, enough: _led((field - top) * potential, prior, enough, exponent),
            field, self.cells.spread(finite_or_zero(top)), prior, enough,
        )  # fmt: skip

    def _over_whole_lattice(self, soft: SoftPrior) -> Tensor:
        whole = replace(self, cells=_one_cell(self.cells.lattice, self.scores.device))
        spatial, found = tuple(range(1, self.scores.ndim)), []
        for sign, (mass, down) in zip((1, -1), self._parts(), strict=False):
            if self.base is not None:
                prior = (self.base if sign > 0 else -self.base).clamp(min=0)
            else:
                prior = self.cells.spread((mass / self.cells.sizes.clamp(min=1)).to(self.scores.dtype).abs())
            if soft.floor:
                prior = prior + soft.floor * prior.amax(spatial, keepdim=True)
            logits = whole._logits(down, prior, soft.exponent)
            found.append(whole._shared(logits, mass.sum(1, keepdim=True)))
        return found[0] if len(found) == 1 else found[0] + found[1]

    def _shared(self, logits: Tensor, mass: Tensor) -> Tensor:
        """The softmax of the logits times the mass, no pixel above the ceiling."""
        if self.max_gain is None:
            return share(logits, mass, 1.0, self.cells)
        full = at_ceiling(logits.detach(), self.cells, self.max_gain)
        ceiling = self.max_gain / self.cells.sizes.clamp(min=1).double()
        left = (1 - ceiling * self.cells.total(full)).clamp(min=0)
        rest = share(logits.masked_fill(full, -torch.inf), mass * left, 1.0, self.cells)
        return self.cells.spread(mass * ceiling).to(rest.dtype).where(full, rest)


def _one_cell(lattice: tuple[int, ...], device: torch.device) -> Partition:
    """All of a lattice as one cell; of a picture without a label for each pixel.

    >>> _one_cell((2, 3), torch.device("cpu")).sizes.tolist()
    [6]
    """
    if len(lattice) == 2:
        return Grid((1, 1), (lattice[0], lattice[1]), device)
    return Labels(torch.zeros(lattice, dtype=torch.int64, device=device), 1)


def _in_bands(work: Callable[..., Tensor], *fields: Tensor) -> Tensor:
    """What ``work`` makes of each pixel of fields (B, *lattice), a few rows at a time, so that they stay in the cache.

    All at once where derivatives are asked for, which remember what was on the way.
    """
    rows = fields[0].shape[1]
    step = max(1, CACHED_PIXELS * rows // max(1, fields[0].numel()))
    if step >= rows or any(_transformed(field) or _tracked(field) for field in fields):
        return work(*fields)
    out = torch.empty_like(fields[0], memory_format=torch.contiguous_format)
    for start in range(0, rows, step):
        some = slice(start, start + step)
        out[:, some] = work(*(field[:, some] for field in fields))
    return out


def _led(logits: Tensor, prior: Tensor, enough: Tensor, exponent: float) -> Tensor:
    """Logits + exponent · log b, with -inf for a pixel that gets nothing and inf for one that is full."""
    there = prior > 0
    found = logits + exponent * prior.where(there, 1).log()
    return found.masked_fill(~there & enough, -torch.inf).masked_fill(there & ~enough, torch.inf)


def _log_potential(
    given: Callable[[Any], Any] | None, temperature: float, like: Array, dtype: torch.dtype
) -> float | Callable[[Tensor], Tensor]:
    """The slope of log φ, no more than ``dtype`` can hold, where that is a straight line; else log φ."""
    most = torch.finfo(dtype).max
    if given is None:
        return min(1 / check.positive_number("temperature", temperature), most)
    from usu.operator.potentials import checked_potential

    found = checked_potential(given, like=like)
    return found.log if found.slope is None else min(found.slope, most)


class _Share(torch.autograd.Function):
    """`Partition.share` with its gradient: with w the shares, dÃ = w dM + M w rate (dF - Σ w dF).

    It is made of differentiable steps, one of them the function itself, so there are gradients of any order.
    """

    @staticmethod
    def forward(ctx: Any, field: Tensor, mass: Tensor, rate: float | Tensor, cells: Partition, mild: bool) -> Tensor:
        ctx.save_for_backward(field, mass)
        ctx.rest = rate, cells, mild
        return cells.share(field, mass, rate, mild=mild)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        field, mass = ctx.saved_tensors
        rate, cells, mild = ctx.rest
        weight = share(field, torch.ones_like(mass), rate, cells, mild=mild)
        pulled = cells.total(gradient * weight)
        slope = cells.spread(rate.to(field.dtype)) if isinstance(rate, Tensor) else rate
        to_field = weight * (gradient - cells.spread(pulled.to(weight.dtype))) * slope
        return to_field * cells.spread(mass.to(field.dtype)), pulled, None, None, None


def share(field: Tensor, mass: Tensor, rate: float | Tensor, cells: Partition, *, mild: bool = False) -> Tensor:
    """`Partition.share`, with the derivatives that are asked for.

    `torch.func` and forward mode nest to any depth, which a Function of its own does not bear: they get plain steps.
    """
    if any(_transformed(tensor) for tensor in (field, mass)):
        return plain_share(field, mass, rate, cells)
    if _tracked(field) or _tracked(mass):
        return _Share.apply(field, mass, rate, cells, mild)  # type: ignore[no-any-return, no-untyped-call]
    return cells.share(field.detach(), mass.detach(), rate, mild=mild)


def _tracked(tensor: Tensor) -> bool:
    return torch.is_grad_enabled() and tensor.requires_grad


def _transformed(tensor: Tensor) -> bool:
    """Whether `torch.func` or forward-mode differentiation is at work on it."""
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    return wrapped or forward_ad.unpack_dual(tensor).tangent is not None
