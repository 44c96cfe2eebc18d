"""The scoring function that refinement is handed: one of `usu.score`, within its budget, for what can matter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from usu import score
from usu.forward import Engine, Progress
from usu.forward.outputs import read, top_class
from usu.inputs import Job
from usu.operator.cells import Partition
from usu.settings import Settings
from usu.types import NDArray


class Scorer:
    """The scoring function that refinement is handed: segments in, effects out, within its budget."""

    def __init__(
        self,
        job: Job,
        asked: Engine,
        settings: Settings,
        cells: Partition,
        progress: Progress | None,
        *,
        spent: int = 0,
        targets: int | None = None,
    ) -> None:
        self.job, self.engine, self.settings, self.cells, self.progress = job, asked, settings, cells, progress
        self.reference: Tensor | None = None
        self.before: NDArray | None = None
        self.rounds = settings.depth + 1
        #: How many values the target holds, where that was seen already.
        self.targets = targets
        #: Evaluations made before the first segment is scored count as well.
        self.before_scores = self.spent = spent
        self.cost = {"delete": 2 if settings.mode == "both" else 1}.get(settings.scoring, 0)
        #: What one round costs besides its segments: the picture with nothing left in it.
        self.extra = int(
            (settings.scoring == "delete" and settings.mode != "delete")
            or (settings.scoring == "sampled" and settings.fit == "kernel_shap")
        )

    @property
    def target(self) -> Any:
        """What was explained: a class index, several, or the name of a callable."""
        goal = self.engine.target
        if isinstance(goal, tuple):
            return list(goal) if self.job.several or len(goal) > 1 else goal[0]
        return None if goal is None else getattr(goal, "__name__", type(goal).__name__)

    def __call__(self, labels: NDArray, which: NDArray, budget: int | None) -> tuple[Tensor, int]:
        """Effects (T, len(which)), and the evaluations they took or that are held back for later rounds."""
        self.rounds -= 1
        first, wanted = self.before is None, self._needed(labels, which)
        self.before = labels
        if self.settings.scoring == "none":
            return self._unscored(which), 0
        if self.settings.scoring == "unguided":
            found = score.unguided(self.job.coarse, labels) if self.job.cells is None else self._by_cell(labels)
            # one map serves every target, and what finer layers said of each is a field of its own
            several = self.targets if self.targets is not None and len(found.values) == 1 else -1
            return found.values[:, which].expand(several, -1), 0
        looks = self._looks(some=bool(wanted.any()))
        if first and budget is not None and wanted.any():
            self._affordable(int(wanted.sum()), budget, looks)
        if looks:
            aimed = self.engine.aim(self.job.image)
            self.engine, self.reference = aimed.engine, aimed.values
        held = 0
        if wanted.any():
            found = self._found(labels, wanted, None if budget is None else budget - looks)
            values, used = found.values[:, which], looks + found.evaluations
            if self.settings.scoring == "delete":  # children are paid one by one: the first round holds back the rest
                held = self.extra * (self.rounds if first else -1)
                held = held if budget is None else min(held, budget - used)
        else:
            values, used = torch.zeros(self._targets(), len(which), dtype=torch.float64), int(looks)
        self.spent += used
        # a segment that was left out cannot change the result; the lowest score keeps it out of the scale as well
        lowest = values.nan_to_num(nan=torch.inf).amin(1, keepdim=True)
        return torch.where(values.isnan(), lowest, values), used + held

    def _unscored(self, which: NDArray) -> Tensor:
        """Nothing to tell segments apart; a target that nobody has named yet is still named."""
        if self.engine.target is None:
            aimed = self.engine.aim(self.job.image)
            self.engine, self.reference = aimed.engine, aimed.values
            self.spent += 1
        return torch.zeros(self._targets(), len(which), dtype=torch.float64)

    def _looks(self, *, some: bool) -> bool:
        """Does this round begin with the picture as it is: to name the target, or to have a value to compare with?"""
        settings = self.settings
        if self.engine.target is None:
            return settings.scoring != "gradient" or not some  # the gradient's own pass names it
        compares = (settings.scoring == "delete" and settings.mode != "keep") or (
            settings.scoring == "sampled" and settings.fit == "kernel_shap"
        )
        return some and compares and self.reference is None

    def _affordable(self, segments: int, budget: int, looks: bool) -> None:
        """Ask before the model is run whether the first round fits; refinement sees to it that the others do."""
        asked, rounds = self.settings.evaluations, self.rounds + 1
        if self.settings.scoring == "gradient" and budget < 1:
            raise ValueError(
                f"`evaluations` must be at least {self.before_scores + 1}, one for the gradient and one for the finer "
                f"layers; got {asked}. Allow one more, or use base='bilinear'."
            )
        if self.settings.scoring == "delete":
            least = self.before_scores + looks + self.cost * segments + self.extra
            if least > budget + self.before_scores:
                raise ValueError(
                    f"`evaluations` must be at least {least} to score each of the {segments} segments on its own; "
                    f"got {asked}. Allow more, ask for fewer parts, or use scoring='sampled'."
                )
        if self.settings.scoring == "sampled" and (budget - looks) // rounds < 2 + self.extra:
            least = self.before_scores + looks + rounds * (2 + self.extra)
            raise ValueError(
                f"`evaluations` must be at least {least} for sampled scores at this depth; "
                f"got {asked}. Use about 1.5 times the number of segments."
            )

    def _found(self, labels: NDArray, wanted: NDArray, budget: int | None) -> score.Scores:
        settings, image = self.settings, self.job.image
        match settings.scoring:
            case "gradient":
                return self._by_gradient(labels)
            case "delete":
                return score.delete(
                    self.engine, image, labels, fill=settings.fill, mode=settings.mode, which=wanted,
                    reference=self.reference, progress=self.progress,
                )  # fmt: skip
        groups = (budget or 0) // (self.rounds + 1)
        return score.sampled(
            self.engine, image, labels, evaluations=groups, fill=settings.fill, fit=settings.fit, which=wanted,
            seed=settings.seed, reference=self.reference, progress=self.progress,
        )  # fmt: skip

    def _by_gradient(self, labels: NDArray) -> score.Scores:
        """One pass, also where it is that pass which names the target."""
        if self.engine.target is not None:
            return score.gradient(self.engine, self.job.image, labels, fill=self.settings.fill)
        named: list[int] = []

        def top(output: object) -> Tensor:
            named.append(top_class(output))
            return read(output, (named[-1],), self.engine.link, 1)

        found = score.gradient(
            replace(self.engine, target=top, link="logit"), self.job.image, labels, fill=self.settings.fill
        )
        self.engine = replace(self.engine, target=(named[-1],))
        return found

    def _needed(self, labels: NDArray, which: NDArray) -> NDArray:
        """Asked for, and able to change the result: where cells keep their mass, D4 says which are.

        Only in the last round: in those before it, every score has a say in what is refined.
        """
        asked = np.zeros(int(labels.max()) + 1, dtype=bool)
        if not bool(self.job.coarse.detach().any()):
            return asked
        asked[which] = True
        reaching = self.settings.trace > 0 or self.settings.edges == "picture"
        if self.settings.budget != "cell" or self.rounds or reaching:
            return asked
        mass = self.job.coarse.detach().abs().reshape(-1, len(self.cells.sizes)).amax(0)
        can = asked & score.needed(labels, self.cells.labels(), mass.cpu()).numpy()
        if self.before is not None:  # siblings are measured against each other: one that matters brings the others
            parent = np.zeros(len(asked), dtype=np.int64)
            parent[labels] = self.before
            can = asked & np.isin(parent, parent[can])
        return np.asarray(can)

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
        if isinstance(self.engine.target, tuple):
            return len(self.engine.target)
        return 1 if self.targets is None else self.targets
