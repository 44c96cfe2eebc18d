"""Seams: jumps of the map that only the grid of the coarse map can explain."""

from __future__ import annotations

import torch

from usu import _checks as check
from usu.metrics.maps import checked_cells, checked_map
from usu.types import Array


def seam_energy(pixel_map: Array, cells: Array | tuple[int, int], segments: Array) -> float:
    """mean (Ã(x) - Ã(y))² / mean Ã² over neighbours x, y of two cells and one segment.

    Neighbours stand side by side or one above the other. Where a segment ends a jump is welcome; inside it, at the
    border of two cells, it shows the grid.

    Guarantees:
        At least 0, lower is better; 0 where no segment crosses a cell's border, and for a map of zeros. The scale of
        the map changes nothing. A constant map has no seams: this measures only what must not be there. No evaluations.

    >>> import numpy as np
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
