"""Error analysis against a known truth: spurious attribution, lost attribution, and the mass that forces them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic

import numpy as np
import torch

from usu import _checks as check
from usu.metrics.maps import checked_grid
from usu.operator.cells import Labels, Partition
from usu.types import Array, ArrayT


@dataclass(frozen=True, eq=False)
class ErrorMaps(Generic[ArrayT]):
    """Per pixel: ``alpha`` is attribution that should not be there, ``beta`` is attribution that is missing."""

    alpha: ArrayT
    beta: ArrayT

    def __iter__(self) -> Iterator[ArrayT]:
        return iter((self.alpha, self.beta))


@dataclass(frozen=True, eq=False)
class MassImbalance(Generic[ArrayT]):
    """Per cell: mass that is missing and mass that is too much."""

    deficit: ArrayT
    excess: ArrayT

    def __iter__(self) -> Iterator[ArrayT]:
        return iter((self.deficit, self.excess))


def alpha_beta_errors(pixel_map: ArrayT, truth: Array) -> ErrorMaps[ArrayT]:
    """α(x) = max(0, |Ã(x)| - |A*(x)|) and β(x) = max(0, |A*(x)| - |Ã(x)|).

    Guarantees:
        At each pixel at most one of them is positive, and α + β = ||Ã| - |A*||.

    >>> alpha, beta = alpha_beta_errors(np.array([3.0, 1.0]), np.array([1.0, -2.0]))
    >>> alpha, beta
    (array([2., 0.]), array([0., 1.]))
    """
    found, known = _pair(pixel_map, truth)
    surplus = found.abs() - known.abs()
    back = check.like_input(pixel_map)
    return ErrorMaps(back(surplus.clamp(min=0)), back((-surplus).clamp(min=0)))


def mass_imbalance(pixel_map: ArrayT, truth: Array, cells: Array | tuple[int, int]) -> MassImbalance[ArrayT]:
    """Δ⁻_k = max(0, Σ A* - Σ Ã) and Δ⁺_k = max(0, Σ Ã - Σ A*) over each cell, (..., K).

    Args:
        cells: integer labels over the lattice (any number of dimensions), or a grid (h, w).

    Guarantees:
        For non-negative maps Σ α ≥ Δ⁺ and Σ β ≥ Δ⁻ in every cell; both vanish for a map that satisfies D1 when the
        coarse map sums the truth.

    >>> mass_imbalance(np.array([[3.0, 1.0, 2.0, 2.0]]), np.array([[1.0, 1.0, 4.0, 4.0]]), (1, 2))
    MassImbalance(deficit=array([0., 4.]), excess=array([2., 0.]))
    """
    found, known = _pair(pixel_map, truth)
    partition: Partition
    if isinstance(cells, (np.ndarray, torch.Tensor)):
        labels = check.labels("cells", cells, size=found.shape[found.ndim - cells.ndim :], like=found)
        partition = Labels(labels, int(labels.max()) + 1)
    else:
        partition = checked_grid(cells, found.shape[-2:], device=found.device)
    lead = found.shape[: found.ndim - len(partition.lattice)]
    surplus = partition.total((found - known).reshape(-1, *partition.lattice)).reshape(*lead, -1)
    back = check.like_input(pixel_map)
    return MassImbalance(back((-surplus).clamp(min=0)), back(surplus.clamp(min=0)))


def _pair(pixel_map: Array, truth: Array) -> tuple[torch.Tensor, torch.Tensor]:
    """Both in float64: a difference in half precision would lose what the cells are compared by."""
    found = check.as_tensor("pixel_map", pixel_map)
    known = check.as_tensor("truth", truth, like=found)
    if found.shape != known.shape:
        raise ValueError(f"`truth` must be as large as `pixel_map` ({check.shape(found)}); got {check.shape(known)}.")
    check.finite("pixel_map", found)
    check.finite("truth", known)
    return found.double(), known.double()
