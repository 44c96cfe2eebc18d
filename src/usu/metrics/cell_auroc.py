"""AUROC within cells: does the upsampling, and nothing but the upsampling, know where the object ends."""

from __future__ import annotations

import numpy as np

from usu.metrics.passes import checked_map
from usu.metrics.truth import checked_cells, checked_truth
from usu.types import Array, NDArray


def cell_auroc(pixel_map: Array, truth: Array, cells: Array | tuple[int, int], *, least: int = 1) -> float:
    """P(Ã(x) > Ã(y)) + ½ P(Ã(x) = Ã(y)) for x inside and y outside the object, both in one cell.

    The coarse map is one number per cell, so it cannot help: what is measured is how the number was spread. The pairs
    of all cells count alike, which is the mean of the AUROC of each cell weighted by its number of pairs. A cell the
    object hardly enters weighs little by itself, and needs no threshold.

    Args:
        pixel_map: (H, W); the sign counts.
        truth: (H, W), True inside the object; where no cell holds both sides the answer is NaN.
        cells: the coarse shape (h, w), or an integer label per pixel (H, W).
        least: only cells with at least this many pixels on either side count.

    Guarantees:
        In [0, 1], higher is better, 0.5 is chance: exactly for nearest-neighbour and any map that is constant in every
        cell, on average for pixels permuted within cells. An increasing function, and another one for each cell,
        changes nothing, so neither does the scale. No evaluations.

    >>> pixel_map = np.array([[2.0, 1.0, 9.0, 9.0]])
    >>> cell_auroc(pixel_map, np.array([[1, 0, 1, 0]]), (1, 2))  # right on the left, tied on the right
    0.75
    """
    field = checked_map(pixel_map)
    size = tuple(field.shape)
    inside = checked_truth(truth, size, needed=False).numpy().ravel()
    if isinstance(least, bool) or not isinstance(least, int) or least < 1:
        raise ValueError(f"`least` must be a whole number of at least 1; got {least!r}. 1 takes every straddling cell.")
    _, cell = np.unique(checked_cells(cells, size).numpy().ravel(), return_inverse=True)
    count = int(cell.max()) + 1

    within = np.bincount(cell[inside], minlength=count)
    without = np.bincount(cell[~inside], minlength=count)
    straddles = (within >= least) & (without >= least)
    pairs = (within * without)[straddles].sum()
    if pairs == 0:
        return float("nan")
    # Mann and Whitney: the ranks of the inside pixels, less what they would have alone
    ranks = np.bincount(cell[inside], _ranks(field.numpy().ravel(), cell)[inside], count)
    won = ranks - within * (within + 1) / 2
    return float(won[straddles].sum() / pairs)


def _ranks(values: NDArray, cell: NDArray) -> NDArray:
    """The rank of each pixel in its own cell, from 1 on; equal values share the mean of their ranks."""
    order = np.lexsort((values, cell))
    ordered, owner = values[order], cell[order]
    starts = np.concatenate([[True], (ordered[1:] != ordered[:-1]) | (owner[1:] != owner[:-1])])
    first = np.flatnonzero(starts)  # of each run of equal values
    length = np.diff(first, append=len(values))
    before = np.searchsorted(owner, owner[first])  # pixels of the cells before
    ranks = np.empty(len(values))
    ranks[order] = np.repeat(first - before + (length + 1) / 2, length)
    return ranks
