"""Relative D1: does every cell still hold the mass the coarse map gave it."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from usu import _checks as check
from usu.metrics.passes import checked_map
from usu.metrics.truth import checked_labels
from usu.operator.cells import Grid, Labels, Partition
from usu.types import Array


def mass_error(
    pixel_map: Array,
    coarse: Array,
    *,
    cells: Array | None = None,
    coarse_is: Literal["density", "mass"] = "density",
) -> float:
    """max_k |Σ_{x in cell k} Ã(x) - M_k| / |M_k|; a cell of no mass is measured against the mean of |M|.

    Args:
        pixel_map: (H, W).
        coarse: (h, w) on a regular grid, or (K,) with ``cells``.
        cells: the label of each pixel (H, W), from 0 to K - 1; None: the grid of ``coarse``.
        coarse_is: ``"density"``: M_k = a_k · pixels of the cell; ``"mass"``: M_k = a_k.

    Guarantees:
        At least 0, lower is better; 0 is D1. A factor on both maps changes nothing, a factor on one of them does: do
        not normalise before. A coarse map of zeros gives 0 for a map without mass in any cell and infinity for others.
        No evaluations.

    >>> import numpy as np
    >>> mass_error(np.array([[1.0, 3.0, 5.0, 6.0]]), np.array([[2.0, 5.0]]))  # 4 of 4, and 11 of 10
    0.1
    """
    found, wanted, _ = masses(pixel_map, coarse, cells=cells, coarse_is=coarse_is)
    own, mean = wanted.abs(), wanted.abs().mean()
    return _ratio((found - wanted).abs(), torch.where(own > 1e-9 * mean, own, mean))


def moved_mass(
    pixel_map: Array,
    coarse: Array,
    *,
    cells: Array | None = None,
    coarse_is: Literal["density", "mass"] = "density",
) -> float:
    """Σ_k |Σ_{x in cell k} Ã(x) - M_k| / Σ_k |M_k|: how much mass sits in another cell than before.

    Mass that moved is missing in one cell and too much in another, so it counts twice.

    Args:
        pixel_map: (H, W).
        coarse: (h, w) on a regular grid, or (K,) with ``cells``.
        cells: the label of each pixel (H, W), from 0 to K - 1; None: the grid of ``coarse``.
        coarse_is: ``"density"``: M_k = a_k · pixels of the cell; ``"mass"``: M_k = a_k.

    Guarantees:
        At least 0, lower is better; 0 is D1. At most 2 for non-negative maps of equal total. A factor on both maps
        changes nothing, a factor on one of them does. A coarse map of zeros gives 0 for a map without mass in any cell
        and infinity for others. No evaluations.

    >>> import numpy as np
    >>> moved_mass(np.array([[1.0, 2.0, 5.0, 6.0]]), np.array([[2.0, 5.0]]))  # one pixel's 1 crossed the border
    0.14285714285714285
    """
    found, wanted, _ = masses(pixel_map, coarse, cells=cells, coarse_is=coarse_is)
    return _ratio((found - wanted).abs().sum(), wanted.abs().sum())


def masses(pixel_map: Array, coarse: Array, *, cells: Array | None, coarse_is: str) -> tuple[Tensor, Tensor, Partition]:
    """The mass of each cell found in the map and wanted by the coarse map, both (K,) in float64, and the cells."""
    field = checked_map(pixel_map)
    check.choice("coarse_is", coarse_is, ("density", "mass"))
    values = check.as_tensor("coarse", coarse).detach().cpu().double()
    partition = _cells(field, values, cells)
    check.finite("coarse", values)
    wanted = values.flatten()
    if coarse_is == "density":
        wanted = wanted * partition.sizes
    return partition.total(field[None])[0], wanted, partition


def _cells(field: Tensor, coarse: Tensor, cells: Array | None) -> Partition:
    if cells is None:
        if coarse.ndim != 2 or any(few > many for few, many in zip(coarse.shape, field.shape, strict=True)):
            raise ValueError(
                f"`coarse` must be one map, h x w, no larger than `pixel_map` ({check.shape(field)}); got "
                f"{check.shape(coarse)}. For cells that are no grid pass `cells`."
            )
        (h, w), (height, width) = coarse.shape, field.shape
        return Grid((h, w), (height, width), field.device)
    labels = checked_labels("cells", cells, tuple(field.shape))
    if coarse.ndim != 1:
        raise ValueError(
            f"`coarse` must hold one value per cell, (K,), beside `cells`; got {check.shape(coarse)}. Flatten it."
        )
    low, high = (int(v) for v in torch.aminmax(labels))
    if low < 0 or high >= len(coarse):
        raise ValueError(
            f"`cells` must be labels 0 to {len(coarse) - 1}, one per value of `coarse`; got labels from {low} to "
            f"{high}. Relabel the cells, or pass a value for each."
        )
    return Labels(labels, len(coarse))


def _ratio(error: Tensor, scale: Tensor) -> float:
    """The largest error / scale, with 0 / 0 = 0: nothing wanted and nothing found is no error."""
    return float(torch.where(error == 0, 0, error / scale).max())
