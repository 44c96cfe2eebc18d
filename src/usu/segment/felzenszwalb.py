"""Felzenszwalb and Huttenlocher's graph segmentation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from usu import _checks as check
from usu.segment.segmenter import answer, bounding_box, each_pixel, question, smoothed
from usu.types import NDArray

#: A colour no picture has: pixels outside the region form segments of their own.
_NOWHERE = 10.0


@dataclass(frozen=True)
class Felzenszwalb:
    """Regions of one texture, of very different sizes; the scale is searched so that about ``parts`` come out.

    ``smoothing`` is the width in pixels of a Gaussian blur beforehand, ``tries`` the number of scales tried.

    Guarantees: the same picture gives the same segments; connected; at most ``parts``; what lies outside a region does
    not change them.
    """

    smoothing: float = 0.8
    tries: int = 8

    def __post_init__(self) -> None:
        check.real_number("smoothing", self.smoothing, least=0)
        check.whole_number("tries", self.tries, least=1)

    def __call__(self, picture: NDArray, parts: int, *, region: NDArray | None = None) -> NDArray:
        """Cut ``picture``, or the ``region`` of it, into about ``parts`` segments."""
        from skimage.segmentation import felzenszwalb

        picture, parts, region = question(picture, parts, region)
        if region.ndim == 1:  # a signal is a picture of one row
            row = np.repeat(picture[None].mean(2, keepdims=True), 3, 2)
            return self(row, parts, region=region[None]).reshape(-1)
        if region.ndim == 3:
            raise ValueError(f"`picture` must be H x W x 3 or L x channels for Felzenszwalb; got {picture.shape}.")
        pixels = int(np.count_nonzero(region))
        if pixels <= parts:
            return answer(each_pixel(region), parts, region)
        box = bounding_box(region)
        inner = region[box]
        colour = smoothed(picture[box], inner, self.smoothing) if self.smoothing > 0 else picture[box]
        colour = np.where(inner[..., None], colour, _NOWHERE)
        least = max(1, pixels // (8 * parts))
        best, nearest = np.zeros(inner.shape, dtype=np.int64), abs(1 - parts)
        low, high = -2.0, 6.0  # log10 of the scale; more segments at the low end
        for _ in range(self.tries):
            middle = (low + high) / 2
            labels = np.asarray(felzenszwalb(colour, scale=10**middle, sigma=0, min_size=least), dtype=np.int64)
            count = len(np.unique(labels[inner]))
            if abs(count - parts) < nearest:
                best, nearest = labels, abs(count - parts)
            if count == parts:
                break
            low, high = (middle, high) if count > parts else (low, middle)
        found = np.zeros(region.shape, dtype=np.int64)
        found[box] = best
        return answer(found, parts, region)
