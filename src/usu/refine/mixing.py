"""Coarse and fine scores, put together: fine where the coarse scores change, coarse where they do not."""

from __future__ import annotations

import torch

from usu import _checks as check
from usu.types import Array, ArrayT


def mixing(h: ArrayT, center: float = 0.1, temperature: float = 0.02) -> ArrayT:
    """How much of the coarser scores is kept: α = sigmoid(-(|H| - center) / temperature).

    Flat places keep the coarse value (α > 0.99 at H = 0) if ``center`` is at least five temperatures.

    Guarantees:
        In (0, 1) and strictly decreasing in |H| (as far as floats can tell); 1/2 at |H| = center; below 0.01 and above
        0.99 five temperatures to either side.

    >>> [round(float(a), 3) for a in mixing(torch.tensor([0.0, 0.1, -0.2]))]
    [0.993, 0.5, 0.007]
    """
    field = check.as_tensor("h", h)
    check.finite("h", field)
    middle, width = check.real_number("center", center), check.positive_number("temperature", temperature)
    return check.like_input(h)(torch.sigmoid((middle - field.abs()) / width))  # type: ignore[no-any-return]


def merge(coarse_scores: ArrayT, fine_scores: Array, alpha: Array) -> ArrayT:
    """Φ = α · Φ_coarse + (1 - α) · Φ_fine, pixel by pixel.

    Args:
        coarse_scores: (..., H, W).
        fine_scores: the same shape.
        alpha: in [0, 1], from `mixing`; broadcasts.

    Guarantees: convex, so never outside what went in, to the last bit; equal inputs come back unchanged.

    >>> merge(torch.tensor([0.0, 0.5]), torch.tensor([1.0, 0.5]), torch.tensor([0.25, 0.3])).tolist()
    [0.75, 0.5]
    """
    coarse = check.as_tensor("coarse_scores", coarse_scores)
    fine = check.as_tensor("fine_scores", fine_scores)
    weight = check.as_tensor("alpha", alpha)
    if coarse.shape != fine.shape:
        raise ValueError(
            f"`fine_scores` must have the shape of `coarse_scores` ({check.shape(coarse)}); got {check.shape(fine)}. "
            "Gather both into fields of the picture's size."
        )
    check.in_unit_interval("alpha", weight)
    mixed = fine + weight * (coarse - fine)
    # rounding may step over an end by one bit
    mixed = torch.minimum(torch.maximum(mixed, torch.minimum(coarse, fine)), torch.maximum(coarse, fine))
    return check.like_input(coarse_scores)(mixed)  # type: ignore[no-any-return]
