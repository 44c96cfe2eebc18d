"""Rivals: upsamplers that know more than a kernel does, namely the cells' masses or the picture, but no scores.

They are what a redistribution has to beat. `mass_corrected` is dasymetric mapping without semantics (Tobler's
pycnophylactic property, 1979); the others let the picture's edges shape the map.
"""

from __future__ import annotations

import torch
from torch import Tensor

from usu import _checks as check
from usu.operator.cells import Grid, Labels, interval_of
from usu.operator.interpolate import interpolate
from usu.operator.redistribute import redistribute
from usu.types import Array, ArrayT


def size_of(picture: Array, coarse: Array) -> tuple[int, int]:
    """H x W of a picture no smaller than the grid of ``coarse``; what the picture shows does not matter here.

    >>> size_of(torch.zeros(5, 6, 3), torch.zeros(2, 2))
    (5, 6)
    """
    shown, values = check.any_tensor("picture", picture), check.any_tensor("coarse", coarse)
    if not (shown.ndim == 2 or (shown.ndim == 3 and shown.shape[-1] == 3)):
        raise ValueError(
            f"`picture` must be H x W or H x W x 3; got {check.shape(shown)}. "
            "Pass one picture, with its channels in the last dimension."
        )
    if values.ndim < 2:
        raise ValueError(f"`coarse` must be (..., h, w); got {check.shape(values)}. Reshape it to its grid.")
    height, width = shown.shape[:2]
    _large_enough("picture", (height, width), values)
    return height, width


def mass_corrected(pixel_map: ArrayT, coarse: Array) -> ArrayT:
    """Give every cell its mass back, keeping the map's shape inside it: Ã(x) = M_k · b(x) / Σ_{y in cell} b(y).

    b is the part of the map that has the sign of M_k: the map itself where both are non-negative. One rule for every
    sign, so no pixel ends with a sign its cell does not have. A cell of mass where b is zero throughout is filled
    evenly; a cell without mass becomes zero.

    Guarantees:
        D1 and total mass, for maps of any sign, to 1e-6 relative in float32. Nothing else: b may look anywhere.

    >>> bilinear = torch.tensor([[0.0, 1.0, 3.0, 4.0]])  # the right cell is to hold 2 x 7
    >>> mass_corrected(bilinear, torch.tensor([[0.0, 7.0]]))
    tensor([[0., 0., 6., 8.]])
    """
    pixels, values = _pixels_and_cells(pixel_map, coarse)
    # equal scores: the shares are the base measure's alone
    even = pixels.new_zeros(pixels.shape[-2:])
    result = redistribute(values, even, base=own_sign(pixels, values))
    return check.like_input(pixel_map)(result)  # type: ignore[no-any-return]


def own_sign(pixel_map: ArrayT, coarse: Array) -> ArrayT:
    """The part of a map that has its cell's sign, as a base measure for `usu.redistribute`: max(0, sign(a_k) · b(x)).

    >>> own_sign(torch.tensor([[1.0, -2.0, 3.0, -4.0]]), torch.tensor([[1.0, -1.0]]))
    tensor([[1., 0., 0., 4.]])
    """
    pixels, values = _pixels_and_cells(pixel_map, coarse)
    sign = interpolate(values.detach().sign(), tuple(pixels.shape[-2:]), "nearest")
    return check.like_input(pixel_map)((sign * pixels).clamp(min=0))  # type: ignore[no-any-return]


def guided_filter(coarse: ArrayT, picture: Array, *, radius: int | None = None, eps: float = 1e-3) -> ArrayT:
    """The bilinear map, made locally linear in the picture (He, Sun and Tang 2010): Ã = mean(a) · I + mean(b).

    In every window, (a, b) = argmin Σ (a · I + b - p)² + eps · |a|² with p the bilinear map and I the picture.

    Args:
        coarse: (..., h, w).
        picture: H x W, or H x W x 3 (the colour version, with its 3 x 3 covariances); in [0, 1].
        radius: windows are (2 · radius + 1)² pixels, cut at the border; None: half a cell.
        eps: variance of the picture below which a window counts as flat.

    Guarantees: none.

    >>> flat = torch.full((4, 4), 0.5)
    >>> guided_filter(torch.full((2, 2), 3.0), flat)[0]
    tensor([3., 3., 3., 3.])
    """
    values, guide, size = _guided(coarse, picture)
    if radius is None:
        radius = max(1, round(max(size[0] / values.shape[-2], size[1] / values.shape[-1]) / 2))
    if isinstance(radius, bool) or not isinstance(radius, int) or radius < 1:
        raise ValueError(f"`radius` must be a whole number of at least 1; got {radius!r}. Half a cell is usual.")
    check.positive_number("eps", eps)
    # float64: covariances are differences of nearly equal numbers
    p = interpolate(values.double(), size, "bilinear").reshape(-1, *size)
    mean_i, mean_p = _box_mean(guide, radius), _box_mean(p, radius)  # (C, H, W), (B, H, W)
    products = guide[:, None] * guide
    variance = _box_mean(products, radius) - mean_i[:, None] * mean_i  # (C, C, H, W)
    covariance = _box_mean(p[:, None] * guide, radius) - mean_p[:, None] * mean_i  # (B, C, H, W)
    ridge = variance.permute(2, 3, 0, 1) + eps * torch.eye(len(guide), dtype=guide.dtype, device=guide.device)
    slope = torch.linalg.solve(ridge, covariance.permute(2, 3, 1, 0)).permute(3, 2, 0, 1)
    offset = mean_p - (slope * mean_i).sum(1)
    result = (_box_mean(slope, radius) * guide).sum(1) + _box_mean(offset, radius)
    return check.like_input(coarse)(result.reshape(*values.shape[:-2], *size))  # type: ignore[no-any-return]


def joint_bilateral(
    coarse: ArrayT, picture: Array, *, sigma_space: float = 0.5, sigma_range: float = 0.1, reach: int = 2
) -> ArrayT:
    """An average of the coarse values near a pixel in place and in colour (Kopf et al. 2007).

    Ã(x) ∝ Σ_k a_k · exp(-|x↓ - k|² / 2 sigma_space²) · exp(-|I(x) - Ī_k|² / 2 sigma_range²), Ī_k the cell's mean.

    Args:
        coarse: (..., h, w).
        picture: H x W or H x W x 3 in [0, 1].
        sigma_space: in coarse pixels.
        sigma_range: in intensities.
        reach: the (2 · reach + 1)² cells around the pixel's own are looked at.

    Guarantees: none.

    >>> picture = torch.tensor([[0.0, 1.0, 1.0, 1.0]])  # the second pixel looks like the right cell
    >>> joint_bilateral(torch.tensor([[0.0, 8.0]]), picture).round()
    tensor([[0., 8., 8., 8.]])
    """
    values, guide, (height, width) = _guided(coarse, picture)
    check.positive_number("sigma_space", sigma_space)
    check.positive_number("sigma_range", sigma_range)
    if isinstance(reach, bool) or not isinstance(reach, int) or reach < 0:
        raise ValueError(f"`reach` must be a whole number of at least 0; got {reach!r}. 2 looks at 5 x 5 cells.")
    h, w = values.shape[-2:]
    cells = Grid((h, w), (height, width), values.device)
    small = (cells.total(guide) / cells.sizes).unflatten(1, (h, w))
    row, column = interval_of(height, h, values.device), interval_of(width, w, values.device)
    data = values.double()
    # each pixel's own place on the coarse lattice
    y = (torch.arange(height, device=data.device).double() + 0.5) * h / height - 0.5
    x = (torch.arange(width, device=data.device).double() + 0.5) * w / width - 0.5

    def neighbour(down: int, right: int) -> tuple[Tensor, Tensor]:
        """log weight and value of the cell ``down`` rows and ``right`` columns from each pixel's own."""
        r, c = row + down, column + right
        inside = ((r >= 0) & (r < h))[:, None] & ((c >= 0) & (c < w))
        r, c = r.clamp(0, h - 1), c.clamp(0, w - 1)
        place = (r - y).square()[:, None] + (c - x).square()
        colour = (guide - small[:, r][:, :, c]).square().sum(0)
        log_weight = -place / (2 * sigma_space**2) - colour / (2 * sigma_range**2)
        return log_weight.masked_fill(~inside, -torch.inf), data[..., r, :][..., c]

    window = [(down, right) for down in range(-reach, reach + 1) for right in range(-reach, reach + 1)]
    # a first round for the largest weight: a narrow sigma must not make all of them underflow
    top = data.new_full((height, width), -torch.inf)
    for offset in window:
        top = torch.maximum(top, neighbour(*offset)[0])
    weights, weighted = torch.zeros_like(top), data.new_zeros(*data.shape[:-2], height, width)
    for offset in window:
        log_weight, value = neighbour(*offset)
        weight = (log_weight - top).exp()
        weights, weighted = weights + weight, weighted + weight * value
    return check.like_input(coarse)(weighted / weights)  # type: ignore[no-any-return]


def segment_pooled(
    coarse: ArrayT, picture: Array, *, segments: Array | None = None, count: int = 200, compactness: float = 10.0
) -> ArrayT:
    """The bilinear map, averaged over each segment of the picture.

    Args:
        coarse: (..., h, w).
        picture: H x W or H x W x 3 in [0, 1].
        segments: an integer label per pixel, H x W; None: SLIC superpixels of the picture.
        count: about how many superpixels.
        compactness: of the superpixels; higher is more square.

    Guarantees: none. The total is bilinear's.

    >>> halves = torch.tensor([[0, 1, 1, 1]])
    >>> segment_pooled(torch.tensor([[0.0, 4.0]]), torch.zeros(1, 4), segments=halves)[0, 1:]
    tensor([2.6667, 2.6667, 2.6667])
    """
    values, guide, size = _guided(coarse, picture)
    labels = _slic(guide, count, compactness) if segments is None else _labels(segments, size, values)
    _, labels = labels.unique(return_inverse=True)  # any integers will do, also with gaps
    regions = Labels(labels, int(labels.max()) + 1)
    smooth = interpolate(values.double(), size, "bilinear").reshape(-1, *size)
    pooled = regions.spread(regions.total(smooth) / regions.sizes)
    return check.like_input(coarse)(pooled.reshape(*values.shape[:-2], *size))  # type: ignore[no-any-return]


def _pixels_and_cells(pixel_map: Array, coarse: Array) -> tuple[Tensor, Tensor]:
    pixels = check.as_tensor("pixel_map", pixel_map)
    values = check.as_tensor("coarse", coarse, like=pixels)
    if pixels.ndim < 2 or values.ndim < 2 or pixels.shape[:-2] != values.shape[:-2]:
        raise ValueError(
            f"`pixel_map` must be (..., H, W) with the leading dimensions of `coarse` ({check.shape(values)}); "
            f"got {check.shape(pixels)}. Give each coarse map its own pixel map."
        )
    _large_enough("pixel_map", tuple(pixels.shape[-2:]), values)
    check.finite("pixel_map", pixels)
    return pixels, values


def _guided(coarse: Array, picture: Array) -> tuple[Tensor, Tensor, tuple[int, int]]:
    """The coarse values, the picture as (channels, H, W) in float64, and its size."""
    values = check.as_tensor("coarse", coarse)
    guide = check.as_tensor("picture", picture, like=values)
    size = size_of(guide, values)
    check.finite("coarse", values)
    check.in_unit_interval("picture", guide)
    return values, (guide[None] if guide.ndim == 2 else guide.permute(2, 0, 1)).double(), size


def _large_enough(name: str, size: tuple[int, ...], values: Tensor) -> None:
    h, w = values.shape[-2:]
    if size[0] < h or size[1] < w:
        raise ValueError(
            f"`{name}` must be at least as large as the grid of `coarse` ({h} x {w}); got {size[0]} x {size[1]}. "
            "Every cell needs a pixel; usu.interpolate can shrink."
        )


def _box_mean(field: Tensor, radius: int) -> Tensor:
    """Mean over the part of each (2 · radius + 1)² window that lies in the lattice, from running sums."""
    for dim in (-2, -1):
        n = field.shape[dim]
        i = torch.arange(n, device=field.device)
        low, high = (i - radius).clamp(min=0), (i + radius + 1).clamp(max=n)
        start = torch.zeros_like(field.narrow(dim, 0, 1))
        sums = torch.cat([start, field.cumsum(dim)], dim)
        count = (high - low).to(field.dtype)
        field = (sums.index_select(dim, high) - sums.index_select(dim, low)) / (count[:, None] if dim == -2 else count)
    return field


def _slic(guide: Tensor, count: int, compactness: float) -> Tensor:
    from skimage.segmentation import slic

    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ValueError(f"`count` must be a whole number of at least 1; got {count!r}. Typical values are 50 to 400.")
    check.positive_number("compactness", compactness)
    # grey goes in as colour, so that `compactness` means the same for both
    colour = guide.expand(3, *guide.shape[1:]).permute(1, 2, 0).detach().cpu().numpy()
    labels = slic(colour, n_segments=count, compactness=compactness, start_label=0, channel_axis=-1)
    return torch.as_tensor(labels, dtype=torch.int64, device=guide.device)


def _labels(segments: Array, size: tuple[int, int], values: Tensor) -> Tensor:
    labels = check.any_tensor("segments", segments, like=values)
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise TypeError(f"`segments` must hold integer labels; got {labels.dtype}. Convert it, e.g. to int64.")
    if tuple(labels.shape) != size:
        raise ValueError(
            f"`segments` must have the size of `picture` ({size[0]} x {size[1]}); got {check.shape(labels)}. "
            "Give every pixel one label."
        )
    return labels.long()
