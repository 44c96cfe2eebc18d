"""The scoring function that refinement is handed: one way of scoring, within the evaluations that are left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from usu.forward import Engine, Progress
from usu.score.bayesian import Effects, effects_of_groups
from usu.score.delete import delete
from usu.score.gradient import gradient
from usu.score.locality import needed
from usu.score.sampled import sampled
from usu.score.segmented import Scores
from usu.settings import Settings
from usu.types import NDArray

#: Segments of a level that is refined further, where scores have a posterior.
MOST = 2000


@dataclass(eq=False)
class Scorer:
    """Segments in, effects out. What it may spend and has spent is in ``engine.meter``."""

    engine: Engine
    #: (C, H, W), as the model takes it.
    image: Tensor
    settings: Settings
    #: (K,): the most that a map whose mass will follow the scores has in each cell; where all is zero none is needed.
    mass: Tensor
    #: (H, W, 3) in [0, 1]: what scores with a posterior know of segments that look alike.
    picture: NDArray
    #: (H, W): the cell of each pixel, where D4 says which segments can change the result; None: all can.
    cells: Tensor | None = None
    #: How many values the target holds, where that was seen already.
    targets: int | None = None
    #: (T, H, W), for scores with a posterior: where effects are expected.
    evidence: Tensor | None = None
    #: For ``evaluations="auto"``: do these effects of segments (labels) suffice?
    enough: Callable[[Effects, NDArray], bool] | None = None
    #: Called with the evaluations done and to do.
    progress: Progress | None = None
    #: Of the last level, where scores have a posterior.
    effects: Effects | None = field(default=None, init=False)
    #: The picture's own values, once they were asked for.
    reference: Tensor | None = field(default=None, init=False)
    #: The level that was scored last.
    before: NDArray | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        settings = self.settings
        deletes, shapley = settings.scoring == "delete", (settings.scoring, settings.fit) == ("sampled", "kernel_shap")
        #: Levels still to be scored.
        self.rounds = settings.depth + 1
        #: Evaluations that one segment takes; 0 if they do not depend on the number of segments.
        self.cost = int(deletes) + (deletes and settings.mode == "both")
        #: What a round takes besides its segments: the picture with nothing left in it.
        self.extra = int(shapley or (deletes and settings.mode != "delete"))
        #: Segments that a level may have: a posterior knows how each of them goes with each other one.
        self.most = MOST if (settings.scoring, settings.fit) == ("sampled", "posterior") else None
        #: Whether effects are differences from the picture as it is.
        self.compares = shapley or (deletes and settings.mode != "keep")

    def affordable(self) -> int | None:
        """How many more segments can be scored in this round and those after it; None if there is no end to it."""
        left = self.engine.meter.left
        if left is None or self.cost == 0:
            return None if left is None or left else 0
        return max(0, left - self.extra * self.rounds) // self.cost

    def __call__(self, labels: NDArray, which: NDArray) -> Tensor:
        """Effects (T, len(which)) of the segments ``which``."""
        first, wanted = self.before is None, self._needed(labels, which)
        self.rounds -= 1
        self.before = labels
        some = bool(wanted.any())
        # the picture as it is: to name the target (a gradient's own pass names it), or to have a value to compare with
        unnamed = self.engine.target is None and not (some and self.settings.scoring == "gradient")
        aims = unnamed or (some and self.compares and self.reference is None)
        if first and some:
            self._check_evaluations(int(wanted.sum()), aims)
        if aims:
            self.engine, self.reference = self.engine.aim(self.image)
        if not some:
            return torch.zeros(self._target_count(), len(which), dtype=torch.float64)
        found = self._scored(labels, wanted)
        if found.target is not None:
            self.engine = replace(self.engine, target=found.target)
        # a segment that was left out cannot change the result; the lowest score keeps it out of the scale as well
        values = found.values[:, which]
        lowest = values.nan_to_num(nan=torch.inf).amin(1, keepdim=True)
        return torch.where(values.isnan(), lowest, values)

    def _check_evaluations(self, segments: int, aims: bool) -> None:
        """Refuse before the model is run what the first round cannot afford; later rounds ask `affordable`."""
        meter, scoring, rounds = self.engine.meter, self.settings.scoring, self.rounds + 1
        least, why = {
            "gradient": (1, "for a gradient"),
            "delete": (aims + self.cost * segments + self.extra, f"to score each of the {segments} segments"),
            "sampled": (aims + rounds * (2 + self.extra), "for sampled scores at this depth"),
        }[scoring]
        if meter.left is not None and meter.left < least:
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
            self.effects = effects_of_groups(
                self.engine, image, labels, self.picture, evaluations=groups, fill=settings.fill, which=wanted,
                evidence=self.evidence, seed=settings.seed, progress=self.progress,
                enough=self.enough if settings.evaluations == "auto" else None,
            )  # fmt: skip
            return Scores(self.effects.mean, None, groups)
        return sampled(
            self.engine, image, labels, evaluations=groups, fill=settings.fill, fit=settings.fit, which=wanted,
            seed=settings.seed, reference=self.reference, progress=self.progress,
        )  # fmt: skip

    def _needed(self, labels: NDArray, which: NDArray) -> NDArray:
        """Asked for, and able to change the result.

        Locality decides in the last round only: in those before it, every score has a say in what is refined.
        """
        wanted = np.zeros(int(labels.max()) + 1, dtype=bool)
        if self.settings.scoring == "none" or not bool(self.mass.any()):
            return wanted
        wanted[which] = True
        if self.cells is None or self.rounds > 1:
            return wanted
        can = wanted & needed(labels, self.cells, self.mass).numpy()
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
