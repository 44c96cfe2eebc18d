"""The scoring function that refinement is handed: one of `usu.score`, within its budget, for what can matter."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from usu import score
from usu.forward import Engine, Progress
from usu.jobs import Job
from usu.partition import Partition
from usu.presets import Settings
from usu.types import NDArray


class Scorer:
    """The scoring function that refinement is handed: segments in, effects out, within its budget."""

    def __init__(
        self, job: Job, asked: Engine, settings: Settings, cells: Partition, progress: Progress | None
    ) -> None:
        self.job, self.engine, self.settings, self.cells, self.progress = job, asked, settings, cells, progress
        self.reference: Tensor | None = None
        self.rounds = settings.depth + 1
        self.cost = {"delete": 2 if settings.mode == "both" else 1}.get(settings.scoring, 0)

    @property
    def target(self) -> Any:
        """What was explained: a class index, several, or the name of a callable."""
        goal = self.engine.target
        if isinstance(goal, tuple):
            return list(goal) if self.job.several or len(goal) > 1 else goal[0]
        return None if goal is None else getattr(goal, "__name__", type(goal).__name__)

    def __call__(self, labels: NDArray, which: NDArray, budget: int | None) -> tuple[Tensor, int]:
        """Effects (T, len(which)) and the evaluations they took."""
        self.rounds -= 1
        wanted = self._needed(labels, which)
        if self.settings.scoring == "unguided":
            found = score.unguided(self.job.coarse, labels) if self.job.cells is None else self._by_cell(labels)
            return found.values[:, which], 0
        spent = 0
        if self.engine.target is None or (self.settings.scoring == "delete" and self.reference is None):
            aimed = self.engine.aim(self.job.image)
            self.engine, self.reference, spent = aimed.engine, aimed.values, 1
        if not wanted.any():
            return torch.zeros(self._targets(), len(which), dtype=torch.float64), spent
        found = self._found(labels, wanted, None if budget is None else budget - spent)
        values = found.values[:, which]
        # a segment that was left out cannot change the result; the lowest score keeps it out of the scale as well
        lowest = values.nan_to_num(nan=torch.inf).amin(1, keepdim=True)
        return torch.where(values.isnan(), lowest, values), spent + found.evaluations

    def _found(self, labels: NDArray, wanted: NDArray, budget: int | None) -> score.Scores:
        settings, image = self.settings, self.job.image
        match settings.scoring:
            case "gradient":
                return score.gradient(self.engine, image, labels, fill=settings.fill)
            case "delete":
                most = len(wanted) if budget is None else budget // self.cost
                if wanted.sum() > most:
                    raise ValueError(
                        f"`evaluations` must be enough to delete each of the first {int(wanted.sum())} segments once; "
                        f"got {settings.evaluations}. Allow more, ask for fewer parts, or use scoring='sampled'."
                    )
                return score.delete(
                    self.engine, image, labels, fill=settings.fill, mode=settings.mode, which=wanted,
                    reference=self.reference, progress=self.progress,
                )  # fmt: skip
        if budget is None:
            raise ValueError("`evaluations` must be a number for sampled scores; got None. 300 is a good start.")
        return score.sampled(
            self.engine, image, labels, evaluations=budget // (self.rounds + 1), fill=settings.fill, fit=settings.fit,
            which=wanted, seed=settings.seed, reference=self.reference, progress=self.progress,
        )  # fmt: skip

    def _needed(self, labels: NDArray, which: NDArray) -> NDArray:
        """Asked for, and able to change the result: where cells keep their mass, D4 says which are."""
        asked = np.zeros(int(labels.max()) + 1, dtype=bool)
        asked[which] = True
        if self.settings.budget != "cell":
            return asked
        mass = self.job.coarse.detach().abs().reshape(-1, len(self.cells.sizes)).amax(0)
        can = score.needed(labels, self.cells.labels(), mass.cpu()).numpy()
        return np.asarray(asked & can)

    def _by_cell(self, labels: NDArray) -> score.Scores:
        """Without a grid there is no bilinear map: a segment's score is the mean of the cells under it."""
        flat = self.job.coarse.reshape(-1, self.job.coarse.shape[-1])
        field = self.cells.spread(flat).double().cpu().flatten(1)
        where = torch.from_numpy(labels).flatten()
        total = torch.zeros(len(field), int(where.max()) + 1, dtype=torch.float64).index_add_(1, where, field)
        return score.Scores(total / torch.bincount(where), None, 0)

    def _targets(self) -> int:
        if self.reference is not None:
            return len(self.reference)
        return len(self.engine.target) if isinstance(self.engine.target, tuple) else 1
