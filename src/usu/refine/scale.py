"""From raw effects to scores in [0, 1]: one scale for all depths, and children measured against their siblings."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from usu import _checks as check
from usu.types import ArrayT


@dataclass(frozen=True, eq=False)
class UnitScale:
    """The affine map of the first depth, kept for all that follow: s = (value - low) / span; 0.5 where span is 0."""

    low: Tensor
    span: Tensor

    def __call__(self, values: Tensor) -> Tensor:
        """Scores of ``values`` (..., P), clipped to [0, 1]."""
        return self.unclipped(values).clamp(0, 1)

    def unclipped(self, values: Tensor) -> Tensor:
        """The same without clipping, for values that will still be shifted."""
        flat = self.span == 0
        return ((values.double() - self.low) / self.span.where(~flat, 1)).where(~flat, 0.5)


def unit_scale(values: Tensor) -> UnitScale:
    """The map that takes the lowest of ``values`` (..., P) to 0 and the highest to 1, for each leading index apart.

    >>> scale = unit_scale(torch.tensor([[2.0, 4.0], [3.0, 3.0]]))
    >>> scale(torch.tensor([[3.0, 5.0], [1.0, 9.0]])).tolist()
    [[0.5, 1.0], [0.5, 0.5]]
    """
    values = check.as_tensor("values", values).detach().double()
    check.finite("values", values)
    low, high = values.amin(-1, keepdim=True), values.amax(-1, keepdim=True)
    span = high - low
    # a spread that is nothing but rounding is no information; stretching it to [0, 1] would invent some
    noise = 8 * torch.finfo(torch.float64).eps * torch.maximum(low.abs(), high.abs())
    return UnitScale(low, span.where(span > noise, 0))


def share_of_largest(values: Tensor) -> UnitScale:
    """The map that takes 0 to 0 and the highest of ``values`` (..., P) to 1, for each leading index apart.

    Min-max stretches noise to all of [0, 1] where nothing is known, and both its ends are the noisiest values. Where
    nothing is above 0, all scores are 0.5.

    >>> share_of_largest(torch.tensor([[-1.0, 2.0, 4.0]]))(torch.tensor([[-1.0, 2.0, 4.0]])).tolist()
    [[0.0, 0.5, 1.0]]
    """
    high = check.as_tensor("values", values).detach().double().amax(-1, keepdim=True).clamp(min=0)
    return UnitScale(torch.zeros_like(high), high)


def recentre(children: ArrayT, parent_score: ArrayT | float, areas: ArrayT) -> ArrayT:
    """Shift the scores of siblings so that their area-weighted mean is their parent's score; then clip to [0, 1].

    s_c + parent - Σ area_c s_c / Σ area_c. Taking away a part has a smaller effect than taking away the whole, so
    without this big segments would outrank their own parts merely by size.

    Args:
        children: (..., n) scores of the parts of one segment, not yet clipped.
        parent_score: (...), in [0, 1].
        areas: (n,) pixels of each.

    Guarantees: in [0, 1]; keeps the order of siblings; the mean is the parent's score unless something was clipped.

    >>> recentre(torch.tensor([0.25, 0.5]), torch.tensor(0.75), torch.tensor([1.0, 1.0])).tolist()
    [0.625, 0.875]
    """
    values = check.as_tensor("children", children)
    weight = check.any_tensor("areas", areas).to(values)
    parent = torch.as_tensor(parent_score).to(values)
    if weight.shape != values.shape[-1:] or not bool((weight > 0).all()):
        raise ValueError(
            f"`areas` must be one number above 0 for each of the {values.shape[-1]} children; got "
            f"{check.shape(weight)} from {float(weight.min()):.4g}. Count each child's pixels."
        )
    mean = (values * weight).sum(-1) / weight.sum()
    shifted = values + (parent - mean).unsqueeze(-1)
    return check.like_input(children)(shifted.clamp(0, 1))  # type: ignore[no-any-return]
