"""Quantile matching: one histogram for all maps, so that a metric can look at nothing but their order."""

from __future__ import annotations

import numpy as np
import torch

from usu import _checks as check
from usu.metrics.maps import checked_map, ranking
from usu.types import Array, ArrayT


def quantile_match(pixel_map: ArrayT, like: Array, *, generator: torch.Generator | int = 0) -> ArrayT:
    """The map with its i-th highest pixel set to the i-th highest value of ``like``, (H, W).

    A metric that looks at magnitudes rewards a histogram as much as a ranking. Matched to one map, say bilinear's, all
    maps have its values and differ in where they put them.

    Guarantees:
        Exactly the values of ``like`` in its dtype, in the library and on the device of ``pixel_map``. A higher pixel
        never comes out lower. Matching twice is matching once, bit for bit and for any seed. Any increasing function
        of the map changes nothing. No evaluations; two sorts.

    >>> quantile_match(np.array([[0.1, 0.9, 0.4]]), np.array([[7.0, 5.0, 6.0]]))
    array([[5., 7., 6.]])
    """
    field = checked_map(pixel_map)
    values = check.as_tensor("like", like).detach().cpu()
    if values.shape != field.shape:
        raise ValueError(f"`like` must be as large as `pixel_map` ({check.shape(field)}); got {check.shape(values)}.")
    check.finite("like", values)
    if values.dtype == torch.bfloat16 and isinstance(pixel_map, np.ndarray):
        values = values.float()  # numpy has no bfloat16, and float32 has all its values
    matched = torch.empty(values.numel(), dtype=values.dtype)
    matched[ranking(field, generator)] = values.flatten().sort(descending=True).values
    matched = matched.reshape(field.shape)
    return matched.numpy() if isinstance(pixel_map, np.ndarray) else matched.to(pixel_map.device)
