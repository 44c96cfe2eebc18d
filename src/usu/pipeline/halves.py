"""The two halves of the pipeline: what the model says of a picture's parts, and the mass that follows it.

And how much of the map would stay with other random groups: what the posterior of this one run says of both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from usu import _checks as check
from usu.forward import Engine, Progress
from usu.forward.calls import one_thread
from usu.inputs import Input
from usu.operator.cells import Labels, boxes, partition_of
from usu.operator.interpolate import follow_picture, layered, painted, resized, with_trace
from usu.operator.redistribute import SoftPrior, cell_budgets, redistributed
from usu.refine.loop import StopReason, refine, share_of_largest, unit_scale
from usu.score.bayesian import MANY, Effects
from usu.score.posterior import iou_with_first
from usu.score.scorer import Scorer
from usu.segment.hierarchy import split
from usu.settings import Settings
from usu.types import Array, NDArray

#: Labels of the cells, or a grid over a signal or a volume; None: a grid over a picture.
Cells: TypeAlias = Array | Labels | None
#: A logarithmic scale begins at about one part in so many of the largest effect.
DECADES = 100.0
#: Maps that are drawn, and the longest side they are drawn at, in 1, 2 and 3 dimensions: the top 5 % of a map do not
#: need every pixel.
_DRAWS, _SIDES = 12, (4096, 64, 32)
#: Pixels of several maps that are made together.
_AT_ONCE = 1 << 21


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


@dataclass(frozen=True, eq=False)
class Certainty:
    """What the posterior of one run says of its map."""

    #: The expected IoU of the 5 % highest pixels between this run and another, over the targets.
    stability: float
    #: (T, H, W) or (H, W): the standard deviation of each pixel's value.
    stderr: Tensor
    #: More evaluations, and the stability they let expect; empty where it is high already.
    outlook: tuple[tuple[int, float], ...] = ()


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
        blank = torch.zeros(given.size, dtype=given.coarse.dtype, device=given.coarse.device)
        evidence = base_of(given.coarse, blank, settings, cells=given.cells, finer=finer)
        evidence = None if evidence is None else evidence.detach().clamp(min=0).reshape(-1, *given.size)
    # where nothing reaches beyond a cell, D4 says which segments can change the result
    reaching = settings.trace > 0 or settings.edges == "picture" or settings.budget != "cell"
    scorer = Scorer(
        engine, given.image, settings, mass=maps_of(given).abs().amax(0).flatten(), picture=given.picture,
        cells=None if everywhere or reaching else given.partition.labels(), targets=len(finer[0]) if finer else None,
        evidence=evidence, enough=enough, progress=progress,
    )  # fmt: skip
    unscored = settings.scoring == "none"

    def cut(labels: NDArray, which: NDArray, limit: int | None) -> NDArray:
        return split(labels, which, given.picture, settings.segmenter, settings.children, limit=limit)

    first: Array = np.zeros(given.size, np.int64)
    if not unscored:  # a segmenter may be the user's own
        cut_first = settings.segmenter(given.picture, settings.parts)
        first = check.labels("segmenter(...)", cut_first, size=given.size, every=True)
    refined = refine(scorer, cut, first, settings, scorer.affordable, most=scorer.most)
    reason = refined.stop_reason
    if given.empty and not everywhere:
        reason = StopReason.NOTHING_TO_MOVE
    elif scorer.effects is not None and scorer.effects.stopped:
        reason = StopReason.STOPPED
    elif settings.evaluations == "auto" and engine.meter.left:
        reason = StopReason.STABLE
    field = refined.scores if unscored else field_of(refined.scores, given.picture, settings)
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
    coarse: Tensor, scores: Tensor, settings: Settings, *, cells: Cells = None, finer: Sequence[Tensor] = ()
) -> Tensor:
    """The second half: `usu.redistribute` as the settings have it, with the base measure they name.

    ``finer``: maps (..., h', w') of finer layers for ``base="layers"``; without any the coarse map stands alone in it.
    A bilinear base needs a grid, so ``cells`` go without it.
    """
    inner, dims = inner_dims(cells), 2 if cells is None else cells.ndim
    step = max(1, _AT_ONCE // math.prod(scores.shape[-dims:]))
    if scores.ndim > dims and len(scores) > step:  # what is made on the way is many times as large as the maps

        def part(maps: Tensor, own: int, rows: slice) -> Tensor:
            return maps[rows] if maps.ndim - own == scores.ndim - dims else maps

        parts = [slice(start, start + step) for start in range(0, len(scores), step)]
        return torch.cat(
            [
                map_of(
                    part(coarse, inner, rows), scores[rows], settings, cells=cells,
                    finer=[part(level, dims, rows) for level in finer],
                )
                for rows in parts
            ]
        )  # fmt: skip
    base = base_of(coarse, scores, settings, cells=cells, finer=finer)
    return redistributed(
        with_trace(coarse, settings.trace, inner), scores, cells=cells,
        temperature=settings.temperature, potential=settings.potential, budget=settings.budget, base=base,
        signed=settings.signed, max_gain=settings.max_gain,
    )  # fmt: skip


def base_of(
    coarse: Tensor, scores: Tensor, settings: Settings, *, cells: Cells = None, finer: Sequence[Tensor] = ()
) -> Tensor | None:
    """The base measure that the settings name, on the pixels of ``scores``."""
    base = None if settings.base is None else painted(coarse, scores, cells, flat=settings.base == "layers")
    if base is None:
        return None
    base = layered(base, finer, 2 if cells is None else cells.ndim) if settings.base == "layers" else base
    return base if isinstance(settings.budget, SoftPrior) else base.abs()


def mass_error_of(result: Tensor, coarse: Tensor, scores: Tensor, settings: Settings, *, cells: Cells = None) -> float:
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


def sentence(certainty: Certainty, wanted: float) -> str:
    """What a person should know of a map that another seed would change; nothing where it is stable enough.

    >>> sentence(Certainty(1 / 3, torch.zeros(1), ((600, 0.8), (1200, 0.9))), 0.85)
    'About 50 % of the highlighted pixels would be others with another seed; 1200 evaluations would make it about 5 %.'
    """
    if certainty.stability >= wanted:
        return ""
    now = f"About {_changing(certainty.stability)} of the highlighted pixels would be others with another seed"
    evaluations, later = max(certainty.outlook, key=lambda found: found[1], default=(0, 0.0))
    if later < certainty.stability + 0.05:  # more of the same would not help
        return f"{now}."
    return f"{now}; {evaluations} evaluations would make it about {_changing(later)}."


def _changing(iou: float) -> str:
    """The part of a set that is not in another of equal size, from their IoU."""
    return f"{(1 - iou) / (1 + iou):.0%}".replace("%", " %")


def expected_stability(
    effects: Effects, labels: NDArray, given: Input, settings: Settings, finer: Sequence[Tensor], *, times: int = 1
) -> float:
    """The expected IoU of the 5 % highest pixels of this run's map and another's, with ``times`` as many groups.

    Runs are simulated from the posterior (`usu.score.posterior.repeat`) and made into maps as this run's effects are.
    """
    every = torch.cat([effects.mean[None], effects.repeats(_DRAWS, times=times)])
    if times > 1:  # neither of the two is this run
        every = every[1:]
    found = _maps(every, labels, given, settings, finer)
    return float(np.mean([iou_with_first(maps[:, t]) for maps in found for t in range(maps.shape[1])]))


def stable(effects: Effects, labels: NDArray, given: Input, settings: Settings, finer: Sequence[Tensor]) -> bool:
    """Whether another run would show the same, as far as the settings ask for it."""
    return expected_stability(effects, labels, given, settings, finer) >= settings.stability


def certainty_of(scored: Scored, given: Input, settings: Settings, finer: Sequence[Tensor]) -> Certainty:
    """Stability and standard errors of a finished map; where the stability is below the settings', also an outlook."""
    effects, labels = scored.effects, scored.segments[-1]
    if effects is None:
        raise ValueError("`scored` must have a posterior; got scores without.")
    outlook = []
    with one_thread(len(effects.varied) < MANY):
        stability = expected_stability(effects, labels, given, settings, finer)
        spread = torch.cat([maps.std(0) for maps in _maps(effects.draws(_DRAWS), labels, given, settings, finer)])
        for times in (2, 4, 8) if stability < settings.stability else ():
            more = expected_stability(effects, labels, given, settings, finer, times=times)
            outlook.append((times * len(effects.groups), more))
            if more >= settings.stability:
                break
    stderr = resized(spread, given.size).to(given.coarse.dtype)
    several = given.several or len(stderr) > 1
    return Certainty(stability, stderr if several else stderr[0], tuple(outlook))


def _maps(
    effects: Tensor, labels: NDArray, given: Input, settings: Settings, finer: Sequence[Tensor]
) -> Iterator[Tensor]:
    """Effects (n, T, P) as maps (n, t, h, w), small enough to be quick, of a few targets at a time."""
    step = -(-max(labels.shape) // _SIDES[labels.ndim - 1])
    apart = (slice(None, None, step),) * labels.ndim
    small = np.ascontiguousarray(labels[apart])
    shown = torch.from_numpy(np.ascontiguousarray(given.picture)).double().movedim(-1, 0)
    pool: Any = getattr(functional, f"adaptive_avg_pool{labels.ndim}d")
    picture = pool(shown, small.shape).movedim(0, -1).clamp(0, 1).numpy()
    cells = given.cells
    if isinstance(cells, Labels):  # the boxes of a signal or a volume
        cells = boxes(cells.grid or (), small.shape)
    elif cells is not None:
        cells = cells[apart]
    coarse, layers = maps_of(given).cpu().double(), [level.cpu() for level in finer]
    together = max(1, _AT_ONCE // (len(effects) * small.size))
    for some in torch.arange(effects.shape[1]).split(together):

        def own(maps: Tensor, dims: int, some: Tensor = some) -> Tensor:
            return maps[some] if maps.ndim > dims and len(maps) > 1 else maps

        field = segment_scores(effects[:, some], labels, settings)[..., torch.from_numpy(small)]
        field = field_of(field.flatten(0, 1), picture, settings).reshape(field.shape)
        levels = [own(level, small.ndim) for level in layers]
        yield map_of(own(coarse, inner_dims(cells)), field, settings, cells=cells, finer=levels)


def segment_scores(effects: Tensor, labels: NDArray, settings: Settings) -> Tensor:
    """Effects (..., P) of the first depth as scores in [0, 1]; a segment that was left out (NaN) gets the lowest."""
    filled = effects.where(~effects.isnan(), effects.nan_to_num(nan=torch.inf).amin(-1, keepdim=True))
    if settings.scale == "range":
        return unit_scale(filled)(filled)
    densities = filled / torch.from_numpy(np.bincount(labels.ravel()))
    return share_of_largest(densities)(densities)


def maps_of(given: Input) -> Tensor:
    """The coarse maps, (n, h, w) or, with cells, (n, K)."""
    return given.coarse.detach().reshape(-1, *given.coarse.shape[-inner_dims(given.cells) :])


def inner_dims(cells: Cells) -> int:
    """How many dimensions of a coarse map are one map's: those of its grid, or the one that counts cells."""
    return 2 if cells is None else len(cells.grid) if isinstance(cells, Labels) and cells.grid else 1
