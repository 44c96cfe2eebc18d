"""Mass: does every cell still hold what the coarse map gave it (D1), how sharply is it gathered, does the grid show?

And against a known truth: spurious attribution, lost attribution, and the mass that forces them.

``coarse`` is (h, w) on a regular grid, or (K,) with ``cells``, the label of each pixel (H, W) from 0 to K - 1; with
``coarse_is="density"`` a cell's mass is M_k = a_k · its pixels, with ``"mass"`` M_k = a_k. A factor on both maps
changes nothing, a factor on one of them does: do not normalise before. No evaluations.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from usu import _checks as check
from usu.metrics import quantus_compat
from usu.metrics.maps import checked_cells, checked_map, same_size
from usu.operator.cells import Labels, Partition, partition_of
from usu.types import Array

#: Beside the largest density, below this a cell holds no mass one could speak of.
_NO_MASS = 1e-6


def mass_error(
    pixel_map: Array, coarse: Array, *, cells: Array | None = None, coarse_is: Literal["density", "mass"] = "density"
) -> float:
    """max_k |Σ_{x in cell k} Ã(x) - M_k| / |M_k|; a cell of no mass is measured against the mean of |M|.

    Guarantees:
        At least 0, lower is better; 0 is D1. A coarse map of zeros gives 0 or infinity.

    >>> mass_error(np.array([[1.0, 3.0, 5.0, 6.0]]), np.array([[2.0, 5.0]]))  # 4 of 4, and 11 of 10
    0.1
    """
    found, wanted, _ = _masses(checked_map(pixel_map), coarse, cells, coarse_is)
    own, mean = wanted.abs(), wanted.abs().mean()
    return _ratio((found - wanted).abs(), torch.where(own > 1e-9 * mean, own, mean))


def moved_mass(
    pixel_map: Array, coarse: Array, *, cells: Array | None = None, coarse_is: Literal["density", "mass"] = "density"
) -> float:
    """½ Σ_k |Σ_{x in cell k} Ã(x) - M_k| / Σ_k |M_k|: the share of the mass that sits in another cell than before.

    Guarantees:
        At least 0, lower is better; 0 is D1. At most 1 for non-negative maps of equal total. A coarse map of zeros
        gives 0 or infinity.

    >>> moved_mass(np.array([[1.0, 2.0, 5.0, 6.0]]), np.array([[2.0, 5.0]]))  # 1 of 14 crossed the border
    0.07142857142857142
    """
    found, wanted, _ = _masses(checked_map(pixel_map), coarse, cells, coarse_is)
    return _ratio((found - wanted).abs().sum() / 2, wanted.abs().sum())


def largest_gain(
    pixel_map: Array, coarse: Array, *, cells: Array | None = None, coarse_is: Literal["density", "mass"] = "density"
) -> float:
    """max_x |Ã(x)| / |a_k| for x in cell k: the largest density beside that of its own cell.

    Guarantees:
        At least 1 for a map that satisfies D1, where 1 is nearest-neighbour, and at most the pixels of the largest cell
        if no pixel goes against its cell's sign. Cells below a millionth of the largest density are left out; 0 if all.

    >>> largest_gain(np.array([[1.0, 3.0, 5.0, 5.0]]), np.array([[2.0, 5.0]]))  # 3 where the cell has 2
    1.5
    """
    field = checked_map(pixel_map)
    _, mass, partition = _masses(field, coarse, cells, coarse_is)
    density = partition.spread((mass / partition.sizes)[None])[0].abs()
    there = density > _NO_MASS * density.max()
    return float((field[there].abs() / density[there]).max()) if bool(there.any()) else 0.0


def seam_energy(pixel_map: Array, cells: Array | tuple[int, int], segments: Array) -> float:
    """mean (Ã(x) - Ã(y))² / mean Ã² over 4-neighbours x, y of two cells and one segment: jumps that show the grid.

    Guarantees:
        At least 0, lower is better; 0 where no segment crosses a cell's border, and for a map of zeros. The scale of
        the map changes nothing. A constant map has no seams: this measures only what must not be there.

    >>> seam_energy(np.array([[0.0, 0.0, 2.0, 2.0]]), (1, 2), np.array([[0, 0, 0, 1]]))  # 2² over a mean of 2
    2.0
    """
    field = checked_map(pixel_map)
    size = tuple(field.shape)
    cell, segment = checked_cells(cells, size), check.labels("segments", segments, size=size, least=None).cpu()
    peak = field.abs().max()
    if peak == 0:
        return 0.0
    field = field / peak  # squares of tiny and of huge values leave the range of float64
    jumps = torch.cat(
        [field.diff(dim=axis)[(cell.diff(dim=axis) != 0) & (segment.diff(dim=axis) == 0)] for axis in (0, 1)]
    )
    return float(jumps.square().mean() / field.square().mean()) if len(jumps) else 0.0


def sparseness(pixel_map: Array, *, compat: Literal["quantus"] | None = None) -> float:
    """G = Σ_i (2i - n - 1) a_i / (n Σ_i a_i), the Gini index of the sorted magnitudes a_1 ≤ ... ≤ a_n of |Ã|.

    Guarantees:
        In [0, 1 - 1/n], where 0 is a constant map (or zeros) and 1 - 1/n a single pixel. Higher is sparser, which says
        nothing about right or wrong. Neither scale nor sign of the map matters, nor the order of its pixels.

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


class ErrorMaps(NamedTuple):
    """Per pixel: ``alpha`` is attribution that should not be there, ``beta`` is attribution that is missing."""

    alpha: Any
    beta: Any


class MassImbalance(NamedTuple):
    """Per cell: mass that is missing and mass that is too much."""

    deficit: Any
    excess: Any


def alpha_beta_errors(pixel_map: Array, truth: Array) -> ErrorMaps:
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


def mass_imbalance(pixel_map: Array, truth: Array, cells: Array | tuple[int, int]) -> MassImbalance:
    """Δ⁻_k = max(0, Σ A* - Σ Ã) and Δ⁺_k = max(0, Σ Ã - Σ A*) over each cell, (..., K); any lattice, or a grid (h, w).

    Guarantees:
        For non-negative maps Σ α ≥ Δ⁺ and Σ β ≥ Δ⁻ in every cell; both vanish for a map that satisfies D1 when the
        coarse map sums the truth.

    >>> mass_imbalance(np.array([[3.0, 1.0, 2.0, 2.0]]), np.array([[1.0, 1.0, 4.0, 4.0]]), (1, 2))
    MassImbalance(deficit=array([0., 4.]), excess=array([2., 0.]))
    """
    found, known = _pair(pixel_map, truth)
    if isinstance(cells, (np.ndarray, Tensor)):
        labels = check.labels("cells", cells, size=found.shape[found.ndim - cells.ndim :], like=found)
    else:
        labels = checked_cells(cells, found.shape[-2:]).to(found.device)
    partition = Labels(labels, int(labels.max()) + 1)
    lead = found.shape[: found.ndim - len(partition.lattice)]
    surplus = partition.total((found - known).reshape(-1, *partition.lattice)).reshape(*lead, -1)
    back = check.like_input(pixel_map)
    return MassImbalance(back((-surplus).clamp(min=0)), back(surplus.clamp(min=0)))


def _pair(pixel_map: Array, truth: Array) -> tuple[Tensor, Tensor]:
    """Both in float64: a difference in half precision would lose what the cells are compared by."""
    found = check.as_tensor("pixel_map", pixel_map)
    known = same_size("truth", check.as_tensor("truth", truth, like=found), tuple(found.shape), "`pixel_map`")
    check.finite("pixel_map", found)
    check.finite("truth", known)
    return found.double(), known.double()


def _masses(field: Tensor, coarse: Array, cells: Array | None, coarse_is: str) -> tuple[Tensor, Tensor, Partition]:
    """The mass of each cell found in the map and wanted by the coarse map, both (K,) in float64, and the cells."""
    check.choice("coarse_is", coarse_is, ("density", "mass"))
    values = check.as_tensor("coarse", coarse).detach().cpu().double()
    check.finite("coarse", values)
    if values.ndim != (2 if cells is None else 1):
        raise ValueError(f"`coarse` must be one map (h, w), or (K,) beside `cells`; got {check.shape(values)}.")
    cells = cells.cpu() if isinstance(cells, Tensor) else cells
    partition, _ = partition_of(values, field, cells, "pixel_map")
    wanted = values.flatten() * (partition.sizes if coarse_is == "density" else 1)
    return partition.total(field[None])[0], wanted, partition


def _ratio(error: Tensor, scale: Tensor) -> float:
    """The largest error / scale, with 0 / 0 = 0: nothing wanted and nothing found is no error."""
    return float(torch.where(error == 0, 0, error / scale).max())
