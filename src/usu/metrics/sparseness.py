"""Sparseness: how few pixels hold the map."""

from __future__ import annotations

from typing import Literal

import torch

from usu.metrics import quantus_compat
from usu.metrics.maps import checked_map
from usu.types import Array


def sparseness(pixel_map: Array, *, compat: Literal["quantus"] | None = None) -> float:
    """G = Σ_i (2i - n - 1) a_i / (n Σ_i a_i), the Gini index of the sorted magnitudes a_1 ≤ ... ≤ a_n of |Ã|.

    Guarantees:
        In [0, 1 - 1/n], where 0 is a constant map and 1 - 1/n a single pixel. Higher is sparser, which says nothing
        about right or wrong. The scale and the sign of the map change nothing; nor does the order of its pixels, so a
        permuted map gets the same. A map of zeros gets 0. No evaluations; one sort.

    >>> import numpy as np
    >>> sparseness(np.array([[0.0, 0.0, 0.0, 7.0]]))
    0.75
    """
    field = checked_map(pixel_map)
    shift = quantus_compat.SPARSENESS_SHIFT if quantus_compat.wanted(compat) else 0.0
    sizes = field.abs().flatten().sort().values
    if sizes[-1] == 0:
        return 0.0
    sizes = sizes / sizes[-1] + shift
    n = len(sizes)
    place = 2 * torch.arange(1, n + 1, dtype=torch.float64) - n - 1
    # the terms of a constant map cancel, up to a rounding that can fall below zero
    return max(0.0, float((place * sizes).sum() / (n * sizes.sum())))
