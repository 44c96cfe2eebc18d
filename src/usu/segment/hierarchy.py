"""Nested partitions, from coarse to fine, and how the next one is made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from usu.segment.geometry import checked, parents, relabel
from usu.segment.pieces import merge_to
from usu.segment.segmenter import Segmenter, question, whole_number
from usu.types import NDArray


@dataclass(frozen=True, eq=False)
class Hierarchy:
    """Label maps that nest: every segment of ``levels[d + 1]`` lies in one segment of ``levels[d]``.

    ``parents[d][p]`` is the segment of level d that segment p of level d + 1 lies in; it follows from the levels.

    Guarantees: levels have labels 0..P-1, nest, and cannot be written to.

    >>> Hierarchy((np.array([[0, 0, 1]]), np.array([[0, 2, 1]]))).parents[0].tolist()
    [0, 1, 0]
    """

    levels: tuple[NDArray, ...]
    parents: tuple[NDArray, ...] = field(init=False)

    def __post_init__(self) -> None:
        if not self.levels:
            raise ValueError("`levels` must hold at least one label map; got none. Start with a segmenter's.")
        levels = tuple(_level(d, labels) for d, labels in enumerate(self.levels))
        links = []
        for d, (coarse, fine) in enumerate(pairwise(levels)):
            if fine.shape != coarse.shape:
                raise ValueError(
                    f"`levels` must have one shape; got {coarse.shape} and {fine.shape}. Use label maps of one picture."
                )
            parent = parents(fine, coarse)
            astray = fine[parent[fine] != coarse]
            if astray.size:
                raise ValueError(
                    f"`levels` must nest; got segment {astray[0]} of level {d + 1}, which lies in several segments of "
                    f"level {d}. Make the next level with usu.segment.split."
                )
            links.append(_frozen(parent))
        object.__setattr__(self, "levels", tuple(_frozen(labels) for labels in levels))
        object.__setattr__(self, "parents", tuple(links))

    @property
    def depth(self) -> int:
        """The number of levels below the first."""
        return len(self.levels) - 1

    def split(
        self,
        which: Sequence[int] | NDArray,
        picture: NDArray,
        segmenter: Segmenter,
        parts: int = 4,
        *,
        limit: int | None = None,
    ) -> Hierarchy:
        """One level more; see `split`."""
        return Hierarchy((*self.levels, split(self.levels[-1], which, picture, segmenter, parts, limit=limit)))


def split(
    labels: NDArray,
    which: Sequence[int] | NDArray,
    picture: NDArray,
    segmenter: Segmenter,
    parts: int = 4,
    *,
    limit: int | None = None,
) -> NDArray:
    """Cut each segment of ``which`` inside itself into at most ``parts`` children; the others stay as they are.

    Args:
        labels: H x W, 0..P-1.
        which: labels to cut, the most important first.
        picture: H x W x 3 in [0, 1].
        segmenter: is shown the segment's bounding box and which pixels of it to cut.
        parts: most children of one segment.
        limit: most children in all; the first of ``which`` are served first, the rest stay whole.

    Returns:
        A label map that refines ``labels``. A segment that stays whole keeps its label; of one that is cut, one child
        keeps the label and the others are numbered from P upwards.

    Guarantees: nesting; at most ``limit`` children; labels 0..P'-1.

    >>> from usu.segment import Grid
    >>> split(np.array([[0, 0, 1, 1]]), [1], np.zeros((1, 4, 3)), Grid(), 2).tolist()
    [[0, 0, 1, 2]]
    """
    from scipy.ndimage import find_objects

    labels = _level(0, labels)
    count = int(labels.max()) + 1
    picture, parts, _ = question(picture, parts, None)
    if picture.shape[:2] != labels.shape:
        raise ValueError(
            f"`picture` must have the size of `labels` {labels.shape}; got {picture.shape[:2]}. Resize one of them."
        )
    left = whole_number("limit", limit, least=0) if limit is not None else labels.size
    boxes = find_objects(labels + 1)
    result = labels.copy()
    for p in _chosen(which, count):
        allowed = min(parts, left)
        if allowed < 2:
            break
        box = boxes[p]
        region = labels[box] == p
        children = merge_to(_answer(segmenter(picture[box], allowed, region=region), region), allowed)
        born = int(children.max()) + 1
        if born < 2:
            continue
        names = np.concatenate([[p], np.arange(count, count + born - 1)])
        result[box][region] = names[children[region]]
        count += born - 1
        left -= born
    return result


def _chosen(which: Sequence[int] | NDArray, count: int) -> list[int]:
    chosen = np.asarray(which)
    if chosen.size == 0:
        return []
    if chosen.ndim != 1 or not np.issubdtype(chosen.dtype, np.integer):
        raise TypeError(f"`which` must be a list of labels; got {chosen.dtype} {chosen.shape}. Pass integers.")
    if chosen.min() < 0 or chosen.max() >= count or len(np.unique(chosen)) != len(chosen):
        raise ValueError(
            f"`which` must name different segments of 0 to {count - 1}; got {chosen.min()} to {chosen.max()}, "
            f"{len(np.unique(chosen))} different of {len(chosen)}. Take labels from the map."
        )
    return [int(p) for p in chosen]


def _answer(labels: NDArray, region: NDArray) -> NDArray:
    """A segmenter may be the user's own: look at what it says before using it."""
    labels = checked("the segmenter's answer", labels)
    if labels.shape != region.shape or not np.array_equal(labels >= 0, region):
        raise ValueError(
            f"`segmenter` must return labels of shape {region.shape}, at least 0 inside `region` and -1 outside; got "
            f"{labels.shape} with {np.count_nonzero(labels >= 0)} of {np.count_nonzero(region)} pixels labelled. "
            "See usu.segment.Segmenter."
        )
    return relabel(labels)


def _level(depth: int, labels: NDArray) -> NDArray:
    labels = checked(f"levels[{depth}]", labels)
    if labels.min() != 0 or not np.bincount(labels.ravel(), minlength=1).all():
        raise ValueError(
            f"`levels[{depth}]` must have labels 0 to P - 1, each of them used; got labels from {labels.min()} to "
            f"{labels.max()}, {len(np.unique(labels))} different. Call usu.segment.relabel first."
        )
    return labels


def _frozen(labels: NDArray) -> NDArray:
    copy = labels.copy()
    copy.flags.writeable = False
    return copy
