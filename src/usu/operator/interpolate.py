"""Interpolation: what upsampling usually means, and what `usu.redistribute` replaces.

A kernel reads a pixel's value off its neighbours in the coarse map. It knows neither cells nor scores, so it moves
mass between cells (not D1), ignores scores (not D2) and looks across borders (not D4). Only ``nearest`` does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor
from torch.nn import functional

from usu import _checks as check
from usu.operator.cells import interval_of
from usu.types import Array, ArrayT

Mode: TypeAlias = Literal["nearest", "bilinear", "bicubic", "lanczos3"]
MODES: tuple[Mode, ...] = get_args(Mode)

#: Half the width of the Lanczos window, in coarse pixels.
_LOBES = 3


def interpolate(coarse: ArrayT, size: Sequence[int], mode: Mode = "bilinear") -> ArrayT:
    """Read every pixel off the coarse map with a fixed kernel: Ã(x) = Σ_k K(x, k) · a_k.

    Pixel i has its centre at (i + 0.5) · h / H of the coarse map, whose own centres are at k + 0.5.

    Args:
        coarse: (..., h, w).
        size: (H, W), not necessarily multiples of h and w. Smaller sizes are allowed: ``nearest`` then drops cells,
            ``bilinear`` and ``bicubic`` sample without smoothing, ``lanczos3`` widens its kernel.
        mode: ``"nearest"`` (the value of the pixel's cell, in exact integer arithmetic), ``"bilinear"``,
            ``"bicubic"`` (torch's kernels, a = -0.75) or ``"lanczos3"`` (Pillow's: windows cut at the border, weights
            made to add up to one).

    Returns:
        (..., H, W) in the library, dtype and device of ``coarse``; differentiable.

    Guarantees:
        ``nearest``, at sizes no smaller than the grid: D1, D2 (all pixels of a cell are equal), D4. The others: none;
        ``bilinear`` keeps the total (not the cells) when h divides H and w divides W.

    >>> interpolate(torch.tensor([[0.0, 4.0]]), (1, 4), "nearest")
    tensor([[0., 0., 4., 4.]])
    >>> interpolate(torch.tensor([[0.0, 4.0]]), (1, 4), "bilinear")  # the left cell, empty before, now holds 1
    tensor([[0., 1., 3., 4.]])
    """
    values = check.as_tensor("coarse", coarse)
    if values.ndim < 2:
        raise ValueError(f"`coarse` must have at least two dimensions, (..., h, w); got {check.shape(values)}.")
    if not hasattr(size, "__len__") or len(size) != 2:
        raise ValueError(f"`size` must be two whole numbers, (H, W); got {size!r}.")
    height, width = (check.whole_number("size", n, least=1) for n in size)
    check.choice("mode", mode, MODES)
    check.finite("coarse", values)
    # half precision is for storage: positions and sums need more digits
    result = _resize(values.to(torch.promote_types(values.dtype, torch.float32)), height, width, mode)
    return check.like_input(coarse)(result)  # type: ignore[no-any-return]


def _resize(values: Tensor, height: int, width: int, mode: Mode) -> Tensor:
    h, w = values.shape[-2:]
    if mode == "nearest":
        rows, columns = interval_of(height, h, values.device), interval_of(width, w, values.device)
        return values.index_select(-2, rows).index_select(-1, columns)
    if mode == "lanczos3":
        return lanczos_weights(height, h).to(values) @ values @ lanczos_weights(width, w).to(values).T
    lead = values.shape[:-2]
    stack = values.reshape(1, prod(lead), h, w)
    return functional.interpolate(stack, (height, width), mode=mode, align_corners=False).reshape(*lead, height, width)


def lanczos_weights(pixels: int, cells: int) -> Tensor:
    """K(x, k) of Lanczos-3 along one axis, (pixels, cells) in float64; every row adds up to one.

    K(x, k) ∝ sinc(d) · sinc(d / 3) for |d| < 3, with d the distance in coarse pixels, or in pixels when shrinking.

    >>> lanczos_weights(2, 2).round(decimals=12).abs()  # no change of size: every pixel is its own cell
    tensor([[1., 0.],
            [0., 1.]], dtype=torch.float64)
    """
    scale = cells / pixels
    centre = (torch.arange(pixels, dtype=torch.float64) + 0.5) * scale
    distance = (torch.arange(cells, dtype=torch.float64) + 0.5 - centre[:, None]) / max(scale, 1.0)
    weights = torch.sinc(distance) * torch.sinc(distance / _LOBES) * (distance.abs() < _LOBES)
    return weights / weights.sum(1, keepdim=True)


def size_of(picture: Array, coarse: Array) -> tuple[int, int]:
    """H x W of a picture no smaller than the grid of ``coarse``; what the picture shows does not matter here.

    >>> size_of(torch.zeros(5, 6, 3), torch.zeros(2, 2))
    (5, 6)
    """
    shown, values = check.any_tensor("picture", picture), check.any_tensor("coarse", coarse)
    if not (shown.ndim == 2 or (shown.ndim == 3 and shown.shape[-1] == 3)):
        raise ValueError(f"`picture` must be H x W or H x W x 3; got {check.shape(shown)}.")
    if values.ndim < 2:
        raise ValueError(f"`coarse` must be (..., h, w); got {check.shape(values)}.")
    size = (int(shown.shape[0]), int(shown.shape[1]))
    large_enough("picture", size, values)
    return size


def large_enough(name: str, size: tuple[int, int], coarse: Tensor) -> None:
    """Every cell of ``coarse`` (..., h, w) needs a pixel."""
    h, w = coarse.shape[-2:]
    if size[0] < h or size[1] < w:
        raise ValueError(
            f"`{name}` must be at least as large as the grid of `coarse` ({h} x {w}); got {size[0]} x {size[1]}."
        )
