"""The two halves of the pipeline: what the model says of a picture's parts, and the mass that follows it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from usu.forward import Engine, Progress
from usu.inputs import Input
from usu.operator.budgets import SoftPrior
from usu.operator.cells import partition_of
from usu.operator.interpolate import follow_picture, layered, painted, with_trace
from usu.operator.redistribute import cell_budgets, redistribute
from usu.refine import StopReason, refine
from usu.score.bayesian import Effects
from usu.score.scorer import Scorer
from usu.segment.hierarchy import split
from usu.settings import Settings
from usu.types import Array, NDArray

#: A logarithmic scale begins at about one part in so many of the largest effect.
DECADES = 100.0


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
        given: the picture and what belongs to it.
        engine: the model and the question.
        settings: how.
        finer: maps (T, h', w') of finer layers. Where the settings have them as base measure, they and the coarse map
            are also what a posterior expects of the segments.
        everywhere: for those who will move other masses than this coarse map's: score also what it makes needless, and
            expect nothing from it.
        enough: for ``evaluations="auto"``: do these effects of segments (labels) suffice?
        progress: called with the evaluations done and to do; True ends scores that have a posterior.
    """
    evidence = None
    if settings.fit == "posterior" and settings.base is not None and not everywhere:
        blank = torch.zeros(given.image.shape[-2:], dtype=given.coarse.dtype, device=given.coarse.device)
        evidence = base_of(given.coarse, blank, settings, cells=given.cells, finer=finer)
        evidence = None if evidence is None else evidence.detach().clamp(min=0).reshape(-1, *blank.shape)
    scorer = Scorer(
        engine, given.image, given.coarse, given.partition, settings, targets=len(finer[0]) if finer else None,
        everywhere=everywhere, picture=given.picture, evidence=evidence, enough=enough, progress=progress,
    )  # fmt: skip
    unscored = settings.scoring == "none"
    lattice = tuple(given.image.shape[-2:])
    refined = refine(
        scorer,
        lambda labels, which, limit: split(
            labels, which, given.picture, settings.segmenter, settings.children, limit=limit
        ),
        np.zeros(lattice, np.int64) if unscored else settings.segmenter(given.picture, settings.parts),
        depth=settings.depth,
        threshold=settings.threshold,
        center=settings.center,
        temperature=settings.mixing,
        tolerance=settings.tolerance,
        kind=settings.heterogeneity,
        reach=settings.reach,
        scale="range" if settings.scale == "range" else "density",
        affordable=scorer.affordable,
    )
    field = refined.scores if unscored else field_of(refined.scores, given.picture, settings)
    reason = refined.stop_reason
    if given.empty and not everywhere:
        reason = StopReason.NOTHING_TO_MOVE
    elif scorer.effects is not None and scorer.effects.stopped:
        reason = StopReason.STOPPED
    elif settings.evaluations == "auto" and engine.meter.left:
        reason = StopReason.STABLE
    target = _target_name(scorer.engine.target, given.several)
    return Scored(field, refined.fields, refined.segments, reason, target, scorer.effects)


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
    coarse: Tensor, scores: Tensor, settings: Settings, *, cells: Array | None = None, finer: Sequence[Tensor] = ()
) -> Tensor:
    """The second half: `usu.redistribute` as the settings have it, with the base measure they name.

    ``finer``: maps (..., h', w') of finer layers for ``base="layers"``; without any the coarse map stands alone in it.
    A bilinear base needs a grid, so ``cells`` go without it.
    """
    base = base_of(coarse, scores, settings, cells=cells, finer=finer)
    return redistribute(
        with_trace(coarse, settings.trace, 2 if cells is None else 1), scores, cells=cells,
        temperature=settings.temperature, potential=settings.potential, budget=settings.budget, base=base,
        signed=settings.signed, max_gain=settings.max_gain,
    )  # fmt: skip


def base_of(
    coarse: Tensor, scores: Tensor, settings: Settings, *, cells: Array | None = None, finer: Sequence[Tensor] = ()
) -> Tensor | None:
    """The base measure that the settings name, on the pixels of ``scores``."""
    if settings.base is None or (settings.base == "bilinear" and cells is not None):
        return None
    base = painted(coarse, scores, cells)
    base = layered(base, finer) if settings.base == "layers" else base
    return base if isinstance(settings.budget, SoftPrior) else base.abs()


def mass_error_of(
    result: Tensor, coarse: Tensor, scores: Tensor, settings: Settings, *, cells: Array | None = None
) -> float:
    """Largest relative error of what the budget promises; a cell of no mass is measured against the mean mass.

    A total is measured against the mass of both signs, because they may cancel.
    """
    parts, _ = partition_of(coarse, scores, cells)
    sums = parts.total(result.detach().reshape(-1, *parts.lattice))
    if isinstance(settings.budget, SoftPrior):
        flat = coarse.detach().double().reshape(-1, len(parts.sizes)) * parts.sizes
        wanted, sums = flat.sum(1, keepdim=True).expand(len(sums), 1), sums.sum(1, keepdim=True)
        scale = flat.abs().sum(1, keepdim=True).expand_as(sums)
    else:
        budgets = cell_budgets(
            coarse.detach().double(), scores, cells=cells, budget=settings.budget, signed=settings.signed
        )
        wanted = budgets.reshape(-1, len(parts.sizes))
        mean = wanted.abs().mean(1, keepdim=True)
        scale = wanted.abs().where(wanted.abs() > 1e-9 * mean, mean)
    return float(((sums - wanted).abs() / scale.where(scale > 0, 1)).max())


def finer_of(given: Input, asked: Engine, settings: Settings) -> tuple[Engine, tuple[Tensor, ...]]:
    """The engine with its target known, and maps (T, h', w') of finer layers, where the settings ask for them."""
    if settings.base != "layers":
        return asked, ()
    alone = settings.scoring == "none"
    if given.finer is not None and (given.finer or not alone):
        lead = 1 + int(given.several and given.finer[0].ndim > 2) if given.finer else 0
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


def _target_name(goal: Any, several: bool) -> Any:
    """What was explained: a class index, several, or the name of a callable."""
    if isinstance(goal, tuple):
        return list(goal) if several or len(goal) > 1 else goal[0]
    return None if goal is None else getattr(goal, "__name__", type(goal).__name__)


def model_name(model: object) -> str:
    """For manifests and sentences."""
    kind = type(model)
    if isinstance(model, nn.Module):
        return f"{kind.__module__}.{kind.__qualname__}"
    return getattr(model, "__name__", kind.__qualname__)
