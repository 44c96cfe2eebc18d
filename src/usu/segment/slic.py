"""SLIC superpixels, the default segmenter."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from usu import _checks as check
from usu.segment.segmenter import answer, each_pixel, question
from usu.types import NDArray

#: Seeds on a lattice are fast but in thin pictures or with few parts their segments may be far fewer than asked for;
#: below this share of them the seeds are spread by k-means instead.
_ENOUGH = 0.75


@dataclass(frozen=True)
class Slic:
    """k-means in colour (CIELAB) and place: segments of similar size that follow edges.

    ``compactness`` weighs place against colour: 1 follows every edge, 100 gives nearly square segments.
    ``smoothing`` is the width in pixels of a Gaussian blur beforehand.

    Guarantees: the same picture gives the same segments; connected; at most ``parts``.
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
        return answer(self._run(picture, parts, region), parts, region)

    def _run(self, picture: NDArray, parts: int, region: NDArray | None) -> NDArray:
        from skimage.segmentation import slic

        with warnings.catch_warnings():
            # k-means tells when a seed ends up without pixels; that seed's segment is simply not there
            warnings.simplefilter("ignore", UserWarning)
            labels = slic(
                picture,
                n_segments=parts,
                compactness=self.compactness,
                max_num_iter=self.iterations,
                sigma=self.smoothing,
                start_label=1,
                # its own clean-up joins everything in noisy or thin pictures; `answer` joins the smallest pieces first
                enforce_connectivity=False,
                mask=region,
            )
        return np.asarray(labels, dtype=np.int64)
