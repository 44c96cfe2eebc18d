"""Error analysis against a known truth: spurious attribution, lost attribution, and the mass that forces them."""

from __future__ import annotations

from typing import Generic, NamedTuple

import numpy as np
import torch

from usu import _checks as check
from usu.operator.cells import Grid, Labels, Partition
from usu.types import Array, ArrayT


class ErrorMaps(NamedTuple, Generic[ArrayT]):
    """Per pixel: ``alpha`` is attribution that should not be there, ``beta`` is attribution that is missing."""

    alpha: ArrayT
    beta: ArrayT


class MassImbalance(NamedTuple, Generic[ArrayT]):
    """Per cell: mass that is missing and mass that is too much."""

    deficit: ArrayT
    excess: ArrayT


def alpha_beta_errors(pixel_map: ArrayT, truth: Array) -> ErrorMaps[ArrayT]:
    """α(x) = max(0, |Ã(x)| - |A*(x)|) and β(x) = max(0, |A*(x)| - |Ã(x)|).

    Guarantees:
        At each pixel at most one of them is positive, and α + β = ||Ã| - |A*||.

    >>> alpha_beta_errors(np.array([3.0, 1.0]), np.array([1.0, -2.0]))
    ErrorMaps(alpha=array([2., 0.]), beta=array([0., 1.]))
    """
    found, known = _pair(pixel_map, truth)
    surplus = found.abs() - known.abs()
    back = check.like_input(pixel_map)
    return ErrorMaps(back(surplus.clamp(min=0)), back((-surplus).clamp(min=0)))


def mass_imbalance(pixel_map: ArrayT, truth: Array, cells: Array | tuple[int, int]) -> MassImbalance[ArrayT]:
    """Δ⁻_k = max(0, Σ A* - Σ Ã) and Δ⁺_k = max(0, Σ Ã - Σ A*) over each cell, (..., K).

    Args:
        pixel_map: (..., *lattice).
        truth: like ``pixel_map``.
        cells: integer labels over the lattice, or a grid (h, w).

    Guarantees:
        For non-negative maps Σ α ≥ Δ⁺ and Σ β ≥ Δ⁻ in every cell; both vanish for a map that satisfies D1 when the
        coarse map sums the truth.

    >>> mass_imbalance(np.array([[3.0, 1.0, 2.0, 2.0]]), np.array([[1.0, 1.0, 4.0, 4.0]]), (1, 2))
    MassImbalance(deficit=array([0., 4.]), excess=array([2., 0.]))
    """
    found, known = _pair(pixel_map, truth)
    partition = _cells(found, cells)
    lead = found.shape[: found.ndim - len(partition.lattice)]
    flat = (found - known).reshape(-1, *partition.lattice)
    surplus = partition.total(flat).reshape(*lead, -1)
    back = check.like_input(pixel_map)
    return MassImbalance(back((-surplus).clamp(min=0)), back(surplus.clamp(min=0)))


def _pair(pixel_map: Array, truth: Array) -> tuple[torch.Tensor, torch.Tensor]:
    found = check.as_tensor("pixel_map", pixel_map)
    known = check.as_tensor("truth", truth, like=found)
    if found.shape != known.shape:
        raise ValueError(
            f"`truth` must have the shape of `pixel_map` ({check.shape(found)}); got {check.shape(known)}. "
            "Compare maps of one size."
        )
    check.finite("pixel_map", found)
    check.finite("truth", known)
    return found, known


def _cells(field: torch.Tensor, cells: Array | tuple[int, int]) -> Partition:
    if isinstance(cells, (np.ndarray, torch.Tensor)):
        labels = check.any_tensor("cells", cells, like=field)
        if labels.is_floating_point() or labels.shape != field.shape[field.ndim - labels.ndim :]:
            raise ValueError(
                f"`cells` must be integer labels over the lattice of `pixel_map` ({check.shape(field)}); got "
                f"{labels.dtype} of {check.shape(labels)}. Give every pixel one label, or pass a grid (h, w)."
            )
        if int(labels.min()) < 0:
            raise ValueError(f"`cells` must be labels from 0 on; got {int(labels.min())}. Relabel the cells.")
        return Labels(labels.long(), int(labels.max()) + 1)
    height, width = field.shape[-2:]
    return Grid(cells, (height, width), field.device)
