"""The largest gain: how sharply a cell's mass is gathered in one pixel."""

from __future__ import annotations

from typing import Literal

from usu.metrics.mass_error import masses
from usu.metrics.passes import checked_map
from usu.types import Array

#: Beside the largest density, below this a cell holds no mass one could speak of.
_NO_MASS = 1e-6


def largest_gain(
    pixel_map: Array,
    coarse: Array,
    *,
    cells: Array | None = None,
    coarse_is: Literal["density", "mass"] = "density",
) -> float:
    """max_x |Ã(x)| / |a_k| for x in cell k: the largest density beside that of its own cell.

    Args:
        pixel_map: (H, W).
        coarse: (h, w) on a regular grid, or (K,) with ``cells``.
        cells: the label of each pixel (H, W), from 0 to K - 1; None: the grid of ``coarse``.
        coarse_is: ``"density"``: a_k as given; ``"mass"``: a_k over the pixels of the cell.

    Guarantees:
        At least 0; at least 1 for a map that satisfies D1, where 1 is nearest-neighbour, and at most the pixels of the
        largest cell if no pixel goes against its cell's sign. A large number means that a stray pixel can take a cell.
        A factor on both maps changes nothing, a factor on one of them does. Cells below a millionth of the largest
        density are left out; if that is all of them, 0. No evaluations.

    >>> import numpy as np
    >>> largest_gain(np.array([[1.0, 3.0, 5.0, 5.0]]), np.array([[2.0, 5.0]]))  # 3 where the cell has 2
    1.5
    """
    field = checked_map(pixel_map).flatten()
    _, mass, partition = masses(pixel_map, coarse, cells=cells, coarse_is=coarse_is)
    density = partition.spread((mass / partition.sizes)[None]).flatten().abs()
    there = density > _NO_MASS * density.max()
    return float((field[there].abs() / density[there]).max()) if bool(there.any()) else 0.0
