"""Random groups and the posterior of their segments' effects: as many groups as asked for, or as certainty takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from usu.forward import Engine, Progress
from usu.forward.fills import Fill
from usu.score.posterior import Posterior, fit, kernels, repeat, segment_sums
from usu.score.segmented import segmented
from usu.types import Array, NDArray

#: Groups that are looked at first, and between two looks, where certainty decides how many there will be.
FIRST, STEP = 90, 60


@dataclass(frozen=True, eq=False)
class Effects:
    """What groups of segments say of each of them: a normal distribution over effects, and how it came about."""

    posterior: Posterior
    #: (n, P') booleans: which of the segments that were varied each group shows.
    groups: Tensor
    #: (k, P', P') and (T, P') or None: what was expected of the segments that were varied.
    covariances: Tensor
    evidence: Tensor | None
    #: Labels of the segments that were varied, and (P,) values of all: NaN where a segment was left out, else 0.
    varied: Tensor
    start: Tensor
    #: Whether somebody said that it is enough before all groups were evaluated.
    stopped: bool = False

    @property
    def mean(self) -> Tensor:
        """(T, P): NaN for a segment that was left out."""
        return self._of_all(self.posterior.mean)

    @property
    def stderr(self) -> Tensor:
        """(T, P): the standard deviation of each effect."""
        return self._of_all(self.posterior.stderr)

    def draws(self, count: int, seed: int = 0) -> Tensor:
        """(count, T, P): effects that these groups allow."""
        return self._of_all(self.posterior.draw(count, torch.Generator().manual_seed(seed)))

    def repeats(self, count: int, seed: int = 0, *, times: int = 1) -> Tensor:
        """(count, T, P): what other runs, with ``times`` as many groups, would report, as far as these tell."""
        dice, groups = torch.Generator().manual_seed(seed), self.groups[: len(self.groups) // 2 * 2].repeat(times, 1)
        found = repeat(self.posterior, groups, count, dice, covariances=self.covariances, evidence=self.evidence)
        return self._of_all(found)

    def _of_all(self, values: Tensor) -> Tensor:
        whole = self.start.repeat(*values.shape[:-1], 1)
        whole[..., self.varied] = values
        return whole


def effects_of_groups(
    engine: Engine,
    image: Array,
    segments: NDArray,
    picture: NDArray,
    *,
    evaluations: int,
    fill: Fill = "blur",
    which: Array | None = None,
    evidence: Tensor | None = None,
    enough: Callable[[Effects, NDArray], bool] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Effects:
    """y(z) - y(1 - z) = Σ_p ± β_p + noise, over groups z and their complements; β has a prior (`fit`).

    The groups are `orthogonal_groups`; the first are the same however many there are. The engine's target is known;
    what is not named here is as in `usu.score.sampled`.

    Args:
        picture: (H, W, 3) in [0, 1]: segments that are near and of one colour are expected to behave alike.
        evaluations: at least 2: passes this call makes, exactly; at most, where ``enough`` can end it.
        evidence: (T, H, W) or (H, W): where effects are expected, up to a factor that the groups decide.
        enough: asked after 90 groups and every 60 more, with the effects so far and the segments; True ends it.
        progress: called with the number of pictures done and in all; if it returns True, what is known is the answer.
    """
    parts = segmented(engine, image, segments, fill, which)
    varied = parts.asked
    groups = orthogonal_groups(evaluations, len(varied), torch.Generator().manual_seed(seed))
    labels = parts.segments.cpu()
    prior = kernels(labels, torch.as_tensor(picture))[:, varied][:, :, varied]
    hoped = None if evidence is None else segment_sums(evidence.cpu(), labels)[..., varied].reshape(-1, len(varied))
    values: list[Tensor] = []
    begin, stopped = 0, False

    def tell(done: int, _: int) -> None:
        nonlocal stopped
        stopped = bool(progress is not None and progress(begin + done, evaluations)) or stopped

    while True:
        end = min(evaluations, begin + (STEP if enough is None or begin else FIRST))
        values.append(parts.values_of_groups(engine, groups[begin:end], tell))
        begin = end
        last = stopped or end == evaluations
        if enough is None and not last:
            continue
        if hoped is not None and len(hoped) not in (1, values[0].shape[1]):  # several maps, one target
            hoped = hoped.mean(0, keepdim=True)
        posterior = fit(groups[:end], torch.cat(values), covariances=prior, evidence=hoped)
        found = Effects(
            posterior, groups[:end], prior, hoped, varied, parts.start, stopped=stopped and end < evaluations
        )
        if last or (enough is not None and enough(found, segments)):
            return found


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
