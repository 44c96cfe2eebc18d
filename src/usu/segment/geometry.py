"""The geometry of a label map: nesting, adjacency, boundary and interior, with 8-connectivity throughout.

A label map is an H x W array of integers 0..P-1; pixels of equal label are one segment.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from usu.types import NDArray

#: Half of the eight neighbours: right, down, down-right, down-left. The other half are the same pairs, read backwards.
_STEPS = ((0, 1), (1, 0), (1, 1), (1, -1))


def checked(name: str, labels: NDArray) -> NDArray:
    """``labels`` as int64, or one sentence about what is wrong with it."""
    if not isinstance(labels, np.ndarray):
        raise TypeError(f"`{name}` must be a numpy array; got {type(labels).__name__}. Use numpy.asarray(...).")
    if not np.issubdtype(labels.dtype, np.integer):
        raise TypeError(f"`{name}` must hold integer labels; got {labels.dtype}. Convert it, e.g. to int64.")
    if labels.ndim != 2 or labels.size == 0:
        raise ValueError(f"`{name}` must be H x W with at least one pixel; got shape {labels.shape}. Pass a label map.")
    return labels.astype(np.int64, copy=False)


def relabel(labels: NDArray) -> NDArray:
    """The same segments with labels 0..P-1 in the same order; negative labels (outside a region) become -1.

    >>> relabel(np.array([[7, 7, -3], [2, 7, 2]])).tolist()
    [[1, 1, -1], [0, 1, 0]]
    """
    labels = checked("labels", labels)
    low, high = min(int(labels.min()), 0), int(labels.max())
    rank: NDArray
    if high - low > 4 * labels.size + 1024:  # a table of all possible labels would be larger than the picture
        values, inverse = np.unique(labels, return_inverse=True)
        rank = np.maximum(inverse.reshape(labels.shape) - int((values < 0).sum()), -1)
        return rank
    present = np.zeros(high - low + 1, dtype=np.int64)
    present[(labels - low).ravel()] = 1
    present[:-low] = 0
    rank = present.cumsum() - 1
    rank[:-low] = -1
    rank = rank[labels - low]
    return rank


def refines(fine: NDArray, coarse: NDArray) -> bool:
    """Does every segment of ``fine`` lie in one segment of ``coarse``?

    Guarantees: reflexive and transitive; `refines(a, b)` and `refines(b, a)` only for the same segments.

    >>> halves, quarters = np.array([[0, 0, 1, 1]]), np.array([[0, 1, 2, 3]])
    >>> refines(quarters, halves), refines(halves, quarters)
    (True, False)
    """
    fine, coarse = relabel(fine), relabel(coarse)
    if fine.shape != coarse.shape:
        raise ValueError(
            f"`fine` and `coarse` must have the same shape; got {fine.shape} and {coarse.shape}. "
            "Compare label maps of one picture."
        )
    return bool((parents(fine, coarse)[fine] == coarse).all())


def parents(fine: NDArray, coarse: NDArray) -> NDArray:
    """For each segment of ``fine`` (labels 0..P-1) the segment of ``coarse`` it lies in, if it lies in one.

    >>> parents(np.array([[0, 2, 1, 1]]), np.array([[0, 0, 1, 1]])).tolist()
    [0, 1, 0]
    """
    parent = np.zeros(int(fine.max()) + 1, dtype=np.int64)
    parent[fine] = coarse
    return parent


def adjacency(labels: NDArray) -> NDArray:
    """Which segments touch: all ordered pairs (p, q) with pixels ‖x - y‖∞ = 1, x in p, y in q, p ≠ q.

    Returns:
        An E x 2 array, sorted by rows. The neighbours of p are ``pairs[pairs[:, 0] == p, 1]``.

    Guarantees: symmetric (with (p, q) comes (q, p)) and irreflexive (never (p, p)).

    >>> adjacency(np.array([[0, 0], [0, 1]])).tolist()
    [[0, 1], [1, 0]]
    """
    pairs, _ = contacts(checked("labels", labels))
    both = np.concatenate([pairs, pairs[:, ::-1]])
    return both[np.lexsort((both[:, 1], both[:, 0]))]


def contacts(labels: NDArray) -> tuple[NDArray, NDArray]:
    """Touching segments as rows (p, q) with p < q, and the number of pairs of neighbouring pixels of each."""
    low = int(labels.min())
    base = int(labels.max()) - low + 1
    codes = []
    for here, there in _neighbours(labels.shape):
        left, right = labels[here], labels[there]
        differ = left != right
        left, right = left[differ] - low, right[differ] - low
        codes.append(np.minimum(left, right) * base + np.maximum(left, right))
    pairs, lengths = np.unique(np.concatenate(codes), return_counts=True)
    return np.stack(np.divmod(pairs, base), axis=1) + low, lengths


def boundary(labels: NDArray) -> NDArray:
    """Pixels with an 8-neighbour in another segment: ∂σ_p = {x in σ_p : some y not in σ_p has ‖x - y‖∞ = 1}.

    Guarantees: together with `interior` it covers every segment, and no pixel is in both.

    >>> boundary(np.array([[0, 0, 0, 1]])).tolist()
    [[False, False, True, True]]
    """
    labels = checked("labels", labels)
    edge = np.zeros(labels.shape, dtype=bool)
    for here, there in _neighbours(labels.shape):
        differ = labels[here] != labels[there]
        edge[here] |= differ
        edge[there] |= differ
    return edge


def interior(labels: NDArray) -> NDArray:
    """Pixels whose eight neighbours (those inside the picture) all lie in their own segment: σ_p without ∂σ_p.

    >>> interior(np.array([[0, 0, 0, 1]])).tolist()
    [[True, True, False, False]]
    """
    return ~boundary(labels)


def between(labels: NDArray, p: int, q: int) -> NDArray:
    """The boundary between two segments: all pixel pairs (x, y) with x in p, y in q and ‖x - y‖∞ = 1.

    Returns:
        An N x 2 x 2 array, sorted: ``pairs[i, 0]`` is the (row, column) of x, ``pairs[i, 1]`` that of y.

    Guarantees: (x, y) is in between(p, q) exactly when (y, x) is in between(q, p); empty for p = q.

    >>> between(np.array([[0, 0, 1]]), 1, 0).tolist()
    [[[0, 2], [0, 1]]]
    """
    labels = checked("labels", labels)
    if p == q:
        return np.empty((0, 2, 2), dtype=np.int64)
    found = []
    for here, there in _neighbours(labels.shape):
        for x, y in ((here, there), (there, here)):
            hit = np.argwhere((labels[x] == p) & (labels[y] == q))
            found.append(np.stack([hit + _corner(x), hit + _corner(y)], axis=1))
    pairs = np.concatenate(found)
    order = np.lexsort(pairs.reshape(-1, 4).T[::-1])
    return pairs[order]


def _neighbours(shape: tuple[int, ...]) -> Iterator[tuple[tuple[slice, slice], tuple[slice, slice]]]:
    """Two windows for each step, so that ``a[here]`` and ``a[there]`` hold neighbouring pixels at the same index."""
    height, width = shape
    for down, right in _STEPS:
        here = (slice(0, height - down), slice(max(0, -right), width - max(0, right)))
        there = (slice(down, height), slice(max(0, right), width - max(0, -right)))
        yield here, there


def _corner(window: tuple[slice, slice]) -> NDArray:
    return np.array([window[0].start, window[1].start])
