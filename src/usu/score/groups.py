"""Groups of segments are shown to a model, and a posterior says what each segment does.

`segmented` is what every way of scoring begins with, `Scores` what it returns.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from usu import _checks as check
from usu.errors import UsuError
from usu.forward import Engine, Progress
from usu.forward.fills import Drop, Fill, filled
from usu.score.posterior import Posterior, centres, fit, kernels, repeat, segment_sums
from usu.types import Array, NDArray

#: Groups between two looks, where certainty decides how many there will be.
STEP = 60
#: From so many segments on, several threads are worth it for what follows the passes.
_MANY = 500
#: Effects that are drawn to see whose place is undecided.
_DRAWS = 100


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
    #: Whether the model is told by one more channel what is hidden.
    drops: bool

    def values(
        self, engine: Engine, count: int, shown: Callable[[slice], Tensor], progress: Progress | None = None
    ) -> Tensor:
        """Values (count, T) of pictures in which only the segments ``shown(rows)``, (n, P) booleans, survive."""

        def build(rows: slice) -> Tensor:
            keep = shown(rows).to(self.segments.device).index_select(1, self.segments.flatten())
            keep = keep.reshape(-1, 1, *self.segments.shape).to(self.image)
            batch = torch.lerp(self.filled, self.image, keep)  # `fills.apply` of what was checked already
            return torch.cat([batch, keep], 1) if self.drops else batch

        return engine.evaluate(self.image, count, build, progress=progress)

    def values_of_groups(self, engine: Engine, groups: Tensor, progress: Progress | None = None) -> Tensor:
        """The same for ``groups`` (n, P') of the segments asked for; all others are shown."""
        every = torch.ones(len(groups), self.count, dtype=torch.bool)
        every[:, self.asked] = groups
        return self.values(engine, len(groups), lambda rows: every[rows], progress)


def segmented(engine: Engine, image: Array, segments: Array, fill: Fill, which: Array | None = None) -> Segmented:
    """Everything checked, on the model's device; ``which``: labels or booleans of the segments to evaluate, or all."""
    placed, drops = engine.place(image), isinstance(fill, Drop)
    if isinstance(fill, Drop):
        from usu.forward.tokens import TokenDrop

        if not isinstance(engine.model, TokenDrop):
            raise UsuError("Drop() needs the model that usu.sources.token_drop(model, image) makes.")
        fill = fill.rest
    labels = check.labels("segments", segments, size=placed.shape[1:])
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
    return Segmented(placed, filled(placed, fill), labels.to(placed.device), len(present), asked, start, drops)


@dataclass(frozen=True, eq=False)
class Effects:
    """What groups of segments say of each of them: a normal distribution over effects, and how it came about."""

    posterior: Posterior
    #: (n, P') booleans: which of the segments that were varied each group shows; and (n, T), what the model said.
    groups: Tensor
    values: Tensor
    #: (k, P', P') and (T, P') or None: what was expected of the segments that were varied.
    covariances: Tensor
    evidence: Tensor | None
    #: Labels of the segments that were varied, and (P,) values of all: NaN where a segment was left out, else 0.
    varied: Tensor
    start: Tensor
    #: (H, W) labels, and (levels, P): which segment of each partition so far every one of them lies in.
    segments: Tensor
    lineage: Tensor
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
        found = repeat(
            self.posterior, self.groups[: len(self.groups) // 2 * 2], count, torch.Generator().manual_seed(seed),
            covariances=self.covariances, evidence=self.evidence, times=times,
        )  # fmt: skip
        return self._of_all(found)

    def undecided(self, share: float = 0.05) -> Tensor:
        """(P,): min(q, 1 - q), q the probability that a segment is among the highest; the largest over the targets.

        It is among them if less than ``share`` of all pixels lie in segments of a higher effect per pixel.
        """
        areas = torch.bincount(self.segments.flatten(), minlength=len(self.start)).double()
        effects = self.draws(_DRAWS)
        order = (effects / areas).nan_to_num(nan=-torch.inf).argsort(-1, descending=True)
        above = areas[order].cumsum(-1) - areas[order]
        part = torch.zeros_like(effects).scatter_(-1, order, (above < share * areas.sum()).double()).mean(0)
        return torch.minimum(part, 1 - part).amax(0)

    def on(self, segments: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Lineage (levels, P'), groups (n, P') and values (n, T) on a finer partition (H, W).

        All segments must have been varied: what is cut from one was shown where it was. A last group without its
        complement is left out.
        """
        parent = torch.zeros(int(segments.max()) + 1, dtype=torch.long)
        parent[segments.flatten()] = self.segments.flatten()
        even = len(self.groups) // 2 * 2
        lineage = torch.cat([self.lineage[:, parent], torch.arange(len(parent))[None]])
        return lineage, self.groups[:even, parent], self.values[:even]

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
    fill: Fill,
    which: Array,
    evidence: Tensor | None,
    enough: Callable[[Effects, NDArray], bool] | None,
    seed: int,
    progress: Progress | None,
    before: Effects | None = None,
) -> Effects:
    """y(z) - y(1 - z) = Σ_p ± β_p + noise, over groups z and their complements; β has a prior (`posterior.fit`).

    The groups are `orthogonal_groups`; the first are the same however many there are. The engine's target is known;
    what is not named here is as in `usu.score.sampled`.

    Args:
        picture: (H, W, 3) in [0, 1]: segments that are near and of one colour are expected to behave alike.
        evaluations: at least 2: passes this call makes, exactly; at most, where ``enough`` can end it.
        evidence: (T, H, W) or (H, W): where effects are expected, up to a factor that the groups decide.
        enough: asked every 60 groups, with the effects so far and the segments; True twice in a row
            ends it: stopping at the first lucky answer would promise too much.
        progress: called with the number of pictures done and in all; if it returns True, what is known after the 60
            groups under way is the answer.
        before: of the partition that these segments were cut from: all groups, old and new, are fitted together.
    """
    parts = segmented(engine, image, segments, fill, which)
    varied, labels = parts.asked, parts.segments.cpu()
    lineage, shown = torch.arange(parts.count)[None], torch.zeros(0, len(varied), dtype=torch.bool)
    values: list[Tensor] = []
    if before is not None:
        lineage, shown, known = before.on(labels)
        values.append(known)
    # of one long design the part that is new: no group twice
    dice = torch.Generator().manual_seed(seed)
    groups = orthogonal_groups(len(shown) + evaluations, centres(labels)[varied], dice)[len(shown) :]
    prior = kernels(labels, torch.as_tensor(picture), lineage=lineage)[:, varied][:, :, varied]
    hoped = None if evidence is None else segment_sums(evidence.cpu(), labels)[..., varied].reshape(-1, len(varied))
    begin, stopped, sure = 0, False, False

    def tell(done: int, _: int) -> None:
        nonlocal stopped
        stopped = bool(progress is not None and progress(begin + done, evaluations)) or stopped

    while True:
        end = min(evaluations, begin + STEP)
        values.append(parts.values_of_groups(engine, groups[begin:end], tell))
        begin = end
        last = stopped or end == evaluations
        if enough is None and not last:
            continue
        if hoped is not None and len(hoped) not in (1, values[0].shape[1]):  # several maps, one target
            hoped = hoped.mean(0, keepdim=True)
        with few_threads(len(varied)):
            every, said = torch.cat([shown, groups[:end]]), torch.cat(values)
            posterior = fit(every, said, covariances=prior, evidence=hoped)
            ended = stopped and end < evaluations
            found = Effects(posterior, every, said, prior, hoped, varied, parts.start, labels, lineage, ended)
            once, sure = sure, last or (enough is not None and enough(found, segments))
        if last or (once and sure):
            return found


def few_threads(segments: int = 0) -> ExitStack:
    """A context: one torch thread where segments are few, and as many as before afterwards.

    Torch's threads wait for each other at the end of every operation: where cores are busy, small operations took a
    hundred times as long.
    """
    stack = ExitStack()
    stack.callback(torch.set_num_threads, torch.get_num_threads())
    if segments < _MANY:
        torch.set_num_threads(1)
    return stack


def orthogonal_groups(count: int, places: Tensor, generator: torch.Generator) -> Tensor:
    """(count, P) booleans: rows of Hadamard matrices, so that after a whole one no two segments are confounded.

    Each block takes P columns of a Hadamard matrix in random order, with random signs, and its rows in random order.
    Over a block every effect is estimated with the least variance so many groups can give; before its end, only a prior
    tells all of them apart. A longer run begins with the groups of a shorter one.

    A segment has its column by its place (P, d) in the unit cube, not by its label: one segment that is cut otherwise
    changes its own lots and leaves most others theirs.

    >>> corners = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    >>> groups = orthogonal_groups(8, corners, torch.Generator().manual_seed(0))
    >>> signs = 2.0 * groups[::2] - 1
    >>> bool((groups[1::2] == ~groups[::2]).all()), (signs.T @ signs).tolist() == (4 * torch.eye(4)).tolist()
    (True, True)
    """
    from scipy.linalg import hadamard
    from scipy.optimize import linear_sum_assignment

    order = 1 << max(len(places) - 1, 0).bit_length()
    matrix = torch.from_numpy(hadamard(order))
    # sites spread evenly, the same for all pictures; segments take them so that the ways are shortest
    sites = torch.quasirandom.SobolEngine(places.shape[1]).draw(order + 1, dtype=torch.float64)[1:]
    site = torch.from_numpy(linear_sum_assignment(torch.cdist(places.double(), sites).square())[1])
    rows: list[Tensor] = []
    while sum(map(len, rows)) < (count + 1) // 2:
        columns = torch.randperm(order, generator=generator)[site]
        signs = (2 * torch.randint(2, (order,), generator=generator) - 1)[site]
        rows.append((matrix[:, columns] * signs)[torch.randperm(order, generator=generator)] > 0)
    first = torch.cat(rows)[: (count + 1) // 2]
    return torch.stack([first, ~first], 1).flatten(0, 1)[:count]
