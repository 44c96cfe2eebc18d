"""What every way of scoring takes and returns, and which segments its groups show.

Groups come in pairs, each followed by its complement.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from usu import _checks as check
from usu.forward import Engine, Progress
from usu.forward.fills import Fill, apply, filled, keep_shown
from usu.types import Array


@dataclass(frozen=True)
class Scores:
    """Raw effects (T, P) in float64 on the CPU: one row per target, one column per segment; higher = more important.

    NaN marks a segment that was left out with ``which``. A label without pixels has effect 0.
    """

    values: Tensor
    #: Standard errors of ``values``, where the way of scoring has any.
    stderr: Tensor | None
    #: Pictures passed through the model, reference passes included.
    evaluations: int
    #: What was explained, where the passes themselves had to tell.
    target: tuple[int, ...] | Callable[[Any], Tensor] | None = None


@dataclass(frozen=True, eq=False)
class Segmented:
    """A picture, its fill and its segments, ready to be shown in parts."""

    image: Tensor
    filled: Tensor
    segments: Tensor
    #: P: labels are 0 to P - 1.
    count: int
    #: Labels of the segments to evaluate: asked for and not empty.
    asked: Tensor
    #: (P,) values to start from: NaN for a segment that was not asked for, else 0.
    start: Tensor

    def values(
        self, engine: Engine, count: int, shown: Callable[[slice], Tensor], progress: Progress | None = None
    ) -> Tensor:
        """Values (count, T) of pictures in which only the segments ``shown(rows)``, (n, P) booleans, survive."""

        def build(rows: slice) -> Tensor:
            return apply(self.image, self.filled, keep_shown(shown(rows).to(self.segments.device), self.segments))

        return engine.evaluate(self.image, count, build, progress=progress)

    def values_of_groups(self, engine: Engine, groups: Tensor, progress: Progress | None = None) -> Tensor:
        """The same for ``groups`` (n, P') of the segments asked for; all others are shown."""

        def shown(rows: slice) -> Tensor:
            every = torch.ones(rows.stop - rows.start, self.count, dtype=torch.bool)
            every[:, self.asked] = groups[rows]
            return every

        return self.values(engine, len(groups), shown, progress)


def segmented(engine: Engine, image: Array, segments: Array, fill: Fill, which: Array | None = None) -> Segmented:
    """Everything checked, on the model's device; ``which``: labels or booleans of the segments to evaluate, or all."""
    placed = engine.place(image)
    labels = check.labels("segments", segments, size=placed.shape[-2:])
    present = torch.bincount(labels.flatten()).cpu() > 0
    wanted = torch.ones_like(present)
    if which is not None:
        given = torch.as_tensor(which).cpu().flatten()
        if given.dtype == torch.bool and len(given) == len(present):
            wanted = given
        else:
            wanted[:] = False
            if given.numel():
                chosen = check.labels("which", given)
                check.whole_number("which", int(chosen.max()), most=len(present) - 1)
                wanted[chosen] = True
    start = torch.zeros(len(present), dtype=torch.float64).masked_fill(~wanted, torch.nan)
    asked = (wanted & present).nonzero().flatten()
    return Segmented(placed, filled(placed, fill), labels.to(placed.device), len(present), asked, start)


def antithetic_groups(count: int, segments: int, probability: float, generator: torch.Generator) -> Tensor:
    """(count, segments) booleans: u < p, and 1 - u < p for the same u; at 1/2 the second is the complement."""
    u = torch.rand((count + 1) // 2, segments, generator=generator, dtype=torch.float64, device=generator.device).cpu()
    return torch.stack([u < probability, u > 1 - probability], 1).flatten(0, 1)[:count]


def orthogonal_groups(count: int, segments: int, generator: torch.Generator) -> Tensor:
    """(count, segments) booleans: rows of Hadamard matrices, so that no two segments are confounded.

    Each block takes ``segments`` columns of a Hadamard matrix in random order, with random signs, and its rows in
    random order. Over a block every effect is estimated with the least variance so many groups can give; any first part
    of it is nearly as good, so a longer run begins with the groups of a shorter one.

    >>> groups = orthogonal_groups(8, 4, torch.Generator().manual_seed(0))
    >>> signs = 2.0 * groups[::2] - 1
    >>> bool((groups[1::2] == ~groups[::2]).all()), (signs.T @ signs).tolist() == (4 * torch.eye(4)).tolist()
    (True, True)
    """
    matrix = hadamard(max(segments, 1))
    rows: list[Tensor] = []
    while sum(map(len, rows)) < (count + 1) // 2:
        columns = torch.randperm(len(matrix), generator=generator, device=generator.device).cpu()[:segments]
        signs = 2 * torch.randint(2, (segments,), generator=generator, device=generator.device).cpu() - 1
        order = torch.randperm(len(matrix), generator=generator, device=generator.device).cpu()
        rows.append((matrix[:, columns] * signs)[order] > 0)
    first = torch.cat(rows)[: (count + 1) // 2]
    return torch.stack([first, ~first], 1).flatten(0, 1)[:count]


def shapley_groups(count: int, segments: int, generator: torch.Generator) -> Tensor:
    """(count, segments) booleans: sizes k with probability ∝ 1 / (k (P - k)), members at random, complements next.

    With the sizes drawn from the kernel, every group has the same weight in the fit.
    """
    pairs = (count + 1) // 2
    if segments < 2:
        return torch.ones(count, segments, dtype=torch.bool)
    sizes = torch.arange(1, segments, dtype=torch.float64, device=generator.device)
    size = 1 + torch.multinomial(1 / (sizes * (segments - sizes)), pairs, replacement=True, generator=generator)
    order = torch.rand(pairs, segments, generator=generator, device=generator.device).argsort(1).argsort(1)
    group = (order < size[:, None]).cpu()
    return torch.stack([group, ~group], 1).flatten(0, 1)[:count]


def hadamard(least: int) -> Tensor:
    """A Hadamard matrix of the smallest order n >= ``least`` that doubling or Paley's construction gives.

    n is 2^k or 2^k (q + 1) with q a prime, q = 3 modulo 4: within a few of any number.

    >>> matrix = hadamard(11)
    >>> matrix.shape[0], bool((matrix @ matrix.T == 12 * torch.eye(12, dtype=torch.int64)).all())
    (12, True)
    """
    order = least
    while _core(order) is None:
        order += 1
    core = _core(order) or 1
    matrix = torch.ones(1, 1, dtype=torch.int64) if core == 1 else _paley(core - 1)
    while len(matrix) < order:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return matrix


def _core(order: int) -> int | None:
    """1 or q + 1, from which doubling leads to the order."""
    while order > 1:
        q = order - 1
        if q % 4 == 3 and all(q % d for d in range(2, int(q**0.5) + 1)):
            return order
        if order % 2:
            return None
        order //= 2
    return 1


def _paley(q: int) -> Tensor:
    """Of order q + 1: quadratic residues modulo q."""
    squares = {i * i % q for i in range(1, q)}
    character = torch.tensor([0] + [1 if x in squares else -1 for x in range(1, q)])
    place = torch.arange(q)
    matrix = torch.eye(q + 1, dtype=torch.int64)
    matrix[0, 1:] += 1
    matrix[1:, 0] -= 1
    matrix[1:, 1:] += character[(place[:, None] - place) % q]
    return matrix
