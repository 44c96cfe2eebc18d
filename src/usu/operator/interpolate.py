"""Interpolation, the guided filter, and base measures: what a pixel attracts before any score.

A kernel reads a pixel's value off its neighbours in the coarse map. It knows neither cells nor scores, so it moves mass
between cells (not D1), ignores scores (not D2) and looks across borders (not D4). Only ``nearest`` does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Literal, TypeAlias, get_args

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from usu import _checks as check
from usu.operator.cells import Labels, grid_on, interval_of, partition_of
from usu.types import Array, ArrayT, NDArray

Mode: TypeAlias = Literal["nearest", "bilinear", "bicubic", "lanczos3"]
MODES: tuple[Mode, ...] = get_args(Mode)

#: Half the width of the Lanczos window, in coarse pixels.
_LOBES = 3
#: Pixels that the guided filter works on together.
_AT_ONCE = 1 << 19


def interpolate(coarse: ArrayT, size: Sequence[int], mode: Mode = "bilinear") -> ArrayT:
    """Read every pixel off the coarse map with a fixed kernel: Ã(x) = Σ_k K(x, k) · a_k.

    Args:
        coarse: (..., h, w); (..., l) for a signal, (..., d, h, w) for a volume.
        size: (H, W), (L,) or (D, H, W), not necessarily multiples. Smaller sizes are allowed: ``nearest`` then drops
            cells, ``bilinear`` and ``bicubic`` sample without smoothing, ``lanczos3`` widens its kernel.
        mode: ``"nearest"`` (the value of the pixel's cell, exactly), ``"bilinear"`` (linear along each dimension) and
            ``"bicubic"`` (of pictures only; torch's, pixel centres aligned) or ``"lanczos3"`` (Pillow's: windows cut at
            the border, weights that add up to one).

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
    if not hasattr(size, "__len__") or not 1 <= len(size) <= 3:
        raise ValueError(f"`size` must be whole numbers, (H, W), (L,) or (D, H, W); got {size!r}.")
    sides = tuple(check.whole_number("size", n, least=1) for n in size)
    if values.ndim < len(sides):
        raise ValueError(f"`coarse` must have at least the dimensions of `size` {sides}; got {check.shape(values)}.")
    check.choice("mode", mode, MODES)
    if mode == "bicubic" and len(sides) != 2:
        raise ValueError(f"`mode` must be 'nearest', 'bilinear' or 'lanczos3' for a `size` of {sides}; got 'bicubic'.")
    check.finite("coarse", values)
    return check.like_input(coarse)(resized(values, sides, mode))  # type: ignore[no-any-return]


def resized(coarse: Tensor, size: Sequence[int], mode: Mode = "bilinear") -> Tensor:
    """`interpolate`, of values that are known to be right."""
    # half precision is for storage: positions and sums need more digits
    found = coarse.to(torch.promote_types(coarse.dtype, torch.float32))
    grid, lead = found.shape[-len(size) :], found.shape[: -len(size)]
    if mode in ("nearest", "lanczos3"):
        for axis, (pixels, cells) in enumerate(zip(size, grid, strict=True), -len(size)):
            if mode == "nearest":
                found = found.index_select(axis, interval_of(pixels, cells, found.device))
            else:
                found = (found.movedim(axis, -1) @ lanczos_weights(pixels, cells).to(found).T).movedim(-1, axis)
    else:
        kernel = mode if mode == "bicubic" else {1: "linear", 2: "bilinear", 3: "trilinear"}[len(size)]
        stack = found.reshape(1, prod(lead), *grid)
        found = functional.interpolate(stack, size, mode=kernel, align_corners=False).reshape(*lead, *size)
    return found.to(coarse.dtype)


def lanczos_weights(pixels: int, cells: int) -> Tensor:
    """K(x, k) of Lanczos-3 along one axis, (pixels, cells) in float64; every row adds up to one.

    K(x, k) ∝ sinc(d) · sinc(d / 3) for |d| < 3, with d the distance in coarse pixels, or in pixels when shrinking.

    >>> lanczos_weights(2, 2).round(decimals=12).abs().tolist()  # no change of size: every pixel is its own cell
    [[1.0, 0.0], [0.0, 1.0]]
    """
    scale = cells / pixels
    centre = (torch.arange(pixels, dtype=torch.float64) + 0.5) * scale
    distance = (torch.arange(cells, dtype=torch.float64) + 0.5 - centre[:, None]) / max(scale, 1.0)
    weights = torch.sinc(distance) * torch.sinc(distance / _LOBES) * (distance.abs() < _LOBES)
    return weights / weights.sum(1, keepdim=True)


def size_of(picture: Array, coarse: Array) -> tuple[int, int]:
    """H x W of a picture no smaller than the grid of ``coarse``; what the picture shows does not matter here."""
    shown, values = check.any_tensor("picture", picture), check.any_tensor("coarse", coarse)
    if not (shown.ndim == 2 or (shown.ndim == 3 and shown.shape[-1] == 3)):
        raise ValueError(f"`picture` must be H x W or H x W x 3; got {check.shape(shown)}.")
    if values.ndim < 2:
        raise ValueError(f"`coarse` must be (..., h, w); got {check.shape(values)}.")
    return grid_on("picture", shown.shape[:2], values).lattice


#: `follow_picture` looks at windows of this part of the `yardstick`, to either direction.
RADII_PER_SIDE = 28


def yardstick(size: Sequence[int]) -> float:
    """What lengths are measured by: the shorter side of a picture.

    Of a signal its length, of a volume its second longest side, times what the side of one of 60 segments is there
    against that of a picture's: 0.13 and 1.98.

    >>> yardstick((480, 640)), round(yardstick((500,))), round(yardstick((16, 112, 128)))
    (480.0, 65, 222)
    """
    side, dims = sorted(size)[-2:][0], len(size)
    return float(side * 60 ** (1 / 2 - 1 / dims))


def guided_filter(coarse: ArrayT, picture: Array, *, radius: int | None = None, eps: float = 1e-3) -> ArrayT:
    """The bilinear map, made locally linear in the picture (He, Sun and Tang 2010): Ã = mean(a) · I + mean(b).

    In every window, (a, b) = argmin Σ (a · I + b - p)² + eps · |a|² with p the bilinear map and I the picture, H x W or
    H x W x 3 in [0, 1]. Windows are (2 · radius + 1)² pixels, cut at the border; None is half a cell. Guarantees: none.

    >>> guided_filter(torch.full((2, 2), 3.0), torch.full((1, 4), 0.5).expand(2, 4))[0]
    tensor([3., 3., 3., 3.])
    """
    values, guide, size = guide_of(coarse, picture)
    if radius is None:
        radius = max(1, round(max(size[0] / values.shape[-2], size[1] / values.shape[-1]) / 2))
    check.whole_number("radius", radius, least=1)
    check.positive_number("eps", eps)
    result = guided(resized(values.double(), size).reshape(-1, *size), guide, radius, eps)
    return check.like_input(coarse)(result.reshape(*values.shape[:-2], *size))  # type: ignore[no-any-return]


def guided(p: Tensor, guide: Tensor, radius: int, eps: float = 1e-3) -> Tensor:
    """Fields p (B, *size) made locally linear in a guide (channels, *size), in any number of dimensions.

    In float64, because covariances are differences of nearly equal numbers.
    """

    def mean(field: Tensor) -> Tensor:
        return _box_mean(field, radius, guide.ndim - 1)

    mean_i = mean(guide)  # (C, *size)
    variance = mean(guide[:, None] * guide) - mean_i[:, None] * mean_i  # (C, C, *size)
    ridge = variance.movedim((0, 1), (-2, -1)) + eps * torch.eye(len(guide), dtype=guide.dtype, device=guide.device)

    def filtered(some: Tensor) -> Tensor:
        mean_p = mean(some)
        covariance = mean(some[:, None] * guide) - mean_p[:, None] * mean_i  # (B, C, *size)
        slope = torch.linalg.solve(ridge, covariance.movedim((0, 1), (-1, -2))).movedim((-1, -2), (0, 1))
        return (mean(slope) * guide).sum(1) + mean(mean_p - (slope * mean_i).sum(1))

    # a few fields at a time: what is made on the way is many times as large as they are
    return torch.cat([filtered(some) for some in p.split(max(1, _AT_ONCE // p[0].numel()))]) if len(p) else p


def follow_picture(scores: Tensor, picture: NDArray, *, stretch: bool = True) -> Tensor:
    """Scores (T, *size) whose edges are those of a picture (*size, channels): a guided filter, back to [0, 1].

    ``stretch``: to all of [0, 1]; False only cuts off what the filter brought beyond.

    >>> picture = torch.tensor([[0.0, 1.0, 1.0, 1.0]])[..., None].expand(1, 4, 3).numpy()
    >>> follow_picture(torch.tensor([[[0.0, 0.0, 1.0, 1.0]]]).double(), picture).round(decimals=1).tolist()
    [[[0.0, 0.5, 0.9, 1.0]]]
    """
    flat = scores.flatten(1)
    constant = flat.amin(1) == flat.amax(1)
    if bool(constant.all()):
        return scores
    size = scores.shape[1:]
    radius = max(1, round(yardstick(size) / RADII_PER_SIDE))
    guide = torch.from_numpy(np.array(picture, dtype=np.float64, order="C")).to(scores.device).movedim(-1, 0)
    smooth = guided(scores.double(), guide, radius).to(scores.dtype).flatten(1)
    if not stretch:
        return smooth.clamp(0, 1).reshape(scores.shape)
    low, high = smooth.amin(1, keepdim=True).double(), smooth.amax(1, keepdim=True).double()
    # a spread that is nothing but rounding is no information; stretching it to [0, 1] would invent some
    noise = 8 * torch.finfo(torch.float64).eps * torch.maximum(low.abs(), high.abs())
    level = high - low <= noise
    found = ((smooth - low) / (high - low).where(~level, 1)).where(~level, 0.5)
    return torch.where(constant[:, None], flat, found).reshape(scores.shape)


def guide_of(coarse: Array, picture: Array) -> tuple[Tensor, Tensor, tuple[int, int]]:
    """The coarse values, the picture as (channels, H, W) in float64, and its size; checked."""
    values = check.as_tensor("coarse", coarse)
    guide = check.as_tensor("picture", picture, like=values)
    size = size_of(guide, values)
    check.finite("coarse", values)
    check.in_unit_interval("picture", guide)
    return values, (guide[None] if guide.ndim == 2 else guide.permute(2, 0, 1)).double(), size


def _box_mean(field: Tensor, radius: int, dims: int = 2) -> Tensor:
    """Mean over the part of each window of 2 · radius + 1 to a side that lies in the lattice, from running sums."""
    for dim in range(-dims, 0):
        n = field.shape[dim]
        i = torch.arange(n, device=field.device)
        low, high = (i - radius).clamp(min=0), (i + radius + 1).clamp(max=n)
        sums = torch.cat([torch.zeros_like(field.narrow(dim, 0, 1)), field.cumsum(dim)], dim)
        count = (high - low).to(field.dtype).reshape(-1, *[1] * (-dim - 1))
        field = (sums.index_select(dim, high) - sums.index_select(dim, low)) / count
    return field


#: Keeps a place alive where one of the maps is zero, as a part of the map's largest value.
FLOOR = 0.03
#: What an empty cell gets at least, as a part of what the one that is wanted most gets.
_LEAST = 1e-6
#: Exponents of the coarse map and of the finer ones, the next finer first.
OF_COARSE, OF_FINER = 0.5, (1.0, 0.5)


def own_sign(pixel_map: ArrayT, coarse: Array) -> ArrayT:
    """The part of a map that has its cell's sign, as a base measure for `usu.redistribute`: max(0, sign(a_k) · b(x)).

    >>> own_sign(torch.tensor([[1.0, -2.0, 3.0, -4.0]]), torch.tensor([[1.0, -1.0]]))
    tensor([[1., 0., 0., 4.]])
    """
    pixels = check.as_tensor("pixel_map", pixel_map)
    values = check.as_tensor("coarse", coarse, like=pixels)
    _, batch = partition_of(values, pixels, None, "pixel_map")
    if batch != pixels.shape[:-2]:
        wanted = f"the leading dimensions of `coarse` ({check.shape(values)})"
        raise ValueError(f"`pixel_map` must have {wanted}; got {check.shape(pixels)}.")
    check.finite("pixel_map", pixels)
    sign = resized(values.detach().sign(), pixels.shape[-2:], "nearest")
    return check.like_input(pixel_map)((sign * pixels).clamp(min=0))  # type: ignore[no-any-return]


def painted(coarse: Tensor, scores: Tensor, cells: Array | Labels | None, *, flat: bool = True) -> Tensor | None:
    """The coarse map on the pixels: smooth on a grid; on any other cells ``flat``, or None.

    >>> painted(torch.tensor([0.0, 4.0]), torch.zeros(4), torch.tensor([0, 0, 1, 1])).tolist()
    [0.0, 0.0, 4.0, 4.0]
    """
    if cells is None:
        return resized(coarse, scores.shape[-2:])
    if isinstance(cells, Labels) and cells.grid is not None:
        return resized(coarse, cells.lattice)
    if not flat:
        return None
    partition, batch = partition_of(coarse, scores, cells)
    return partition.spread(coarse.reshape(-1, coarse.shape[-1])).reshape(*batch, *partition.lattice)


def layered(smooth: Tensor, finer: Sequence[Tensor], dims: int = 2, of_coarse: float = OF_COARSE) -> Tensor:
    """What several layers agree on: p = b^c · l₁ · l₂^½, each map (..., H, W) over its largest value plus a floor.

    The finer maps know only what speaks for the target; where the coarse one is negative it stands alone, negative.
    ``dims``: of one map; ``of_coarse``: c.

    >>> smooth, finer = torch.tensor([[0.97, 0.0]]).double(), torch.tensor([[0.97, 0.97]]).double()
    >>> layered(smooth, [finer]).log().round(decimals=2).tolist()  # ½ log 1.03 + log 1.03; ½ log 0.03 + log 1.03
    [[0.04, -1.72]]
    """
    size = tuple(smooth.shape[-dims:])
    logs = of_coarse * _unit(smooth.abs(), dims).log()
    alone = -logs.exp()
    for level, exponent in zip(finer, OF_FINER, strict=False):
        logs = logs + exponent * _unit(resized(level.to(smooth), size).clamp(min=0), dims).log()
    return torch.where(smooth < 0, alone, logs.exp())


def _unit(values: Tensor, dims: int) -> Tensor:
    top = values.amax(tuple(range(-dims, 0)), keepdim=True)
    return values / top.where(top > 0, 1) + FLOOR


def with_trace(coarse: Tensor, trace: float, free: Tensor, cells: Array | Labels | None = None) -> Tensor:
    """Empty cells with a trace of the mean cell's density, less than D1 promises: their pixels then have an order.

    a_k = trace · mean |a| · m_k / max m, where m_k is the mean over the cell of ``free`` (..., H, W), what the pixels
    would get if no cell had a mass of its own. So pixels of different empty cells are ranked as that map ranks them.
    A map of zeros stays so.

    >>> free = torch.tensor([2.0, 8.0, 1.0, 4.0])
    >>> with_trace(torch.tensor([0.0, 4.0, 0.0, 0.0]), 0.25, free, torch.arange(4)).tolist()
    [0.0625, 4.0, 0.03125, 0.125]
    """
    parts, batch = partition_of(coarse, free, cells)
    flat, empty = free.detach().reshape(-1, *parts.lattice), coarse == 0
    lead = free.shape[: free.ndim - len(parts.lattice)]
    wanted = parts.total(flat) / parts.sizes.clamp(min=1)
    wanted = (wanted / wanted.amax(1, keepdim=True).clamp(min=_LEAST)).clamp(min=_LEAST)
    spatial = tuple(range(len(batch) - coarse.ndim, 0))
    mean = coarse.detach().abs().mean(spatial, keepdim=True)
    return torch.where(empty, trace * mean * wanted.reshape(*lead, *coarse.shape[len(batch) :]).to(coarse), coarse)
