"""Taking label maps apart into connected pieces, and putting pieces together again."""

from __future__ import annotations

import heapq
from collections import Counter

import numpy as np

from usu.segment.geometry import checked, contacts, relabel
from usu.types import NDArray


def connected(labels: NDArray) -> NDArray:
    """Every 8-connected piece of every segment gets a label of its own; negative labels stay -1.

    >>> connected(np.array([[0, 1, 0]])).tolist()
    [[0, 1, 2]]
    """
    from skimage.measure import label

    inside = np.maximum(checked("labels", labels), -1)
    pieces = label(inside, background=-1, connectivity=2)  # type: ignore[no-untyped-call]
    return np.asarray(pieces, dtype=np.int64) - 1


def merge_to(labels: NDArray, most: int) -> NDArray:
    """At most ``most`` segments: again and again the smallest joins the neighbour it shares most border with.

    Segments without neighbours are only joined when nothing else is left. Negative labels stay -1.

    >>> merge_to(np.array([[0, 0, 1, 2, 2, 2]]), 2).tolist()
    [[0, 0, 0, 1, 1, 1]]
    """
    labels = relabel(labels)
    surplus = int(labels.max()) + 1 - most
    if surplus <= 0:
        return labels
    sizes = np.bincount(labels[labels >= 0]).tolist()
    border = _border_lengths(labels, len(sizes))
    joined = list(range(len(sizes)))
    queue = [(size, p) for p, size in enumerate(sizes)]
    heapq.heapify(queue)
    alone: list[tuple[int, int]] = []
    while surplus > 0:
        if not queue:  # only segments without neighbours are left: the smallest two become one
            queue, alone = sorted(alone), []
            border[queue[0][1]][queue[1][1]] = border[queue[1][1]][queue[0][1]] = 1
        size, p = heapq.heappop(queue)
        if joined[p] != p or size != sizes[p]:
            continue  # an old entry: p was joined to another, or has grown since
        if not border[p]:
            alone.append((size, p))
            continue
        # ties go to the smaller label, so that the answer does not depend on the order of a dictionary
        q = max(border[p], key=lambda other: (border[p][other], -other))
        for other, length in border.pop(p).items():
            del border[other][p]
            if other != q:
                border[q][other] += length
                border[other][q] += length
        joined[p], sizes[q] = q, sizes[q] + size
        heapq.heappush(queue, (sizes[q], q))
        surplus -= 1
    for p in range(len(joined)):
        root = p
        while joined[root] != root:
            root = joined[root]
        joined[p] = root
    table = np.array([*joined, -1])  # label -1 reads the last entry
    return relabel(table[labels])


def _border_lengths(labels: NDArray, count: int) -> dict[int, Counter[int]]:
    border: dict[int, Counter[int]] = {p: Counter() for p in range(count)}
    pairs, lengths = contacts(labels)
    for (p, q), length in zip(pairs.tolist(), lengths.tolist(), strict=True):
        if p >= 0:  # the smaller one comes first, so q is inside too
            border[p][q] = border[q][p] = length
    return border
