"""Nested partitions: how the next, finer one is made."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from usu import _checks as check
from usu.segment.segmenter import Segmenter, label_map, merge_to, question
from usu.types import NDArray


def split(
    labels: NDArray, which: Sequence[int] | NDArray, picture: NDArray, segmenter: Segmenter, parts: int = 4, *,
    limit: int | None = None,
) -> NDArray:  # fmt: skip
    """Cut each segment of ``which`` inside itself into at most ``parts`` children; the others stay as they are.

    A segment that stays whole keeps its label; of one that is cut, one child keeps the label and the others are
    numbered from P upwards.

    Args:
        segmenter: is shown the segment's bounding box and which pixels of it to cut.
        limit: most children in all; the first of ``which`` are served first, the rest stay whole.

    Guarantees: nesting; at most ``limit`` children; labels 0..P'-1.

    >>> from usu.segment import Tiles
    >>> split(np.array([[0, 0, 1, 1]]), [1], np.zeros((1, 4, 3)), Tiles(), 2).tolist()
    [[0, 0, 1, 2]]
    """
    from scipy.ndimage import find_objects

    labels = label_map("labels", labels, least=0, every=True)
    count = int(labels.max()) + 1
    picture, parts, _ = question(picture, parts, None)
    if picture.shape[:-1] != labels.shape:
        raise ValueError(f"`picture` must have the size of `labels` {labels.shape}; got {picture.shape[:-1]}.")
    left = labels.size if limit is None else check.whole_number("limit", limit)
    chosen = check.labels("which", np.asarray(which)).flatten().tolist() if len(which) else []
    if len(set(chosen)) < len(chosen) or max(chosen, default=0) >= count:
        raise ValueError(f"`which` must name different segments of 0 to {count - 1}; got {chosen}.")
    boxes = find_objects(labels + 1)
    result = labels.copy()
    for p in chosen:
        allowed = min(parts, left)
        if allowed < 2:
            break
        box = boxes[p]
        region = labels[box] == p
        found = label_map("segmenter(...)", segmenter(picture[box], allowed, region=region))
        if found.shape != region.shape or not np.array_equal(found >= 0, region):  # a segmenter may be the user's own
            raise ValueError(
                f"`segmenter` must return labels of shape {region.shape}, at least 0 inside `region` and -1 outside; "
                f"got {found.shape} with {np.count_nonzero(found >= 0)} of {np.count_nonzero(region)} pixels labelled."
            )
        children = merge_to(found, allowed)
        born = int(children.max()) + 1
        if born < 2:
            continue
        names = np.concatenate([[p], np.arange(count, count + born - 1)])
        result[box][region] = names[children[region]]
        count += born - 1
        left -= born
    return np.asarray(result)
