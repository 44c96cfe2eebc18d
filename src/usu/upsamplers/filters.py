"""Rivals: upsamplers that know the cells' masses or the picture, but no scores.

In all of them ``coarse`` is (..., h, w) and ``picture`` H x W or H x W x 3 in [0, 1].
"""

from __future__ import annotations

import torch
from torch import Tensor

from usu import _checks as check
from usu.operator.cells import Grid, Labels, interval_of
from usu.operator.interpolate import guide_of, interpolate, own_sign
from usu.operator.redistribute import redistribute
from usu.types import Array, ArrayT


def mass_corrected(pixel_map: ArrayT, coarse: Array) -> ArrayT:
    """Give every cell its mass back, keeping the map's shape inside it: Ã(x) = M_k · b(x) / Σ_{y in cell} b(y).

    Dasymetric mapping without semantics (Tobler, 1979). b is the part of the map that has the sign of M_k; where that
    is zero throughout, a cell is filled evenly.

    Guarantees:
        D1 and total mass, for maps of any sign, to 1e-6 relative in float32. Nothing else: b may look anywhere.

    >>> bilinear = torch.tensor([[0.0, 1.0, 3.0, 4.0]])  # the right cell is to hold 2 x 7
    >>> mass_corrected(bilinear, torch.tensor([[0.0, 7.0]]))
    tensor([[0., 0., 6., 8.]])
    """
    pixels = check.as_tensor("pixel_map", own_sign(pixel_map, coarse))
    even = pixels.new_zeros(pixels.shape[-2:])  # scores: the shares are the base measure's alone
    result = redistribute(check.as_tensor("coarse", coarse, like=pixels), even, base=pixels)
    return check.like_input(pixel_map)(result)  # type: ignore[no-any-return]


def joint_bilateral(
    coarse: ArrayT, picture: Array, *, sigma_space: float = 0.5, sigma_range: float = 0.1, reach: int = 2
) -> ArrayT:
    """An average of the coarse values near a pixel in place and in colour (Kopf et al. 2007).

    Ã(x) ∝ Σ_k a_k · exp(-|x↓ - k|² / 2 sigma_space²) · exp(-|I(x) - Ī_k|² / 2 sigma_range²), Ī_k the cell's mean, over
    the (2 · reach + 1)² cells around the pixel's own; sigma_space in coarse pixels. Guarantees: none.

    >>> picture = torch.tensor([[0.0, 1.0, 1.0, 1.0]])  # the second pixel looks like the right cell
    >>> joint_bilateral(torch.tensor([[0.0, 8.0]]), picture).round()
    tensor([[0., 8., 8., 8.]])
    """
    values, guide, (height, width) = guide_of(coarse, picture)
    check.positive_number("sigma_space", sigma_space)
    check.positive_number("sigma_range", sigma_range)
    check.whole_number("reach", reach, least=0)
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
    """The bilinear map, averaged over each segment of the picture: labels H x W, or about ``count`` SLIC superpixels.

    Guarantees: none. The total is bilinear's.

    >>> halves = torch.tensor([[0, 1, 1, 1]])
    >>> segment_pooled(torch.tensor([[0.0, 4.0]]), torch.zeros(1, 4), segments=halves)[0, 1:]
    tensor([2.6667, 2.6667, 2.6667])
    """
    values, guide, size = guide_of(coarse, picture)
    if segments is None:
        from skimage.segmentation import slic

        check.whole_number("count", count, least=1)
        check.positive_number("compactness", compactness)
        # grey goes in as colour, so that `compactness` means the same for both
        colour = guide.expand(3, *size).permute(1, 2, 0).detach().cpu().numpy()
        segments = slic(colour, n_segments=count, compactness=compactness)
    labels = check.labels("segments", segments, size=size, least=None, like=values)
    _, labels = labels.unique(return_inverse=True)  # any integers will do, also with gaps
    regions = Labels(labels, int(labels.max()) + 1)
    smooth = interpolate(values.double(), size, "bilinear").reshape(-1, *size)
    pooled = regions.spread(regions.total(smooth) / regions.sizes)
    return check.like_input(coarse)(pooled.reshape(*values.shape[:-2], *size))  # type: ignore[no-any-return]
