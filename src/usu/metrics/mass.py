"""Mass: does every cell still hold what the coarse map gave it (D1), and how sharply is it gathered?

In all of them ``pixel_map`` is (H, W); ``coarse`` is (h, w) on a regular grid, or (K,) with ``cells``, the label of
each pixel (H, W) from 0 to K - 1; with ``coarse_is="density"`` a cell's mass is M_k = a_k · its pixels, with ``"mass"``
M_k = a_k. A factor on both maps changes nothing, a factor on one of them does: do not normalise before. No evaluations.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from usu import _checks as check
from usu.metrics.maps import checked_map
from usu.operator.cells import Grid, Labels, Partition
from usu.types import Array

#: Beside the largest density, below this a cell holds no mass one could speak of.
_NO_MASS = 1e-6


def mass_error(
    pixel_map: Array, coarse: Array, *, cells: Array | None = None, coarse_is: Literal["density", "mass"] = "density"
) -> float:
    """max_k |Σ_{x in cell k} Ã(x) - M_k| / |M_k|; a cell of no mass is measured against the mean of |M|.

    Guarantees:
        At least 0, lower is better; 0 is D1. A coarse map of zeros gives 0 for a map without mass in any cell and
        infinity for others.

    >>> import numpy as np
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

    Half, because mass that moved is missing in one cell and too much in another.

    Guarantees:
        At least 0, lower is better; 0 is D1. At most 1 for non-negative maps of equal total. A coarse map of zeros
        gives 0 for a map without mass in any cell and infinity for others.

    >>> import numpy as np
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
        At least 0; at least 1 for a map that satisfies D1, where 1 is nearest-neighbour, and at most the pixels of the
        largest cell if no pixel goes against its cell's sign. A large number means that a stray pixel can take a cell.
        Cells below a millionth of the largest density are left out; if that is all of them, 0.

    >>> import numpy as np
    >>> largest_gain(np.array([[1.0, 3.0, 5.0, 5.0]]), np.array([[2.0, 5.0]]))  # 3 where the cell has 2
    1.5
    """
    field = checked_map(pixel_map)
    _, mass, partition = _masses(field, coarse, cells, coarse_is)
    density = partition.spread((mass / partition.sizes)[None])[0].abs()
    there = density > _NO_MASS * density.max()
    return float((field[there].abs() / density[there]).max()) if bool(there.any()) else 0.0


def _masses(field: Tensor, coarse: Array, cells: Array | None, coarse_is: str) -> tuple[Tensor, Tensor, Partition]:
    """The mass of each cell found in the map and wanted by the coarse map, both (K,) in float64, and the cells."""
    check.choice("coarse_is", coarse_is, ("density", "mass"))
    values = check.as_tensor("coarse", coarse).detach().cpu().double()
    partition: Partition
    if cells is None:
        if values.ndim != 2 or any(few > many for few, many in zip(values.shape, field.shape, strict=True)):
            needed = f"one map, h x w, no larger than `pixel_map` ({check.shape(field)}), or have `cells`"
            raise ValueError(f"`coarse` must be {needed}; got {check.shape(values)}.")
        (h, w), (height, width) = values.shape, field.shape
        partition = Grid((h, w), (height, width), field.device)
    else:
        labels = check.labels("cells", cells, size=field.shape).cpu()
        if values.ndim != 1:
            raise ValueError(f"`coarse` must hold one value per cell, (K,), beside `cells`; got {check.shape(values)}.")
        if (last := int(labels.max())) >= len(values):
            raise ValueError(f"`cells` must be labels 0 to {len(values) - 1}, one per value of `coarse`; got {last}.")
        partition = Labels(labels, len(values))
    check.finite("coarse", values)
    wanted = values.flatten() * (partition.sizes if coarse_is == "density" else 1)
    return partition.total(field[None])[0], wanted, partition


def _ratio(error: Tensor, scale: Tensor) -> float:
    """The largest error / scale, with 0 / 0 = 0: nothing wanted and nothing found is no error."""
    return float(torch.where(error == 0, 0, error / scale).max())
