"""Felzenszwalb and Huttenlocher's graph segmentation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from usu import _checks as check
from usu.segment.segmenter import answer, each_pixel, question
from usu.types import NDArray

#: A colour no picture has: pixels outside the region form segments of their own.
_NOWHERE = 10.0


@dataclass(frozen=True)
class Felzenszwalb:
    """Regions of one texture, of very different sizes; the scale is searched so that about ``parts`` come out.

    ``smoothing`` is the width in pixels of a Gaussian blur beforehand, ``tries`` the number of scales tried.

    Guarantees: the same picture gives the same segments; connected; at most ``parts``.
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
        pixels = int(np.count_nonzero(region))
        if pixels <= parts:
            return answer(each_pixel(region), parts, region)
        smooth = self._smooth(picture, region)
        least = max(1, pixels // (8 * parts))
        best, nearest = np.zeros(region.shape, dtype=np.int64), abs(1 - parts)
        low, high = -2.0, 6.0  # log10 of the scale; more segments at the low end
        for _ in range(self.tries):
            middle = (low + high) / 2
            labels = np.asarray(felzenszwalb(smooth, scale=10**middle, sigma=0, min_size=least), dtype=np.int64)
            count = len(np.unique(labels[region]))
            if abs(count - parts) < nearest:
                best, nearest = labels, abs(count - parts)
            if count == parts:
                break
            low, high = (middle, high) if count > parts else (low, middle)
        return answer(best, parts, region)

    def _smooth(self, picture: NDArray, region: NDArray) -> NDArray:
        """Blur inside the region only: colour from outside must not leak in."""
        from scipy.ndimage import gaussian_filter

        inside = region[..., None].astype(np.float64)
        if self.smoothing > 0:
            width = (self.smoothing, self.smoothing, 0)
            # a pixel of the region always holds some of its own weight, so this divides by zero only outside
            weight = np.where(inside > 0, gaussian_filter(inside, width, mode="reflect"), 1)
            picture = gaussian_filter(picture * inside, width, mode="reflect") / weight
        return np.where(inside > 0, picture, _NOWHERE)
