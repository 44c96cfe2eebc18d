"""What a segmenter is asked and answers, the geometry of its label maps, and SLIC, the default one.

A label map is an H x W array of integers 0..P-1; pixels of equal label are one segment. Pixels are neighbours if they
touch, at a corner too. A signal is a picture of one dimension (L x channels, labels of length L), a volume one of three
(D x H x W x channels).
"""

from __future__ import annotations

import heapq
import warnings
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from typing import Protocol, runtime_checkable

import numpy as np

from usu import _checks as check
from usu.types import NDArray

#: Of a signal or a volume.
MOST_CHANNELS = 16
#: SLIC's seeds on a lattice are fast but in thin pictures or with few parts their segments may be far fewer than asked
#: for; below this share of them the seeds are spread by k-means instead.
_ENOUGH = 0.75


@runtime_checkable
class Segmenter(Protocol):
    """Picture in, label map out."""

    def __call__(self, picture: NDArray, parts: int, *, region: NDArray | None = None) -> NDArray:
        """Cut ``picture`` (H x W x 3 in [0, 1]) into about ``parts`` segments.

        With a ``region`` (H x W, True = to be cut) only that is cut. Returns H x W int64 labels: 0..P-1, each of them
        used (P >= 1), and -1 outside the region. Who wants to serve signals and volumes reads the size off the picture.
        """


def question(picture: NDArray, parts: int, region: NDArray | None) -> tuple[NDArray, int, NDArray]:
    """The arguments of a segmenter, checked: a float64 picture, a number, and a region (everything, if None)."""
    if not isinstance(picture, np.ndarray):
        raise TypeError(f"`picture` must be a numpy array; got {type(picture).__name__}.")
    channels = 3 if picture.ndim == 3 else min(picture.shape[-1], MOST_CHANNELS) if picture.ndim in (2, 4) else 0
    if 0 in picture.shape or picture.shape[-1] != channels:
        raise ValueError(
            f"`picture` must be H x W x 3, or L x channels or D x H x W x channels with at most {MOST_CHANNELS}; got "
            f"shape {picture.shape}. Repeat a grey picture three times, drop alpha."
        )
    if not np.issubdtype(picture.dtype, np.floating):
        raise TypeError(f"`picture` must hold floats in [0, 1]; got {picture.dtype}. Divide 8-bit pictures by 255.")
    picture = picture.astype(np.float64, copy=False)
    check.in_unit_interval("picture", check.any_tensor("picture", picture))
    parts = check.whole_number("parts", parts, least=1)
    size = picture.shape[:-1]
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


def bounding_box(region: NDArray) -> tuple[slice, ...]:
    """The smallest window that holds the region: what lies beyond it can have no say."""
    return tuple(slice(int(places.min()), int(places.max()) + 1) for places in np.nonzero(region))


def smoothed(colour: NDArray, region: NDArray, width: float) -> NDArray:
    """A Gaussian blur inside the region only: colour from outside does not leak in. Outside it means nothing."""
    from scipy.ndimage import gaussian_filter

    inside, widths = region[..., None].astype(np.float64), (width,) * region.ndim + (0,)
    # a pixel of the region always holds some of its own weight, so this divides by zero only outside
    weight = np.where(inside > 0, gaussian_filter(inside, widths, mode="reflect"), 1)
    return np.asarray(gaussian_filter(colour * inside, widths, mode="reflect") / weight)


def label_map(name: str, labels: NDArray, *, least: int | None = None, every: bool = False) -> NDArray:
    """``labels`` as int64 of one, two or three dimensions; see `usu._checks.labels`."""
    found = check.as_numpy(check.labels(name, labels, least=least, every=every))
    if not 1 <= found.ndim <= 3:
        raise ValueError(f"`{name}` must be H x W, L or D x H x W; got shape {found.shape}.")
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
    """Which segments touch: all ordered pairs (p, q) with pixels ‖x - y‖∞ = 1, x in p, y in q, p ≠ q, sorted; E x 2.

    Guarantees: symmetric (with (p, q) comes (q, p)) and irreflexive (never (p, p)).

    >>> adjacency(np.array([[0, 0], [0, 1]])).tolist()
    [[0, 1], [1, 0]]
    """
    pairs, _ = _borders(label_map("labels", labels))
    return np.unique(np.concatenate([pairs, pairs[:, ::-1]]), axis=0)


def boundary(labels: NDArray) -> NDArray:
    """Pixels with a neighbour in another segment: ∂σ_p = {x in σ_p : some y not in σ_p has ‖x - y‖∞ = 1}.

    Guarantees: together with `interior` it covers every segment, and no pixel is in both.

    >>> boundary(np.array([[0, 0, 0, 1]])).tolist()
    [[False, False, True, True]]
    """
    from skimage.segmentation import find_boundaries

    labels = label_map("labels", labels)
    return np.asarray(find_boundaries(labels, connectivity=labels.ndim, mode="thick"))  # type: ignore[no-untyped-call]


def interior(labels: NDArray) -> NDArray:
    """Pixels whose neighbours all lie in their own segment: σ_p without ∂σ_p.

    >>> interior(np.array([[0, 0, 0, 1]])).tolist()
    [[True, True, False, False]]
    """
    return ~boundary(labels)


def connected(labels: NDArray) -> NDArray:
    """Every connected piece of every segment gets a label of its own; negative labels stay -1.

    >>> connected(np.array([[0, 1, 0]])).tolist()
    [[0, 1, 2]]
    """
    from skimage.measure import label

    inside = np.maximum(label_map("labels", labels), -1)
    pieces = label(inside, background=-1, connectivity=inside.ndim)  # type: ignore[no-untyped-call]
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

    def here_of(step: Iterable[int]) -> NDArray:
        """Labels of the pixels from which such a step stays inside."""
        return np.ravel(labels[tuple(slice(max(0, -n), -n if n > 0 else None) for n in step)])

    # half of the neighbours; the other half are the same pairs, read backwards
    steps = [step for step in product((0, 1, -1), repeat=labels.ndim) if step > (0,) * labels.ndim]
    pairs = np.concatenate([np.stack([here_of(step), here_of(-n for n in step)]) for step in steps], axis=1)
    low, base = int(labels.min()), int(np.ptp(labels)) + 1
    p, q = np.sort(pairs[:, pairs[0] != pairs[1]] - low, axis=0)
    borders, lengths = np.unique(p * base + q, return_counts=True)
    return np.stack(np.divmod(borders, base), axis=1) + low, lengths


@dataclass(frozen=True)
class Slic:
    """k-means in colour (CIELAB) and place: segments of similar size that follow edges.

    ``compactness`` weighs place against colour: 1 follows every edge, 100 gives nearly square segments.
    ``smoothing`` is the width in pixels of a Gaussian blur beforehand. Channels other than three are lightness.

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
        if np.count_nonzero(region) <= parts:
            return answer(each_pixel(region), parts, region)
        if parts == 1:
            return region.astype(np.int64) - 1
        if whole:
            labels = answer(self._run(picture, parts, None), parts, region)
            if labels.max() + 1 >= _ENOUGH * parts:
                return labels
        found, box = np.zeros(region.shape, dtype=np.int64), bounding_box(region)
        found[box] = self._run(picture[box], parts, region[box])
        return answer(found, parts, region)

    def _run(self, picture: NDArray, parts: int, region: NDArray | None) -> NDArray:
        from skimage.color import rgb2lab
        from skimage.segmentation import slic

        size, coloured = picture.shape[:-1], picture.ndim > 2 and picture.shape[-1] == 3
        if len(size) == 1:  # slic wants rows: a signal has one
            picture, region = picture[None], None if region is None else region[None]
        # slic brings whatever it is given to [0, 1], where the lightness of CIELAB runs to 100
        compactness, blur, lab = self.compactness / (1 if coloured else 100), self.smoothing, coloured
        if blur > 0 and region is not None and not region.all():  # slic's own blur knows no region
            if coloured:
                low, high = float(picture[region].min()), float(picture[region].max())
                picture = rgb2lab(np.where(region[..., None], (picture - low) / ((high - low) or 1.0), 0.0))
            picture = smoothed(picture, region, blur)
            # this takes back that slic brings it to [0, 1]
            compactness, blur, lab = compactness / (float(np.ptp(picture[region])) or 1.0), 0.0, False
        with warnings.catch_warnings():
            # k-means tells when a seed ends up without pixels; that seed's segment is simply not there
            warnings.simplefilter("ignore", UserWarning)
            labels = slic(
                picture,
                n_segments=parts,
                compactness=compactness,
                max_num_iter=self.iterations,
                sigma=[blur if side > 1 else 0.0 for side in picture.shape[:-1]],
                convert2lab=lab,
                channel_axis=-1,
                start_label=1,
                # its own clean-up joins everything in noisy or thin pictures; `answer` joins the smallest pieces first
                enforce_connectivity=False,
                mask=region,
            )
        return np.asarray(labels, dtype=np.int64).reshape(size)  # type: ignore[no-any-return] # skimage has no types
