"""SLIC, the default segmenter."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from usu import _checks as check
from usu.segment.segmenter import answer, bounding_box, each_pixel, question, smoothed
from usu.types import NDArray

#: Seeds on a lattice are fast but in thin pictures or with few parts their segments may be far fewer than asked for;
#: below this share of them the seeds are spread by k-means instead.
_ENOUGH = 0.75


@dataclass(frozen=True)
class Slic:
    """k-means in colour (CIELAB) and place: segments of similar size that follow edges.

    ``compactness`` weighs place against colour: 1 follows every edge, 100 gives nearly square segments.
    ``smoothing`` is the width in pixels of a Gaussian blur beforehand. The segments of a signal are windows that end
    where it changes, those of a volume supervoxels; channels other than three are taken for lightness.

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

        size, coloured = picture.shape[:-1], picture.ndim > 2 and picture.shape[-1] == 3
        if len(size) == 1:  # slic wants rows: a signal has one
            picture, region = picture[None], None if region is None else region[None]
        # slic brings whatever it is given to [0, 1], where the lightness of CIELAB runs to 100
        compactness, blur, lab = self.compactness / (1 if coloured else 100), self.smoothing, coloured
        if blur > 0 and (region is not None and not region.all()):
            picture = smoothed(_lab(picture, region) if coloured else picture, region, blur)
            # this takes that back
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


def _lab(picture: NDArray, region: NDArray) -> NDArray:
    """The region's colours from 0 to 1, then in CIELAB, as slic does before it blurs: but its blur knows no region."""
    from skimage.color import rgb2lab

    low, high = float(picture[region].min()), float(picture[region].max())
    return np.asarray(rgb2lab(np.where(region[..., None], (picture - low) / ((high - low) or 1.0), 0.0)))
