"""From a picture's pixels to a model's input, and the way back for a map."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast

import numpy as np
import torch
from torch import Tensor

from usu import _checks as check
from usu.types import Array, NDArray

Resample: TypeAlias = Literal["nearest", "bilinear", "bicubic", "lanczos"]

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Geometry:
    """The part of the picture that the model sees.

    ``box`` is (top, left, bottom, right) in pixels of a picture of ``picture`` = (H, W); the model sees it as ``input``
    = (h, w). A box that reaches beyond the picture means a border was added.
    """

    picture: tuple[int, int]
    box: tuple[float, float, float, float]
    input: tuple[int, int]

    @classmethod
    def whole(cls, picture: tuple[int, int], input: tuple[int, int]) -> Geometry:
        """The model sees all of the picture, squeezed into its input."""
        return cls(picture, (0.0, 0.0, float(picture[0]), float(picture[1])), input)


@dataclass(frozen=True)
class Preparation:
    """Resize, crop the centre, normalise: (pixel / 255 - mean) / std, as most image classifiers want it.

    The shorter side becomes ``resize`` and the centre ``crop`` is cut out. ``resize=None`` squeezes the whole
    picture into ``crop`` instead.
    """

    crop: tuple[int, int] = (224, 224)
    resize: int | None = 256
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    resample: Resample = "bilinear"

    def __call__(self, pixels: NDArray) -> tuple[Tensor, Geometry]:
        """Pixels (H, W, 3), uint8 or float in [0, 1], to (3, h, w) in float32 and its place in the picture."""
        whole = _bytes(pixels)
        geometry = self.geometry(whole.shape[:2])
        scaled = torch.from_numpy(_cut(whole, geometry, self.resample)).permute(2, 0, 1).float() / 255
        mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (self.mean, self.std))
        return ((scaled - mean) / std).contiguous(), geometry

    def geometry(self, size: tuple[int, ...]) -> Geometry:
        """Where the input sits in a picture of this size.

        >>> Preparation().geometry((512, 1024)).box  # half the size, then 16 of 256 rows and 144 of 512 columns off
        (32.0, 288.0, 480.0, 736.0)
        """
        height, width = size[0], size[1]
        if self.resize is None:
            return Geometry.whole((height, width), self.crop)
        # sides are whole pixels after resizing (rounded down, as torchvision does), so each has a scale of its own
        short = min(height, width)
        resized = (self.resize * height // short, self.resize * width // short)
        if resized[0] < self.crop[0] or resized[1] < self.crop[1]:
            # a crop larger than the resized picture: enlarge just enough instead of adding a border
            scale = max(self.crop[0] / height, self.crop[1] / width)
            resized = (max(self.crop[0], round(height * scale)), max(self.crop[1], round(width * scale)))
        top, left = round((resized[0] - self.crop[0]) / 2), round((resized[1] - self.crop[1]) / 2)
        rows, columns = height / resized[0], width / resized[1]
        box = (top * rows, left * columns, (top + self.crop[0]) * rows, (left + self.crop[1]) * columns)
        return Geometry((height, width), box, self.crop)


def place(values: Array, geometry: Geometry, *, size: tuple[int, int] | None = None) -> NDArray:
    """A map at the model's input resolution, laid where it belongs in the picture; NaN where the model saw nothing.

    For display: values are interpolated (bilinear, averaged when shrinking), so densities are kept and mass is not.
    NaN and not 0 outside, because the map says nothing there. ``size`` is that of the picture shown (default: of the
    pixels that were prepared); it may be larger or smaller than those.

    >>> place(np.ones((2, 2), np.float32), Geometry((2, 4), (0, 1, 2, 3), (2, 2)))
    array([[nan,  1.,  1., nan],
           [nan,  1.,  1., nan]], dtype=float32)
    """
    field = check.as_tensor("values", values).detach().cpu().float()
    if field.ndim != 2:
        raise ValueError(f"`values` must be one map, h x w; got {check.shape(field)}.")
    height, width = size or geometry.picture
    rows, columns = height / geometry.picture[0], width / geometry.picture[1]
    top, left, bottom, right = (v * f for v, f in zip(geometry.box, (rows, columns, rows, columns), strict=True))
    (y0, y1), (x0, x1) = _whole(top, bottom), _whole(left, right)
    laid = torch.nn.functional.interpolate(
        field[None, None], (y1 - y0, x1 - x0), mode="bilinear", align_corners=False, antialias=True
    )[0, 0]
    out = torch.full((height, width), math.nan)
    inside = (slice(max(y0, 0), min(y1, height)), slice(max(x0, 0), min(x1, width)))
    out[inside] = laid[inside[0].start - y0 : inside[0].stop - y0, inside[1].start - x0 : inside[1].stop - x0]
    return out.numpy()


def seen(unit: NDArray, geometry: Geometry) -> NDArray:
    """The part of a picture (H x W x 3 in [0, 1]) that the model sees, at the size it sees it."""
    cut = _cut(np.rint(255 * unit).astype(np.uint8), geometry, "bicubic")
    return np.asarray(cut.astype(np.float32) / np.float32(255))


def _cut(pixels: NDArray, geometry: Geometry, resample: Resample) -> NDArray:
    """The box of the picture at the input's size. Only the box is computed: 17 x 4001 costs no more than a square."""
    from PIL import Image

    top, left, bottom, right = geometry.box
    method, size = Image.Resampling[resample.upper()], (geometry.input[1], geometry.input[0])
    return np.array(Image.fromarray(np.ascontiguousarray(pixels)).resize(size, method, box=(left, top, right, bottom)))


def _whole(low: float, high: float) -> tuple[int, int]:
    """An interval on whole pixels, at least one of them."""
    if round(high) > round(low):
        return round(low), round(high)
    start = math.floor((low + high) / 2)
    return start, start + 1


def _bytes(pixels: NDArray) -> NDArray:
    """Eight bits, because that is what networks were trained on and what Pillow resizes fast."""
    if not isinstance(pixels, np.ndarray) or pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.size == 0:
        got = " x ".join(map(str, pixels.shape)) if isinstance(pixels, np.ndarray) else type(pixels).__name__
        raise ValueError(f"`pixels` must be an array H x W x 3; got {got}. Read files with usu.models.pictures.read.")
    if pixels.dtype == np.uint8:
        return pixels
    if not np.issubdtype(pixels.dtype, np.floating) or not (pixels.min() >= 0 and pixels.max() <= 1):
        raise ValueError(
            f"`pixels` must be uint8, or floating point in [0, 1]; got {pixels.dtype} from {pixels.min():.4g} to "
            f"{pixels.max():.4g}."
        )
    return cast(NDArray, np.rint(pixels * 255).astype(np.uint8))
