"""Where scores change, and what is done there: the H-map, the segments it marks, coarse and fine scores mixed by it."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from usu import _checks as check
from usu.types import Array, ArrayT


def heterogeneity(scores: ArrayT, kind: Literal["range", "diagonal"] = "range") -> ArrayT:
    """How much the score field Φ changes within 3 x 3 pixels.

    - ``"range"``: H = max - min over the window. Answers at every edge.
    - ``"diagonal"`` (the paper): H = Φ * [[-1, 0, 1], [0, 0, 0], [1, 0, -1]], the mixed derivative. Signed, and blind
      to horizontal and vertical edges: a square of scores answers only at its corners.

    Both repeat the border outwards. Scores are (..., H, W); H comes back in their library and dtype.

    Guarantees:
        Zero where the window is constant. ``"diagonal"`` is linear in the scores; ``"range"`` is at least 0 and scales
        with |r| when the scores are multiplied by r.

    >>> edge = torch.tensor([[0.0, 0.0, 0.0, 1.0, 1.0]])
    >>> heterogeneity(edge).tolist()
    [[0.0, 0.0, 1.0, 1.0, 0.0]]
    >>> heterogeneity(edge, "diagonal").abs().tolist()
    [[0.0, 0.0, 0.0, 0.0, 0.0]]
    """
    check.choice("kind", kind, ("range", "diagonal"))
    field = check.as_tensor("scores", scores)
    if field.ndim < 2:
        raise ValueError(f"`scores` must be (..., H, W); got {check.shape(field)}.")
    check.finite("scores", field)
    flat = field.reshape(-1, *field.shape[-2:])
    return check.like_input(scores)(h_map(flat, kind).reshape(field.shape))  # type: ignore[no-any-return]


def h_map(fields: Tensor, kind: str) -> Tensor:
    """`heterogeneity` of fields (n, *size) in any number of dimensions: mixed along all of them, or their range.

    >>> h_map(torch.tensor([[0.0, 0.0, 1.0, 1.0]]), "diagonal").abs().tolist()
    [[0.0, 1.0, 1.0, 0.0]]
    """
    dims, h = fields.ndim - 1, fields[:, None]
    h = h.to(torch.promote_types(h.dtype, torch.float32))
    if kind == "range":  # pooling ignores what lies outside, which for a maximum is the same as repeating the border
        highest = getattr(functional, f"max_pool{dims}d")
        return torch.as_tensor(highest(h, 3, stride=1, padding=1) + highest(-h, 3, stride=1, padding=1))[:, 0]
    h = -functional.pad(h, (1, 1) * dims, mode="replicate")
    for axis in range(-1, -dims - 1, -1):
        n = h.shape[axis] - 2
        h = h.narrow(axis, 0, n) - h.narrow(axis, 2, n)
    return h[:, 0]


def boundary_segments(h: Array, segments: ArrayT, threshold: float) -> ArrayT:
    """The labels of the segments worth splitting: max over the segment of |H| > threshold, sorted.

    ``h`` is (..., H, W) from `heterogeneity`; over leading dimensions (several targets) the maximum counts. The labels
    of ``segments`` (H, W) start at 0; those returned are a 1-D array in their library.

    Guarantees: monotone; a lower threshold never gives fewer segments.

    >>> boundary_segments(torch.tensor([[0.0, 0.2, -0.7]]), torch.tensor([[0, 1, 2]]), 0.1).tolist()
    [1, 2]
    """
    level = check.real_number("threshold", threshold, least=0)
    labels = (strengths(h, segments) > level).nonzero().flatten()
    return labels.to(segments.device) if isinstance(segments, Tensor) else labels.cpu().numpy()


def strengths(h: Array, segments: Array) -> Tensor:
    """(P,): the maximum of |H| over each segment; 0 for a label that is not used."""
    field = check.as_tensor("h", h).detach()
    labels = check.labels("segments", segments, size=field.shape[-segments.ndim :])
    strongest = field.abs().reshape(-1, *labels.shape).amax(0).flatten()
    result = strongest.new_zeros(int(labels.max()) + 1)
    return result.scatter_reduce_(0, labels.flatten().to(field.device), strongest, "amax")


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

    Both are (..., H, W); ``alpha``, from `mixing`, lies in [0, 1] and broadcasts.

    Guarantees: convex, so never outside what went in, to the last bit; equal inputs come back unchanged.

    >>> merge(torch.tensor([0.0, 0.5]), torch.tensor([1.0, 0.5]), torch.tensor([0.25, 0.3])).tolist()
    [0.75, 0.5]
    """
    coarse = check.as_tensor("coarse_scores", coarse_scores)
    fine = check.as_tensor("fine_scores", fine_scores)
    weight = check.as_tensor("alpha", alpha)
    if coarse.shape != fine.shape:
        raise ValueError(
            f"`fine_scores` must have the shape of `coarse_scores` ({check.shape(coarse)}); got {check.shape(fine)}."
        )
    check.in_unit_interval("alpha", weight)
    mixed = fine + weight * (coarse - fine)
    # rounding may step over an end by one bit
    mixed = torch.minimum(torch.maximum(mixed, torch.minimum(coarse, fine)), torch.maximum(coarse, fine))
    return check.like_input(coarse_scores)(mixed)  # type: ignore[no-any-return]
