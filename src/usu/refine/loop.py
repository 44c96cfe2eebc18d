"""The loop: score, look where scores change, or where the highest are not decided, split there; until it settles.

It knows neither models nor pictures: it is handed functions that score segments, split them, and say what is affordable
and what is undecided.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from usu.refine.fields import h_map, merge, mixing, strengths
from usu.settings import Settings
from usu.types import Array, NDArray


class StopReason(str, Enum):
    """Why refinement ended; the text says what to try."""

    CONVERGED = "The scores no longer change; a smaller tolerance would refine further."
    DEPTH = "The greatest depth was reached; a greater depth would refine further."
    EVALUATIONS = "The model evaluations are spent; allow more evaluations to refine further."
    SEGMENTS = "There are as many segments as are scored together; fewer parts or children would refine deeper."
    STABLE = "The expected stability is reached; a higher one would take more evaluations."
    STOPPED = "Stopped before all evaluations were made; this is the map as it stood."
    NOTHING_TO_MOVE = (
        "The coarse map is zero everywhere: there is no mass to move. Try another layer, target or source."
    )
    NOTHING_TO_REFINE = "No segment is left to split; a lower threshold or more parts would refine further."
    DECIDED = "Which segments are the highest is decided; a lower threshold would split others of them."


def changed(new: Tensor, old: Tensor, tolerance: float, dims: int = 2) -> bool:
    """The comparator: is the root-mean-square difference of two score fields above the tolerance?

    The paper's Frobenius norm divided by sqrt(H · W); of several targets, one field that changed is enough.

    Guarantees: symmetric; a field has never changed from itself.

    >>> changed(torch.tensor([[0.3, 0.0]]), torch.tensor([[0.0, 0.4]]), 0.36)  # the difference is 0.5 / sqrt(2) = 0.354
    False
    """
    squares = (new.double() - old.double()).square().mean(tuple(range(-dims, 0)))
    return bool((squares.sqrt() > tolerance).any())


@dataclass(frozen=True, eq=False)
class UnitScale:
    """An affine map from effects to scores: s = (value - low) / span; 0.5 where span is 0."""

    low: Tensor
    span: Tensor

    def __call__(self, values: Tensor) -> Tensor:
        """Scores of ``values`` (..., P), clipped to [0, 1]."""
        return self.unclipped(values).clamp(0, 1)

    def unclipped(self, values: Tensor) -> Tensor:
        """For values that will still be shifted."""
        flat = self.span == 0
        return ((values.double() - self.low) / self.span.where(~flat, 1)).where(~flat, 0.5)


def unit_scale(values: Tensor) -> UnitScale:
    """The map that takes the lowest of ``values`` (..., P) to 0 and the highest to 1, for each leading index apart.

    >>> scale = unit_scale(torch.tensor([[2.0, 4.0], [3.0, 3.0]]))
    >>> scale(torch.tensor([[3.0, 5.0], [1.0, 9.0]])).tolist()
    [[0.5, 1.0], [0.5, 0.5]]
    """
    values = values.detach().double()
    low, high = values.amin(-1, keepdim=True), values.amax(-1, keepdim=True)
    span = high - low
    # a spread that is nothing but rounding is no information; stretching it to [0, 1] would invent some
    noise = 8 * torch.finfo(torch.float64).eps * torch.maximum(low.abs(), high.abs())
    return UnitScale(low, span.where(span > noise, 0))


def share_of_largest(values: Tensor) -> UnitScale:
    """The map that takes 0 to 0 and the highest of ``values`` (..., P) to 1, for each leading index apart.

    Min-max stretches noise to all of [0, 1] where nothing is known, and both its ends are the noisiest values. Where
    nothing is above 0, all scores are 0.5.

    >>> share_of_largest(torch.tensor([[-1.0, 2.0, 4.0]]))(torch.tensor([[-1.0, 2.0, 4.0]])).tolist()
    [[0.0, 0.5, 1.0]]
    """
    high = values.detach().double().amax(-1, keepdim=True).clamp(min=0)
    return UnitScale(torch.zeros_like(high), high)


def recentre(children: Tensor, parent_score: Tensor, areas: Tensor) -> Tensor:
    """Shift the scores (..., n) of siblings so that their area-weighted mean is their parent's; then clip to [0, 1].

    s_c + parent - Σ area_c s_c / Σ area_c. Taking away a part has a smaller effect than taking away the whole, so
    without this big segments would outrank their own parts merely by size.

    Guarantees: in [0, 1]; keeps the order of siblings; the mean is the parent's score unless something was clipped.

    >>> recentre(torch.tensor([0.25, 0.5]), torch.tensor(0.75), torch.tensor([1.0, 1.0])).tolist()
    [0.625, 0.875]
    """
    weight = areas.to(children)
    mean = (children * weight).sum(-1) / weight.sum()
    return (children + (parent_score - mean).unsqueeze(-1)).clamp(0, 1)


#: (labels, which) -> effects (targets, len(which)) in float64 of the segments ``which`` of a label map.
Score: TypeAlias = Callable[[NDArray, NDArray], Tensor]
#: (labels, which, limit) -> the next finer label map, nested: the segments ``which``, the most important first, are
#: split into at most ``limit`` children in all.
Split: TypeAlias = Callable[[NDArray, NDArray, "int | None"], NDArray]


@dataclass(frozen=True, eq=False)
class Refined:
    """The score field, and how it came about."""

    #: (targets, H, W) float64 in [0, 1] after each depth.
    fields: tuple[Tensor, ...]
    #: The label map of each depth.
    segments: tuple[NDArray, ...]
    #: (targets, P) in [0, 1]: the scores of each depth's segments, before merging.
    segment_scores: tuple[Tensor, ...]
    stop_reason: StopReason

    @property
    def scores(self) -> Tensor:
        """The last field."""
        return self.fields[-1]


def refine(
    score: Score,
    split: Split,
    segments: Array,
    settings: Settings,
    affordable: Callable[[], int | None] = lambda: None,
    *,
    most: int | None = None,
    undecided: Callable[[], NDArray] | None = None,
) -> Refined:
    """Scores for a first partition, refined where they change, or where it is undecided which are the highest.

    At each depth: H from the field so far; segments with max |H| > threshold are split; their children are scored,
    put on the scale of the first depth and re-centred on their parent; Φ = α Φ_coarse + (1 - α) Φ_fine with α from H.
    With ``undecided`` that takes the place of H, each level is scored whole, on a scale of its own, and nothing is
    re-centred or mixed: parents and children were fitted together.

    Args:
        score: scores segments. What it needs only once (the picture as it is) belongs to its first call.
        segments: the first partition, H x W with labels 0..P-1, each of them used.
        settings: of them, those of the refinement, and the scale.
        affordable: how many more segments ``score`` can be asked about; None: no end to it. When they run short the
            most heterogeneous segments, or the most undecided, come first.
        most: segments that a level may be refined to; None: no end to it. Here, too, those come first.
        undecided: how undecided it is of each segment that was scored last whether it is among the highest, where
            ``score`` has a posterior that remembers every level.

    Guarantees: scores in [0, 1]; never more segments than are affordable; label maps nest.

    >>> halve = lambda labels, which, limit: np.array([[0, 2, 1, 1]])
    >>> effect = lambda labels, which: torch.tensor([[0.0, 1.0, 0.8]], dtype=torch.float64)[:, which]
    >>> result = refine(effect, halve, np.array([[0, 0, 1, 1]]), Settings(depth=1))
    >>> result.segment_scores[1].tolist(), result.stop_reason.name
    ([[0.0, 1.0, 0.4]], 'DEPTH')
    """
    labels = np.asarray(segments)
    per_pixel = settings.scale != "range"

    def effects_of(level: NDArray, some: NDArray) -> Tensor:
        found = score(level, some)
        return found / torch.from_numpy(np.bincount(level.ravel())[some]) if per_pixel else found

    scale = share_of_largest if per_pixel else unit_scale
    raw = effects_of(labels, np.arange(labels.max() + 1))
    unit = scale(raw)
    levels, values, fields = [labels], [unit(raw)], [unit(raw)[:, torch.from_numpy(labels)]]
    reason = StopReason.EVALUATIONS if settings.depth == 0 and affordable() == 0 else StopReason.DEPTH
    while len(levels) <= settings.depth:
        h = h_map(fields[-1], settings.heterogeneity)
        strength = strengths(h, labels).numpy() if undecided is None else undecided()
        which = np.flatnonzero(strength > settings.threshold)
        left, room = affordable(), None if most is None else most - values[-1].shape[1]
        if not which.size:
            reason = StopReason.NOTHING_TO_REFINE if undecided is None else StopReason.DECIDED
            break
        if left is not None and left < 2:  # not the two halves of one segment
            reason = StopReason.EVALUATIONS
            break
        if room is not None and room < 2:
            reason = StopReason.SEGMENTS
            break
        which = which[np.argsort(-strength[which], kind="stable")]
        finer = split(labels, which, min((n for n in (left, room) if n is not None), default=None))
        parent = np.zeros(finer.max() + 1, dtype=np.int64)
        parent[finer] = labels
        families = np.bincount(parent)
        children = np.flatnonzero(families[parent] > 1)
        if not children.size:
            reason = StopReason.NOTHING_TO_REFINE
            break
        if undecided is None:
            new = _inherit(values[-1], parent, children, unit.unclipped(effects_of(finer, children)), finer)
            if settings.reach == "segment":  # its pixels get the segment's largest |H|, for each target apart
                h = torch.stack([strengths(one, labels)[torch.from_numpy(labels)] for one in h])
            field = merge(fields[-1], new[:, torch.from_numpy(finer)], mixing(h, settings.center, settings.mixing))
        else:
            raw = effects_of(finer, np.arange(len(parent)))
            new = scale(raw)(raw)
            field = new[:, torch.from_numpy(finer)]
        left = affordable()
        cut_short = left is not None and left < 2 and bool((families[which] == 1).any())
        settled = not changed(field, fields[-1], settings.tolerance, labels.ndim)
        labels = finer
        levels.append(finer)
        values.append(new)
        fields.append(field)
        if cut_short or settled:
            reason = StopReason.EVALUATIONS if cut_short else StopReason.CONVERGED
            break
    return Refined(tuple(fields), tuple(levels), tuple(values), reason)


def _inherit(old: Tensor, parent: NDArray, children: NDArray, effects: Tensor, labels: NDArray) -> Tensor:
    """The scores of the next level: children re-centred on their parent, everyone else as before."""
    new = old[:, parent]
    areas = torch.from_numpy(np.bincount(labels.ravel()))
    for p in np.unique(parent[children]):
        mine = parent[children] == p
        new[:, children[mine]] = recentre(effects[:, mine], old[:, p], areas[children[mine]])
    return new
