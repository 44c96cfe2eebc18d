"""What a segmenter is asked and answers, the geometry of its label maps, and SLIC, the default segmenter.

A label map is an H x W array of integers 0..P-1; pixels of equal label are one segment. With 8-connectivity
throughout.
"""

from __future__ import annotations

import heapq
import warnings
from collections import Counter
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from usu import _checks as check
from usu.types import NDArray


@runtime_checkable
class Segmenter(Protocol):
    """Picture in, label map out."""

    def __call__(self, picture: NDArray, parts: int, *, region: NDArray | None = None) -> NDArray:
        """Cut ``picture`` (H x W x 3 in [0, 1]) into about ``parts`` segments.

        With a ``region`` (H x W, True = to be cut) only that is cut. Returns H x W int64 labels: 0..P-1, each of them
        used (P >= 1), and -1 outside the region.
        """


def question(picture: NDArray, parts: int, region: NDArray | None) -> tuple[NDArray, int, NDArray]:
    """The arguments of a segmenter, checked: a float64 picture, a number, and a region (everything, if None)."""
    if not isinstance(picture, np.ndarray):
        raise TypeError(f"`picture` must be a numpy array; got {type(picture).__name__}.")
    if picture.ndim != 3 or picture.shape[2] != 3:
        advice = "Repeat a grey picture three times, drop alpha."
        raise ValueError(f"`picture` must be H x W x 3; got shape {picture.shape}. {advice}")
    if not np.issubdtype(picture.dtype, np.floating):
        raise TypeError(f"`picture` must hold floats in [0, 1]; got {picture.dtype}. Divide 8-bit pictures by 255.")
    picture = picture.astype(np.float64, copy=False)
    check.in_unit_interval("picture", check.any_tensor("picture", picture))
    parts = check.whole_number("parts", parts, least=1)
    size = picture.shape[:2]
    if region is None:
        return picture, parts, np.ones(size, dtype=bool)
    if not isinstance(region, np.ndarray) or region.dtype != bool or region.shape != size:
        got = f"{region.dtype} {region.shape}" if isinstance(region, np.ndarray) else type(region).__name__
        raise ValueError(f"`region` must be boolean with the picture's shape {size}; got {got}. True = to be cut.")
    if not region.any():
        raise ValueError("`region` must hold at least one pixel; got none.")
    return picture, parts, region


def each_pixel(region: NDArray) -> NDArray:
    """Every pixel its own segment: the answer where as many parts are asked for as there are pixels."""
    labels = np.full(region.shape, -1, dtype=np.int64)
    labels[region] = np.arange(np.count_nonzero(region))
    return labels


def answer(labels: NDArray, parts: int, region: NDArray) -> NDArray:
    """What our own segmenters return: connected segments, at most ``parts``, -1 outside the region.

    A region that itself falls into more than ``parts`` pieces cannot have both; then the number wins.
    """
    return merge_to(connected(np.where(region, labels, -1)), parts)


def bounding_box(region: NDArray) -> tuple[slice, slice]:
    """The smallest window that holds the region: what lies beyond it can have no say."""
    rows, columns = (np.flatnonzero(region.any(axis=axis)) for axis in (1, 0))
    return slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1)


def smoothed(colour: NDArray, region: NDArray, width: float) -> NDArray:
    """A Gaussian blur inside the region only: colour from outside does not leak in. Outside it means nothing."""
    from scipy.ndimage import gaussian_filter

    inside = region[..., None].astype(np.float64)
    widths = (width, width, 0)
    # a pixel of the region always holds some of its own weight, so this divides by zero only outside
    weight = np.where(inside > 0, gaussian_filter(inside, widths, mode="reflect"), 1)
    return np.asarray(gaussian_filter(colour * inside, widths, mode="reflect") / weight)


def label_map(name: str, labels: NDArray, *, least: int | None = None, every: bool = False) -> NDArray:
    """``labels`` as H x W int64; see `usu._checks.labels`."""
    found = check.as_numpy(check.labels(name, labels, least=least, every=every))
    if found.ndim != 2:
        raise ValueError(f"`{name}` must be H x W; got shape {found.shape}.")
    return found


def relabel(labels: NDArray) -> NDArray:
    """The same segments with labels 0..P-1 in the same order; negative labels (outside a region) become -1.

    >>> relabel(np.array([[7, 7, -3], [2, 7, 2]])).tolist()
    [[1, 1, -1], [0, 1, 0]]
    """
    labels = label_map("labels", labels)
    values, rank = np.unique(np.maximum(labels, -1), return_inverse=True)
    return np.asarray(rank.reshape(labels.shape) - int(values[0] < 0))


def refines(fine: NDArray, coarse: NDArray) -> bool:
    """Does every segment of ``fine`` lie in one segment of ``coarse``?

    Guarantees: reflexive and transitive; `refines(a, b)` and `refines(b, a)` only for the same segments.

    >>> halves, quarters = np.array([[0, 0, 1, 1]]), np.array([[0, 1, 2, 3]])
    >>> refines(quarters, halves), refines(halves, quarters)
    (True, False)
    """
    fine, coarse = relabel(fine), relabel(coarse)
    if fine.shape != coarse.shape:
        raise ValueError(f"`fine` and `coarse` must have the same shape; got {fine.shape} and {coarse.shape}.")
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
    pairs, _ = _borders(label_map("labels", labels))
    return np.unique(np.concatenate([pairs, pairs[:, ::-1]]), axis=0)


def boundary(labels: NDArray) -> NDArray:
    """Pixels with an 8-neighbour in another segment: ∂σ_p = {x in σ_p : some y not in σ_p has ‖x - y‖∞ = 1}.

    Guarantees: together with `interior` it covers every segment, and no pixel is in both.

    >>> boundary(np.array([[0, 0, 0, 1]])).tolist()
    [[False, False, True, True]]
    """
    from skimage.segmentation import find_boundaries

    labels = label_map("labels", labels)
    return np.asarray(find_boundaries(labels, connectivity=2, mode="thick"))  # type: ignore[no-untyped-call]


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
    labels = label_map("labels", labels)
    touching = _touching(labels)
    pairs = np.concatenate([touching, touching[::-1]], axis=1)
    here, there = labels.ravel()[pairs]
    pairs = pairs[:, (here == p) & (there == q)]
    pairs = pairs[:, np.lexsort(pairs[::-1])].T
    return np.stack(np.unravel_index(pairs, labels.shape), axis=-1)


def connected(labels: NDArray) -> NDArray:
    """Every 8-connected piece of every segment gets a label of its own; negative labels stay -1.

    >>> connected(np.array([[0, 1, 0]])).tolist()
    [[0, 1, 2]]
    """
    from skimage.measure import label

    inside = np.maximum(label_map("labels", labels), -1)
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
    border: list[Counter[int]] = [Counter() for _ in sizes]
    for (p, q), length in zip(*(found.tolist() for found in _borders(labels)), strict=True):
        if p >= 0:  # the smaller one comes first, so q is inside too
            border[p][q] = border[q][p] = length
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
        for other, length in border[p].items():
            del border[other][p]
            if other != q:
                border[q][other] += length
                border[other][q] += length
        joined[p], sizes[q] = q, sizes[q] + size
        heapq.heappush(queue, (sizes[q], q))
        surplus -= 1
    root = np.array([*joined, -1])  # label -1 reads the last entry
    while (root[root] != root).any():
        root = root[root]
    return relabel(root[labels])


def _borders(labels: NDArray) -> tuple[NDArray, NDArray]:
    """Touching segments as rows (p, q) with p < q, and the number of pairs of neighbouring pixels of each."""
    low = int(labels.min())
    base = int(labels.max()) - low + 1
    p, q = np.sort(labels.ravel()[_touching(labels)] - low, axis=0)
    pairs, lengths = np.unique(p * base + q, return_counts=True)
    return np.stack(np.divmod(pairs, base), axis=1) + low, lengths


def _touching(labels: NDArray) -> NDArray:
    """2 x N: places of neighbouring pixels in different segments, each pair once."""
    place = np.arange(labels.size).reshape(labels.shape)
    # half of the eight neighbours; the other half are the same pairs, read backwards
    right, down = (place[:, :-1], place[:, 1:]), (place[:-1], place[1:])
    down_right, down_left = (place[:-1, :-1], place[1:, 1:]), (place[:-1, 1:], place[1:, :-1])
    steps = (right, down, down_right, down_left)
    pairs = np.concatenate([np.stack([x.ravel(), y.ravel()]) for x, y in steps], axis=1)
    here, there = labels.ravel()[pairs]
    return pairs[:, here != there]


#: Seeds on a lattice are fast but in thin pictures or with few parts their segments may be far fewer than asked for;
#: below this share of them the seeds are spread by k-means instead.
_ENOUGH = 0.75


@dataclass(frozen=True)
class Slic:
    """k-means in colour (CIELAB) and place: segments of similar size that follow edges.

    ``compactness`` weighs place against colour: 1 follows every edge, 100 gives nearly square segments.
    ``smoothing`` is the width in pixels of a Gaussian blur beforehand.

    Guarantees: the same picture gives the same segments; connected; at most ``parts``; what lies outside a region does
    not change them.
    """

    compactness: float = 10.0
    smoothing: float = 0.0
    iterations: int = 10

    def __post_init__(self) -> None:
        check.positive_number("compactness", self.compactness)
        check.real_number("smoothing", self.smoothing, least=0)
        check.whole_number("iterations", self.iterations, least=1)

    def __call__(self, picture: NDArray, parts: int, *, region: NDArray | None = None) -> NDArray:
        """Cut ``picture``, or the ``region`` of it, into about ``parts`` superpixels."""
        whole = region is None
        picture, parts, region = question(picture, parts, region)
        pixels = np.count_nonzero(region)
        if pixels <= parts:
            return answer(each_pixel(region), parts, region)
        if parts == 1:
            return answer(np.zeros(region.shape, dtype=np.int64), parts, region)
        if whole:
            labels = answer(self._run(picture, parts, None), parts, region)
            if labels.max() + 1 >= _ENOUGH * parts:
                return labels
        found, box = np.zeros(region.shape, dtype=np.int64), bounding_box(region)
        found[box] = self._run(picture[box], parts, region[box])
        return answer(found, parts, region)

    def _run(self, picture: NDArray, parts: int, region: NDArray | None) -> NDArray:
        from skimage.segmentation import slic

        compactness, blur, lab = self.compactness, self.smoothing, None
        if region is not None and blur > 0 and not region.all():
            picture = smoothed(_lab(picture, region), region, blur)
            # slic brings whatever it is given to [0, 1]; this takes that back
            compactness, blur, lab = compactness / (float(np.ptp(picture[region])) or 1.0), 0.0, False
        with warnings.catch_warnings():
            # k-means tells when a seed ends up without pixels; that seed's segment is simply not there
            warnings.simplefilter("ignore", UserWarning)
            labels = slic(
                picture,
                n_segments=parts,
                compactness=compactness,
                max_num_iter=self.iterations,
                sigma=blur,
                convert2lab=lab,
                start_label=1,
                # its own clean-up joins everything in noisy or thin pictures; `answer` joins the smallest pieces first
                enforce_connectivity=False,
                mask=region,
            )
        return np.asarray(labels, dtype=np.int64)


def _lab(picture: NDArray, region: NDArray) -> NDArray:
    """The region's colours from 0 to 1, then in CIELAB, as slic does before it blurs: but its blur knows no region."""
    from skimage.color import rgb2lab

    low, high = float(picture[region].min()), float(picture[region].max())
    return np.asarray(rgb2lab(np.where(region[..., None], (picture - low) / ((high - low) or 1.0), 0.0)))
