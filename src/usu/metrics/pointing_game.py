"""The pointing game: does the highest pixel lie on the object."""

from __future__ import annotations

import torch
from torch import Tensor

from usu import _checks as check
from usu.metrics.passes import checked_map
from usu.metrics.truth import checked_truth
from usu.types import Array


def pointing_game(pixel_map: Array, truth: Array, *, tolerance: float = 0) -> float:
    """P(x in T) for x drawn from the pixels of the highest value: 1 is a hit, 0 a miss (Zhang et al. 2016).

    Args:
        pixel_map: (H, W); the sign counts, the highest value is looked for and not the largest magnitude.
        truth: (H, W), True inside the object; without a pixel it is refused, with all of them the answer is 1.
        tolerance: a pixel at most this far from the object, measured between centres in pixels, is a hit too. The
            original game allows 15 on pictures of full size.

    Guarantees:
        In [0, 1], higher is better. Several highest pixels count by the share of them that hits, which is what guessing
        one of them wins: a constant map gets the area share, and nothing depends on the order of the pixels. Any
        increasing function of the map changes nothing. No evaluations.

    >>> import numpy as np
    >>> pointing_game(np.array([[5.0, 5.0, 1.0]]), np.array([[0, 1, 0]]))  # one of two
    0.5
    >>> pointing_game(np.array([[5.0, 1.0, 1.0]]), np.array([[0, 1, 0]]), tolerance=1)
    1.0
    """
    field = checked_map(pixel_map)
    inside = checked_truth(truth, tuple(field.shape))
    if check.real_number("tolerance", tolerance) < 0:
        raise ValueError(f"`tolerance` must be at least 0 pixels; got {tolerance}. 0 asks for a hit on the object.")
    if tolerance > 0:
        inside = _grown(inside, tolerance)
    return float(inside[field == field.max()].double().mean())


def _grown(inside: Tensor, radius: float) -> Tensor:
    """All pixels within a disc's radius of an inside one."""
    from scipy.ndimage import distance_transform_edt

    return torch.from_numpy(distance_transform_edt(~inside.numpy()) <= radius)
