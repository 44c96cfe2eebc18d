"""The loop: score, look where scores change, split there, score the parts, merge; until it settles.

It knows neither models nor pictures: it is handed one function that scores segments and one that splits them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from usu import _checks as check
from usu.refine.budget import Purse, Score
from usu.refine.heterogeneity import boundary_segments, heterogeneity, strengths
from usu.refine.labels import count, gather, nested, partition, strongest
from usu.refine.mixing import merge, mixing
from usu.refine.scale import recentre, unit_scale
from usu.refine.stop import StopReason, changed
from usu.types import Array, NDArray


class Split(Protocol):
    """A label map in, the next finer one out."""

    def __call__(self, labels: NDArray, which: NDArray, limit: int | None, /) -> NDArray:
        """Split the segments ``which`` (the most important first) into at most ``limit`` children in all."""


@dataclass(frozen=True, eq=False)
class Refined:
    """The score field, and how it came about."""

    #: (targets, H, W) float64 in [0, 1] after each depth; each is merged from the one before and the finer scores.
    fields: tuple[Tensor, ...]
    #: The label map of each depth.
    segments: tuple[NDArray, ...]
    #: (targets, P) in [0, 1]: the scores of each depth's segments, before merging.
    segment_scores: tuple[Tensor, ...]
    evaluations: int
    stop_reason: StopReason

    @property
    def scores(self) -> Tensor:
        """The last field."""
        return self.fields[-1]


def refine(
    score: Score,
    split: Split,
    segments: Array,
    *,
    depth: int = 2,
    threshold: float = 0.1,
    center: float = 0.1,
    temperature: float = 0.02,
    tolerance: float = 1e-3,
    kind: Literal["range", "diagonal"] = "range",
    reach: Literal["pixel", "segment"] = "pixel",
    evaluations: int | None = None,
    cost: int = 1,
) -> Refined:
    """Scores for a first partition, refined where they change.

    At each depth: H from the field so far; segments with max |H| > threshold are split; their children are scored,
    put on the scale of the first depth and re-centred on their parent; Φ = α Φ_coarse + (1 - α) Φ_fine with α from H.

    Args:
        score: scores segments; see `Score`. What it needs only once (the picture as it is) belongs to its first call.
        split: makes the next level; see `Split`.
        segments: the first partition, H x W with labels 0..P-1.
        depth: the most levels after the first; 0 scores the first partition and stops.
        threshold: of the boundary set.
        center: of the mixing; at least five times ``temperature``, or flat places lose their coarse value.
        temperature: of the mixing.
        tolerance: stop when the field changes by no more than this, root mean square.
        kind: of the heterogeneity.
        reach: how far an edge carries the finer scores: ``"pixel"`` (the paper) to the pixels where H is high, a seam
            along the edge; ``"segment"`` to the whole of every segment that has such a pixel.
        evaluations: the most model evaluations in all. When they run short the most heterogeneous segments come first.
        cost: evaluations that scoring one segment takes; 0 if it does not depend on the number of segments.

    Guarantees: scores in [0, 1]; never more than ``evaluations`` evaluations; label maps nest.

    >>> halve = lambda labels, which, limit: np.array([[0, 2, 1, 1]])
    >>> effect = lambda labels, which, budget: (np.array([[0.0, 1.0, 0.8]])[:, which], len(which))
    >>> result = refine(effect, halve, np.array([[0, 0, 1, 1]]), depth=1, reach="segment")
    >>> result.segment_scores[1].tolist(), result.evaluations, result.stop_reason.name
    ([[0.0, 1.0, 0.4]], 4, 'DEPTH')
    """
    labels = partition("segments", segments)
    depth, cost = count("depth", depth), count("cost", cost)
    check.choice("reach", reach, ("pixel", "segment"))
    _settings(threshold, center, temperature, tolerance, kind)
    purse = Purse(score, None if evaluations is None else count("evaluations", evaluations))

    raw = purse.spend(labels, np.arange(labels.max() + 1))
    scale = unit_scale(raw)
    levels, values, fields = [labels], [scale(raw)], [gather(scale(raw), labels)]
    reason = StopReason.DEPTH
    while len(levels) <= depth:
        h = heterogeneity(fields[-1], kind)
        which = boundary_segments(h, labels, threshold)
        if not which.size:
            reason = StopReason.NOTHING_TO_REFINE
            break
        if purse.short_of(cost):
            reason = StopReason.EVALUATIONS
            break
        strength = strengths(h, labels).numpy()
        which = which[np.argsort(-strength[which], kind="stable")]
        limit = purse.children(cost)
        finer, parent = nested(split(labels.copy(), which, limit), labels)
        families = np.bincount(parent)
        children = np.flatnonzero(families[parent] > 1)
        if limit is not None and len(children) > limit:
            raise ValueError(
                f"`split` must make at most {limit} children, its `limit`; got {len(children)}. Split fewer segments."
            )
        if not children.size:
            reason = StopReason.NOTHING_TO_REFINE
            break
        effects = scale.unclipped(purse.spend(finer, children))
        new = _inherit(values[-1], parent, children, effects, finer)
        if reach == "segment":
            h = strongest(h, labels)
        field = merge(fields[-1], gather(new, finer), mixing(h, center, temperature))
        cut_short = purse.short_of(cost) and bool((families[which] == 1).any())
        settled = not changed(field, fields[-1], tolerance)
        labels = finer
        levels.append(finer)
        values.append(new)
        fields.append(field)
        if cut_short or settled:
            reason = StopReason.EVALUATIONS if cut_short else StopReason.CONVERGED
            break
    return Refined(tuple(fields), tuple(levels), tuple(values), purse.spent, reason)


def _settings(threshold: float, center: float, temperature: float, tolerance: float, kind: str) -> None:
    """Ask now what the steps would ask later: a misspelt word must not cost an hour of model evaluations."""
    check.choice("kind", kind, ("range", "diagonal"))
    check.real_number("center", center)
    check.positive_number("temperature", temperature)
    for name, value in (("threshold", threshold), ("tolerance", tolerance)):
        if check.real_number(name, value) < 0:
            raise ValueError(f"`{name}` must be at least 0; got {value}. Use 0 to refine wherever scores change.")


def _inherit(old: Tensor, parent: NDArray, children: NDArray, effects: Tensor, labels: NDArray) -> Tensor:
    """The scores of the next level: children re-centred on their parent, everyone else as before."""
    new = old[:, parent]
    areas = torch.from_numpy(np.bincount(labels.ravel()))
    for p in np.unique(parent[children]):
        mine = parent[children] == p
        new[:, children[mine]] = recentre(effects[:, mine], old[:, p], areas[children[mine]])
    return new
