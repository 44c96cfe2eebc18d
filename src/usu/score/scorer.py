"""The scoring function that refinement is handed: one way of scoring, within the evaluations that are left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from usu.forward import Engine, Progress
from usu.operator.cells import Partition
from usu.score.bayesian import Effects, effects_of_groups
from usu.score.delete import delete
from usu.score.gradient import gradient
from usu.score.locality import needed
from usu.score.sampled import sampled
from usu.score.segmented import Scores
from usu.settings import Settings
from usu.types import NDArray


class Scorer:
    """Segments in, effects out. What it may spend and has spent is in ``engine.meter``.

    Args:
        engine: the model and the question.
        image: (C, H, W), as the model takes it.
        coarse: the maps whose mass will follow the scores; a map of zeros needs none.
        cells: of the maps. Where cells keep their mass, D4 says which segments can change the result.
        settings: how to score, and through how many depths.
        targets: how many values the target holds, where that was seen already.
        everywhere: also score what cannot change the result of these maps.
        picture: (H, W, 3) in [0, 1], and
        evidence: (T, H, W) or None, for scores with a posterior: where effects are expected.
        enough: for ``evaluations="auto"``: do these effects of segments (labels) suffice?
        progress: called with the evaluations done and to do.
    """

    def __init__(
        self,
        engine: Engine,
        image: Tensor,
        coarse: Tensor,
        cells: Partition,
        settings: Settings,
        *,
        targets: int | None = None,
        everywhere: bool = False,
        picture: NDArray | None = None,
        evidence: Tensor | None = None,
        enough: Callable[[Effects, NDArray], bool] | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.picture, self.evidence, self.enough = picture, evidence, enough
        #: Of the last level, where scores have a posterior.
        self.effects: Effects | None = None
        self.engine, self.image, self.settings, self.progress = engine, image, settings, progress
        self.mass = coarse.detach().abs().reshape(-1, len(cells.sizes)).amax(0).cpu()
        self.cells, self.targets = cells, targets
        self.reference: Tensor | None = None
        #: Levels still to be scored, and the one before.
        self.rounds = settings.depth + 1
        self.before: NDArray | None = None
        reaching = settings.trace > 0 or settings.edges == "picture" or settings.budget != "cell"
        self.local = not everywhere and not reaching
        #: Evaluations that one segment takes; 0 if they do not depend on the number of segments.
        self.cost = {"delete": 2 if settings.mode == "both" else 1}.get(settings.scoring, 0)
        #: What a round takes besides its segments: the picture with nothing left in it.
        self.extra = int(
            (settings.scoring == "delete" and settings.mode != "delete")
            or (settings.scoring == "sampled" and settings.fit == "kernel_shap")
        )

    def affordable(self) -> int | None:
        """How many more segments can be scored in this round and those after it; None if there is no end to it."""
        left = self.engine.meter.left
        if left is None:
            return None
        if self.cost == 0:
            return None if left else 0
        return max(0, left - self.extra * self.rounds) // self.cost

    def __call__(self, labels: NDArray, which: NDArray) -> Tensor:
        """Effects (T, len(which)) of the segments ``which``."""
        first, wanted = self.before is None, self._needed(labels, which)
        self.rounds -= 1
        self.before = labels
        if self.settings.scoring == "none":
            wanted[:] = False
        some = bool(wanted.any())
        aims = self._aims(some)
        if first and some:
            self._check_evaluations(int(wanted.sum()), aims)
        if aims:
            aimed = self.engine.aim(self.image)
            self.engine, self.reference = aimed.engine, aimed.values
        if not some:
            return torch.zeros(self._target_count(), len(which), dtype=torch.float64)
        found = self._scored(labels, wanted)
        if found.target is not None:
            self.engine = replace(self.engine, target=found.target)
        # a segment that was left out cannot change the result; the lowest score keeps it out of the scale as well
        values = found.values[:, which]
        lowest = values.nan_to_num(nan=torch.inf).amin(1, keepdim=True)
        return torch.where(values.isnan(), lowest, values)

    def _aims(self, some: bool) -> bool:
        """Does this round begin with the picture as it is: to name the target, or to have a value to compare with?"""
        settings = self.settings
        if self.engine.target is None:
            return settings.scoring != "gradient" or not some  # the gradient's own pass names it
        compares = (settings.scoring == "delete" and settings.mode != "keep") or (
            settings.scoring == "sampled" and settings.fit == "kernel_shap"
        )
        return some and compares and self.reference is None

    def _check_evaluations(self, segments: int, aims: bool) -> None:
        """Refuse before the model is run what the first round cannot afford; later rounds ask `affordable`."""
        meter, scoring, rounds = self.engine.meter, self.settings.scoring, self.rounds + 1
        if meter.left is None:
            return
        least, why = {
            "gradient": (1, "for a gradient"),
            "delete": (aims + self.cost * segments + self.extra, f"to score each of the {segments} segments"),
            "sampled": (aims + rounds * (2 + self.extra), "for sampled scores at this depth"),
        }[scoring]
        if meter.left < least:
            beside = f", {meter.spent} of them for the finer layers" if meter.spent else ""
            raise ValueError(
                f"`evaluations` must be at least {meter.spent + least} {why}{beside}; got {meter.limit}. Allow more"
                f"{', ask for fewer parts, or use sampled scores' if scoring == 'delete' else ''}."
            )

    def _scored(self, labels: NDArray, wanted: NDArray) -> Scores:
        settings, image = self.settings, self.image
        if settings.scoring == "gradient":
            return gradient(self.engine, image, labels, fill=settings.fill)
        if settings.scoring == "delete":
            return delete(
                self.engine, image, labels, fill=settings.fill, mode=settings.mode, which=wanted,
                reference=self.reference, progress=self.progress,
            )  # fmt: skip
        groups = (self.engine.meter.left or 0) // (self.rounds + 1)
        if settings.fit == "posterior":
            if self.picture is None:
                raise ValueError("`picture` must be given for scores with a posterior; got None.")
            enough, stops = self.enough, settings.evaluations == "auto"
            self.effects = effects_of_groups(
                self.engine, image, labels, self.picture, evaluations=groups, fill=settings.fill, which=wanted,
                evidence=self.evidence, seed=settings.seed, progress=self.progress,
                enough=(lambda found: enough(found, labels)) if enough is not None and stops else None,
            )  # fmt: skip
            return Scores(self.effects.mean, self.effects.stderr, groups)
        return sampled(
            self.engine, image, labels, evaluations=groups, fill=settings.fill, fit=settings.fit, which=wanted,
            seed=settings.seed, reference=self.reference, progress=self.progress,
        )  # fmt: skip

    def _needed(self, labels: NDArray, which: NDArray) -> NDArray:
        """Asked for, and able to change the result.

        Locality decides in the last round only: in those before it, every score has a say in what is refined.
        """
        wanted = np.zeros(int(labels.max()) + 1, dtype=bool)
        if not bool(self.mass.any()):
            return wanted
        wanted[which] = True
        if not self.local or self.rounds > 1:
            return wanted
        can = wanted & needed(labels, self.cells.labels(), self.mass).numpy()
        if self.before is not None:  # siblings are measured against each other: one that matters brings the others
            parent = np.zeros(len(wanted), dtype=np.int64)
            parent[labels] = self.before
            can = wanted & np.isin(parent, parent[can])
        return np.asarray(can)

    def _target_count(self) -> int:
        if self.reference is not None:
            return len(self.reference)
        if isinstance(self.engine.target, tuple):
            return len(self.engine.target)
        return 1 if self.targets is None else self.targets
