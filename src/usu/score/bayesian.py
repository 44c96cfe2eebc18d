"""Random groups and the posterior of their segments' effects: as many groups as asked for, or as certainty takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from usu import _checks as check
from usu.forward import Engine, Progress
from usu.forward.fills import Fill
from usu.score.posterior import Posterior, fit, kernels, repeat, segment_sums
from usu.score.segmented import orthogonal_groups, segmented
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
    seed: int | torch.Generator = 0,
    progress: Progress | None = None,
) -> Effects:
    """y(z) - y(1 - z) = Σ_p ± β_p + noise, over groups z and their complements; β has a prior (`fit`).

    The groups are `orthogonal_groups`.

    Args:
        engine: the model and the question, whose target is known; see `usu.forward.engine`.
        image: (C, H, W), as the model takes it.
        segments: (H, W) labels from 0.
        picture: (H, W, 3) in [0, 1]: segments that are near and of one colour are expected to behave alike.
        evaluations: passes this call makes, exactly; at most, where ``enough`` can end it.
        fill: what takes a segment's place; see `usu.fills`.
        which: labels (or booleans) of the segments to vary; the others stay shown.
        evidence: (T, H, W) or (H, W): where effects are expected, up to a factor that the groups decide.
        enough: asked after 90 groups and every 60 more, with the effects so far and the segments; True ends it.
        seed: a whole number, or a torch generator to draw from. The first groups are the same however many there are.
        progress: called with the number of pictures done and in all; if it returns True, what is known is the answer.
    """
    parts = segmented(engine, image, segments, fill, which)
    varied = parts.asked
    check.whole_number("evaluations", evaluations, least=2)
    groups = orthogonal_groups(evaluations, len(varied), check.generator("seed", seed))
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
