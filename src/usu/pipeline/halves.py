"""The two halves of the pipeline: what the model says of a picture's parts, and the mass that follows it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from usu import _checks as check
from usu.forward import Engine, Progress
from usu.inputs import Input, model_name
from usu.operator.cells import Labels
from usu.operator.interpolate import follow_picture, layered, painted, with_trace
from usu.operator.redistribute import SoftPrior, redistributed
from usu.refine.loop import StopReason, refine
from usu.score.delete import delete
from usu.score.gradient import gradient
from usu.score.groups import Effects, Scores, effects_of_groups
from usu.score.locality import needed
from usu.score.sampled import sampled
from usu.segment.hierarchy import split
from usu.settings import Settings
from usu.types import Array, NDArray

#: Labels of the cells, or a grid over a signal or a volume; None: a grid over a picture.
Cells: TypeAlias = Array | Labels | None
#: A logarithmic scale begins at about one part in so many of the largest effect.
DECADES = 100.0
#: Segments of a level that is refined further, where a posterior knows how each of them goes with each other one.
MOST = 500
#: Pixels of several maps that are made together.
AT_ONCE = 1 << 21


@dataclass(frozen=True, eq=False)
class Scored:
    """The first half of the pipeline: what the model says of a picture's parts."""

    #: (T, H, W) in [0, 1], what the mass will follow.
    field: Tensor
    #: The fields after each depth, before they follow the picture's edges.
    fields: tuple[Tensor, ...]
    segments: tuple[NDArray, ...]
    stop_reason: StopReason
    #: A class index, several, or the name of a callable.
    target: Any
    #: Of the last depth's segments, where the scores have a posterior.
    effects: Effects | None = None


def scores_of(
    given: Input,
    engine: Engine,
    settings: Settings,
    *,
    finer: Sequence[Tensor] = (),
    everywhere: bool = False,
    enough: Callable[[Effects, NDArray], bool] | None = None,
    progress: Progress | None = None,
) -> Scored:
    """Segments, their scores, and refinement where they change; ``engine.meter`` says what it may and did cost.

    Args:
        finer: maps (T, h', w') of finer layers. Where the settings have them as base measure, they and the coarse map
            are also what a posterior expects of the segments.
        everywhere: for those who will move other masses than this coarse map's: score also what it makes needless, and
            expect nothing from it.
        enough: for ``evaluations="auto"``: do these effects of segments (labels) suffice?
        progress: called with the evaluations done and to do; True ends scores that have a posterior.
    """
    scorer = Scorer(given, engine, settings, finer, everywhere, enough, progress)
    unscored, posterior = settings.scoring == "none", (settings.scoring, settings.fit) == ("sampled", "posterior")

    def cut(labels: NDArray, which: NDArray, limit: int | None) -> NDArray:
        return split(labels, which, given.picture, settings.segmenter, settings.children, limit=limit)

    first: Array = np.zeros(given.size, np.int64)
    if not unscored:  # a segmenter may be the user's own
        cut_first = settings.segmenter(given.picture, settings.segments)
        first = check.labels("segmenter(...)", cut_first, size=given.size, every=True)
    refined = refine(
        scorer, cut, first, settings, scorer.affordable, most=MOST if posterior else None,
        undecided=scorer.undecided if posterior else None,
    )  # fmt: skip
    reason, goal, last = refined.stop_reason, scorer.engine.target, refined.fields[-1]
    if given.empty and not everywhere:
        reason = StopReason.NOTHING_TO_MOVE
    elif scorer.effects is not None and scorer.effects.stopped:
        reason = StopReason.STOPPED
    elif settings.evaluations == "auto" and engine.meter.left and reason is not StopReason.DECIDED:
        reason = StopReason.STABLE
    target = None if goal is None else getattr(goal, "__name__", type(goal).__name__)
    if isinstance(goal, tuple):
        target = list(goal) if given.several or len(goal) > 1 else goal[0]
    scores = last if unscored else field_of(last, given.picture, settings)
    return Scored(scores, refined.fields, refined.segments, reason, target, scorer.effects)


@dataclass(eq=False)
class Scorer:
    """The function that refinement is handed: segments in, effects out, by one way of scoring.

    What it may spend and has spent is in ``engine.meter``.
    """

    given: Input
    engine: Engine
    settings: Settings
    finer: Sequence[Tensor] = ()
    everywhere: bool = False
    enough: Callable[[Effects, NDArray], bool] | None = None
    progress: Progress | None = None
    #: Of the last level, where scores have a posterior.
    effects: Effects | None = field(default=None, init=False)
    #: The picture's own values, once they were asked for.
    reference: Tensor | None = field(default=None, init=False)
    #: The level that was scored last.
    before: NDArray | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        given, settings = self.given, self.settings
        deletes, shapley = settings.scoring == "delete", (settings.scoring, settings.fit) == ("sampled", "kernel_shap")
        #: Levels still to be scored.
        self.rounds = settings.depth + 1
        #: Evaluations that one segment takes; 0 if they do not depend on the number of segments.
        self.cost = int(deletes) + (deletes and settings.mode == "both")
        #: What a round takes besides its segments: the picture with nothing left in it.
        self.extra = int(shapley or (deletes and settings.mode != "delete"))
        #: Whether effects are differences from the picture as it is.
        self.compares = shapley or (deletes and settings.mode != "keep")
        #: Whether all levels are fitted together, so that every segment of each has a say.
        joint = (settings.scoring, settings.fit) == ("sampled", "posterior") and settings.depth > 0
        reaching = joint or settings.trace > 0 or settings.edges == "picture" or settings.budget != "cell"
        #: (H, W): where nothing reaches beyond a cell, each pixel's; D4 says which segments can change the result.
        self.cells = None if reaching or self.everywhere else given.partition.labels()
        #: (T, H, W), for scores with a posterior: where effects are expected.
        self.evidence: Tensor | None = None
        if settings.fit == "posterior" and not self.everywhere:
            blank = torch.zeros(given.size, dtype=given.coarse.dtype, device=given.coarse.device)
            base = base_of(given.coarse, blank, settings, cells=given.cells, finer=self.finer)
            self.evidence = None if base is None else base.detach().clamp(min=0).reshape(-1, *given.size)

    def affordable(self) -> int | None:
        """How many more segments can be scored in this round and those after it; None if there is no end to it."""
        left = self.engine.meter.left
        if self.effects is not None and self.effects.stopped:
            return 0
        if left is None or self.cost == 0:
            return None if left is None or left else 0
        return max(0, left - self.extra * self.rounds) // self.cost

    def undecided(self) -> NDArray:
        """(P,): of the segments scored last, how undecided it is whether each is among the highest; or of none."""
        return np.zeros(0) if self.effects is None else np.asarray(self.effects.undecided())

    def __call__(self, labels: NDArray, which: NDArray) -> Tensor:
        """Effects (T, len(which)) of the segments ``which``."""
        first, wanted = self.before is None, self._needed(labels, which)
        self.rounds, self.before = self.rounds - 1, labels
        some = bool(wanted.any())
        # the picture as it is: to name the target (a gradient's own pass names it), or to have a value to compare with
        unnamed = self.engine.target is None and not (some and self.settings.scoring == "gradient")
        aims = unnamed or (some and self.compares and self.reference is None)
        if first and some:
            self._check_evaluations(int(wanted.sum()), aims)
        if aims:
            self.engine, self.reference = self.engine.aim(self.given.image)
        if not some:
            goal = self.engine.target if self.reference is None else self.reference
            known = len(self.finer[0]) if self.finer else 1
            count = len(goal) if isinstance(goal, (tuple, Tensor)) else known
            return torch.zeros(count, len(which), dtype=torch.float64)
        found = self._scored(labels, wanted)
        if found.target is not None:
            self.engine = replace(self.engine, target=found.target)
        # a segment that was left out cannot change the result; the lowest score keeps it out of the scale as well
        values = found.values[:, which]
        return values.where(~values.isnan(), values.nan_to_num(nan=torch.inf).amin(1, keepdim=True))

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
        settings, engine, image, fill = self.settings, self.engine, self.given.image, self.settings.fill
        if settings.scoring == "gradient":
            return gradient(engine, image, labels, fill=fill)
        if settings.scoring == "delete":
            return delete(
                engine, image, labels, fill=fill, mode=settings.mode, which=wanted, reference=self.reference,
                progress=self.progress,
            )  # fmt: skip
        groups = (engine.meter.left or 0) // (self.rounds + 1)
        if settings.fit == "posterior":
            self.effects = effects_of_groups(
                engine, image, labels, self.given.picture, evaluations=groups, fill=fill, which=wanted,
                evidence=self.evidence, enough=self.enough if settings.evaluations == "auto" else None,
                seed=settings.seed, progress=self.progress, before=self.effects,
            )  # fmt: skip
            return Scores(self.effects.mean, None, groups)
        return sampled(
            engine, image, labels, evaluations=groups, fill=fill, fit=settings.fit, which=wanted, seed=settings.seed,
            reference=self.reference, progress=self.progress,
        )  # fmt: skip

    def _needed(self, labels: NDArray, which: NDArray) -> NDArray:
        """Asked for, and able to change the result.

        Locality decides in the last round only: in those before it, every score has a say in what is refined.
        """
        wanted = np.zeros(int(labels.max()) + 1, dtype=bool)
        if self.settings.scoring == "none" or self.given.empty:
            return wanted
        wanted[which] = True
        if self.cells is None or self.rounds > 1:
            return wanted
        can: NDArray = wanted & needed(labels, self.cells, self.given.maps.abs().amax(0)).numpy()
        if self.before is not None:  # siblings are measured against each other: one that matters brings the others
            parent = np.zeros(len(wanted), dtype=np.int64)
            parent[labels] = self.before
            can = wanted & np.isin(parent, parent[can])
        return can


def field_of(scores: Tensor, picture: NDArray, settings: Settings) -> Tensor:
    """Scores (T, H, W) of segments as the field that mass follows: along the picture's edges, on the settings' scale.

    >>> field = torch.tensor([[[0.0, 0.01, 0.1, 1.0]]]).double()
    >>> field_of(field, np.zeros((1, 4, 3)), Settings(scale="log")).round(decimals=2).tolist()
    [[[0.0, 0.15, 0.52, 1.0]]]
    """
    if settings.edges == "picture":
        scores = follow_picture(scores, picture, stretch=settings.scale == "range")
    return torch.log1p(DECADES * scores) / math.log1p(DECADES) if settings.scale == "log" else scores


def map_of(
    coarse: Tensor, scores: Tensor, settings: Settings, *, cells: Cells = None, finer: Sequence[Tensor] = ()
) -> Tensor:
    """The second half: `usu.redistribute` as the settings have it, with the base measure they name.

    ``finer``: maps (..., h', w') of finer layers for ``base="layers"``; without any the coarse map stands alone in it.
    A bilinear base needs a grid, so ``cells`` go without it. Nothing is checked: for tensors that came in through
    `usu.upsample` or a source.
    """
    dims = 2 if cells is None else cells.ndim
    step = max(1, AT_ONCE // math.prod(scores.shape[-dims:]))
    if scores.ndim > dims and len(scores) > step:  # what is made on the way is many times as large as the maps
        lead, inner, parts = scores.ndim - dims, inner_dims(cells), []
        for rows in torch.arange(len(scores)).split(step):
            own = coarse[rows] if coarse.ndim - inner == lead else coarse
            levels = [level[rows] if level.ndim - dims == lead else level for level in finer]
            parts.append(map_of(own, scores[rows], settings, cells=cells, finer=levels))
        return torch.cat(parts)
    base = base_of(coarse, scores, settings, cells=cells, finer=finer)
    shared: dict[str, Any] = {
        "cells": cells,
        "temperature": settings.temperature_of(math.prod(coarse.shape[-inner_dims(cells) :])),
        "potential": settings.potential,
        "base": base,
    }
    if settings.trace and bool((coarse == 0).any()):
        free = redistributed(torch.ones_like(coarse), scores.detach(), budget=SoftPrior(1.0, 0.0), **shared)
        coarse = with_trace(coarse, settings.trace, free, cells)
    return redistributed(
        coarse, scores, budget=settings.budget, signed=settings.signed, max_gain=settings.max_gain, **shared
    )


def base_of(
    coarse: Tensor, scores: Tensor, settings: Settings, *, cells: Cells = None, finer: Sequence[Tensor] = ()
) -> Tensor | None:
    """The base measure that the settings name, on the pixels of ``scores``."""
    base = None if settings.base is None else painted(coarse, scores, cells, flat=settings.base == "layers")
    if base is None:
        return None
    if settings.base == "layers":
        base = layered(base, finer, 2 if cells is None else cells.ndim, settings.of_coarse)
    return base if isinstance(settings.budget, SoftPrior) else base.abs()


def finer_of(given: Input, asked: Engine, settings: Settings) -> tuple[Engine, tuple[Tensor, ...]]:
    """The engine with its target known, and maps (T, h', w') of finer layers, where the settings ask for them."""
    if settings.base != "layers":
        return asked, ()
    alone = settings.scoring == "none"
    if given.finer is not None and (given.finer or not alone):
        lead = 1 + int(given.several and given.finer[0].ndim > len(given.size)) if given.finer else 0
        return asked, tuple(level if lead > 1 else level[None] for level in given.finer)
    if given.finer is None and not given.empty:
        from usu.sources.finer import finer_maps, module_of

        module = module_of(asked.model)
        # log-odds are for scores; layers are asked about the logit, as sources ask them
        heard = replace(asked, link="logit" if asked.link == "log_odds" else asked.link)
        found = None if module is None else finer_maps(heard, module, given.image, len(given.partition.sizes))
        if found is not None and (found.maps or not alone):
            return replace(found.engine, link=asked.link), tuple(level.to(given.coarse) for level in found.maps)
    if alone and not given.empty:
        raise ValueError(
            f"`model` must be an nn.Module with layers finer than `coarse`, because without scores they alone decide; "
            f"got {model_name(asked.model)}. Use preset='cell' or 'soft', or hand the maps in with `finer`."
        )
    return asked, ()


def inner_dims(cells: Cells) -> int:
    """How many dimensions of a coarse map are one map's: those of its grid, or the one that counts cells."""
    return 2 if cells is None else len(cells.grid) if isinstance(cells, Labels) and cells.grid else 1
