"""Energy in the object: the pointing game for the whole map instead of its highest pixel."""

from __future__ import annotations

from usu.metrics.passes import checked_map
from usu.metrics.truth import checked_truth, share_inside
from usu.types import Array


def energy_in_mask(pixel_map: Array, truth: Array) -> float:
    """Σ_{x in T} max(0, Ã(x)) / Σ_x max(0, Ã(x)): the energy-based pointing game (Wang et al. 2020).

    Args:
        pixel_map: (H, W); what is negative counts as nothing. On a non-negative map this is `concentration`.
        truth: (H, W), True inside the object; without a pixel it is refused, with all of them the answer is 1.

    Guarantees:
        In [0, 1], higher is better. A positive factor on the map changes nothing; adding a constant does. A permuted
        map gets the area share on average; a map that is nowhere positive points nowhere, and gets the area share too.
        No evaluations.

    >>> import numpy as np
    >>> energy_in_mask(np.array([[3.0, -3.0, 1.0]]), np.array([[1, 1, 0]]))
    0.75
    """
    field = checked_map(pixel_map)
    return share_inside(field.clamp(min=0), checked_truth(truth, tuple(field.shape)))
