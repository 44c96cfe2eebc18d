"""Sparseness: how few pixels hold the map."""

from __future__ import annotations

from typing import Literal

import torch

from usu import _checks as check
from usu.metrics.passes import checked_map
from usu.types import Array

#: What Quantus 0.6.0 adds to every pixel so as not to divide by zero.
_QUANTUS_SHIFT = 1e-7


def sparseness(pixel_map: Array, *, compat: Literal["quantus"] | None = None) -> float:
    """G = Σ_i (2i - n - 1) a_i / (n Σ_i a_i), the Gini index of the sorted magnitudes a_1 ≤ ... ≤ a_n of |Ã|.

    Args:
        pixel_map: (H, W).
        compat: ``"quantus"`` gives the number of ``quantus.Sparseness()`` in 0.6.0 with its default settings for a map
            by itself: magnitudes over their maximum, plus 1e-7. In a batch Quantus divides by the maximum of the whole
            batch, and with ``normalise=False`` by nothing: there 1e-7 is much beside a small map, and its number falls.

    Guarantees:
        In [0, 1 - 1/n], where 0 is a constant map and 1 - 1/n a single pixel. Higher is sparser, which says nothing
        about right or wrong. The scale and the sign of the map change nothing; nor does the order of its pixels, so a
        permuted map gets the same. A map of zeros gets 0. No evaluations; one sort.

    >>> import numpy as np
    >>> sparseness(np.array([[0.0, 0.0, 0.0, 7.0]]))
    0.75
    """
    field = checked_map(pixel_map)
    if compat is not None:
        check.choice("compat", compat, ("quantus",))
    sizes = field.abs().flatten().sort().values
    if sizes[-1] == 0:
        return 0.0
    sizes = sizes / sizes[-1]
    if compat == "quantus":
        sizes = sizes + _QUANTUS_SHIFT
    n = len(sizes)
    place = 2 * torch.arange(1, n + 1, dtype=torch.float64) - n - 1
    # the terms of a constant map cancel, up to a rounding that can fall below zero
    return max(0.0, float((place * sizes).sum() / (n * sizes.sum())))
