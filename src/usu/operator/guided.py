"""The guided filter: a map, or scores, whose edges are those of the picture."""

from __future__ import annotations

import torch
from torch import Tensor

from usu import _checks as check
from usu.operator.interpolate import interpolate, size_of
from usu.types import Array, ArrayT, NDArray

#: `follow_picture` looks at windows of this part of the picture's side, to either direction.
RADII_PER_SIDE = 28


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
    values, guide, size = guide_of(coarse, picture)
    if radius is None:
        radius = max(1, round(max(size[0] / values.shape[-2], size[1] / values.shape[-1]) / 2))
    check.whole_number("radius", radius, least=1)
    check.positive_number("eps", eps)
    # float64: covariances are differences of nearly equal numbers
    p = interpolate(values.double(), size, "bilinear").reshape(-1, *size)
    mean_i, mean_p = _box_mean(guide, radius), _box_mean(p, radius)  # (C, H, W), (B, H, W)
    variance = _box_mean(guide[:, None] * guide, radius) - mean_i[:, None] * mean_i  # (C, C, H, W)
    covariance = _box_mean(p[:, None] * guide, radius) - mean_p[:, None] * mean_i  # (B, C, H, W)
    ridge = variance.permute(2, 3, 0, 1) + eps * torch.eye(len(guide), dtype=guide.dtype, device=guide.device)
    slope = torch.linalg.solve(ridge, covariance.permute(2, 3, 1, 0)).permute(3, 2, 0, 1)
    offset = mean_p - (slope * mean_i).sum(1)
    result = (_box_mean(slope, radius) * guide).sum(1) + _box_mean(offset, radius)
    return check.like_input(coarse)(result.reshape(*values.shape[:-2], *size))  # type: ignore[no-any-return]


def follow_picture(scores: Tensor, picture: NDArray, *, stretch: bool = True) -> Tensor:
    """Scores (T, H, W) whose edges are the picture's: a guided filter, and each field back to [0, 1].

    Segments cut where they must; inside of one, pixels that look like an important neighbour are more important.
    ``stretch``: to all of [0, 1]; False only cuts off what the filter brought beyond.

    >>> picture = torch.tensor([[0.0, 1.0, 1.0, 1.0]])[..., None].expand(1, 4, 3).numpy()
    >>> follow_picture(torch.tensor([[[0.0, 0.0, 1.0, 1.0]]]).double(), picture).round(decimals=1).tolist()
    [[[0.0, 0.5, 0.9, 1.0]]]
    """
    flat = scores.flatten(1)
    constant = flat.amin(1) == flat.amax(1)
    if bool(constant.all()):
        return scores
    radius = max(1, round(min(scores.shape[-2:]) / RADII_PER_SIDE))
    smooth = guided_filter(scores, picture, radius=radius).flatten(1)
    if not stretch:
        return smooth.clamp(0, 1).reshape(scores.shape)
    low, high = smooth.amin(1, keepdim=True).double(), smooth.amax(1, keepdim=True).double()
    # a spread that is nothing but rounding is no information; stretching it to [0, 1] would invent some
    noise = 8 * torch.finfo(torch.float64).eps * torch.maximum(low.abs(), high.abs())
    level = high - low <= noise
    found = ((smooth - low) / (high - low).where(~level, 1)).where(~level, 0.5)
    return torch.where(constant[:, None], flat, found).reshape(scores.shape)


def guide_of(coarse: Array, picture: Array) -> tuple[Tensor, Tensor, tuple[int, int]]:
    """The coarse values, the picture as (channels, H, W) in float64, and its size; checked.

    >>> guide_of(torch.ones(2, 2), torch.zeros(5, 6, 3))[1].shape
    torch.Size([3, 5, 6])
    """
    values = check.as_tensor("coarse", coarse)
    guide = check.as_tensor("picture", picture, like=values)
    size = size_of(guide, values)
    check.finite("coarse", values)
    check.in_unit_interval("picture", guide)
    return values, (guide[None] if guide.ndim == 2 else guide.permute(2, 0, 1)).double(), size


def _box_mean(field: Tensor, radius: int) -> Tensor:
    """Mean over the part of each (2 · radius + 1)² window that lies in the lattice, from running sums."""
    for dim in (-2, -1):
        n = field.shape[dim]
        i = torch.arange(n, device=field.device)
        low, high = (i - radius).clamp(min=0), (i + radius + 1).clamp(max=n)
        sums = torch.cat([torch.zeros_like(field.narrow(dim, 0, 1)), field.cumsum(dim)], dim)
        count = (high - low).to(field.dtype)
        field = (sums.index_select(dim, high) - sums.index_select(dim, low)) / (count[:, None] if dim == -2 else count)
    return field
