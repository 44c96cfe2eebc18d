"""The plug point: what a segmenter is asked, and what it answers."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np

from usu import _checks as check
from usu.segment.geometry import connected, merge_to
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
