"""Attribution concentration: how much of the map lies on the object."""

from __future__ import annotations

from usu.metrics.passes import checked_map
from usu.metrics.truth import checked_truth, share_inside
from usu.types import Array


def concentration(pixel_map: Array, truth: Array) -> float:
    """Σ_{x in T} |Ã(x)| / Σ_x |Ã(x)|: the share of the map's mass inside the object, of either sign.

    The paper's "attribution concentration", which it does not write down; mass against the class counts as mass. For
    the positive part alone see `energy_in_mask`.

    Args:
        pixel_map: (H, W).
        truth: (H, W), True inside the object; without a pixel it is refused, with all of them the answer is 1.

    Guarantees:
        In [0, 1], higher is better. The scale of the map changes nothing, nor does its sign; adding a constant does. A
        constant map gets the area share, a permuted one gets it on average, and so does a map of zeros, which says as
        little. No evaluations.

    >>> import numpy as np
    >>> concentration(np.array([[3.0, -3.0, 2.0]]), np.array([[1, 1, 0]]))
    0.75
    """
    field = checked_map(pixel_map)
    return share_inside(field.abs(), checked_truth(truth, tuple(field.shape)))
