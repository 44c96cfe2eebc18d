"""Localization: does the map lie on the object? Concentration, energy, the pointing game, IoU, AUROC within cells.

In all of them ``pixel_map`` is (H, W) and ``truth`` (H, W) is True inside the object. A truth without a pixel is
refused (but for `cell_auroc`), with all of them the answer is 1. They ask no model: no evaluations.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from usu import _checks as check
from usu.metrics.maps import checked_map, checked_truth, dense_cells, ranking, share_inside
from usu.types import Array


def concentration(pixel_map: Array, truth: Array) -> float:
    """Σ_{x in T} |Ã(x)| / Σ_x |Ã(x)|: the share of the map's mass inside the object (the paper gives no formula).

    Guarantees:
        In [0, 1], higher is better. Neither scale nor sign of the map matters. A constant map and one of zeros get the
        area share, a permuted one gets it on average.

    >>> concentration(np.array([[3.0, -3.0, 2.0]]), np.array([[1, 1, 0]]))
    0.75
    """
    field, inside = _pair(pixel_map, truth)
    return share_inside(field.abs(), inside)


def energy_in_mask(pixel_map: Array, truth: Array) -> float:
    """Σ_{x in T} max(0, Ã(x)) / Σ_x max(0, Ã(x)): the energy-based pointing game (Wang et al. 2020).

    Guarantees:
        In [0, 1], higher is better. A positive factor changes nothing. A map that is nowhere positive gets the area
        share, a permuted one gets it on average. On a non-negative map this is `concentration`.

    >>> energy_in_mask(np.array([[3.0, -3.0, 1.0]]), np.array([[1, 1, 0]]))
    0.75
    """
    field, inside = _pair(pixel_map, truth)
    return share_inside(field.clamp(min=0), inside)


def pointing_game(pixel_map: Array, truth: Array, *, tolerance: float = 0) -> float:
    """P(x in T) for x drawn from the pixels of the highest value: 1 is a hit, 0 a miss (Zhang et al. 2016).

    A pixel at most ``tolerance`` from the object, between centres, is a hit too; 15 in the original game.

    Guarantees:
        In [0, 1], higher is better. Any increasing function of the map changes nothing; a constant map gets the area
        share.

    >>> pointing_game(np.array([[5.0, 5.0, 1.0]]), np.array([[0, 1, 0]]))  # one of two
    0.5
    """
    field, inside = _pair(pixel_map, truth)
    if check.real_number("tolerance", tolerance, least=0) > 0:
        from scipy.ndimage import distance_transform_edt

        inside = torch.from_numpy(distance_transform_edt(~inside.numpy()) <= tolerance)
    return float(inside[field == field.max()].double().mean())


def iou(pixel_map: Array, truth: Array) -> float:
    """max over t of |{Ã ≥ t} ∩ T| / |{Ã ≥ t} ∪ T|, with every value of the map tried as the threshold t.

    The best threshold is chosen with the truth in hand: an upper bound on what a user who must guess it gets.

    Guarantees:
        In [area share, 1], higher is better; a permuted map gets little more than the area share. Any increasing
        function of the map changes nothing.

    >>> iou(np.array([[4.0, 3.0, 2.0, 1.0]]), np.array([[1, 0, 1, 0]]))  # {4, 3, 2} holds both, and one too many
    0.6666666666666666
    """
    field, inside = (one.flatten() for one in _pair(pixel_map, truth))
    values, order = field.sort(descending=True)
    # only where the next value is another one can a threshold cut
    last = torch.cat([values[1:] != values[:-1], values.new_ones(1, dtype=torch.bool)])
    hits = inside[order].cumsum(0)[last].double()
    taken = torch.arange(1, len(values) + 1)[last]
    return float((hits / (taken + inside.sum() - hits)).max())


def area_iou(pixel_map: Array, truth: Array, *, generator: torch.Generator | int = 0) -> float:
    """|S ∩ T| / |S ∪ T| with S the |T| highest pixels: the threshold is set by the object's area, not by its place.

    Guarantees:
        In [0, 1], higher is better; with p the area share, a random order gets about p / (2 - p). Any increasing
        function of the map changes nothing.

    >>> area_iou(np.array([[4.0, 3.0, 2.0, 1.0]]), np.array([[1, 0, 1, 0]]))  # {4, 3} holds one of two
    0.3333333333333333
    """
    field, inside = _pair(pixel_map, truth)
    area = int(inside.sum())
    hits = int(inside.flatten()[ranking(field, generator)[:area]].sum())
    return hits / (2 * area - hits)


def cell_auroc(pixel_map: Array, truth: Array, cells: Array | tuple[int, int], *, least: int = 1) -> float:
    """P(Ã(x) > Ã(y)) + ½ P(Ã(x) = Ã(y)) for x inside and y outside the object, both in one cell.

    The coarse map is one number per cell, so it cannot help: what is measured is how the number was shared. The pairs
    of all cells count alike. Only cells with ``least`` pixels on either side count; NaN where there is none.

    Guarantees:
        In [0, 1], higher is better, 0.5 is chance: exactly for a map that is constant in every cell, on average for
        pixels permuted within cells. An increasing function, even another one for each cell, changes nothing.

    >>> pixel_map = np.array([[2.0, 1.0, 9.0, 9.0]])
    >>> cell_auroc(pixel_map, np.array([[1, 0, 1, 0]]), (1, 2))  # right on the left, tied on the right
    0.75
    """
    from scipy.stats import rankdata

    field, inside = (one.numpy().ravel() for one in _pair(pixel_map, truth, needed=False))
    check.whole_number("least", least, least=1)
    labels, count = dense_cells(cells, tuple(pixel_map.shape))
    cell = labels.numpy().ravel()
    within = np.bincount(cell[inside], minlength=count)
    without = np.bincount(cell[~inside], minlength=count)
    straddles = (within >= least) & (without >= least)
    pairs = (within * without)[straddles].sum()
    if pairs == 0:
        return float("nan")
    # ranks of all pixels, cell by cell and by value inside of a cell, less the pixels of the cells before
    levels = np.unique(field, return_inverse=True)[1].reshape(-1)
    ranks = rankdata(cell * len(field) + levels) - (np.cumsum(within + without) - within - without)[cell]
    # Mann and Whitney: the ranks of the inside pixels, less what they would have alone
    won = np.bincount(cell[inside], ranks[inside], count) - within * (within + 1) / 2
    return float(won[straddles].sum() / pairs)


def _pair(pixel_map: Array, truth: Array, *, needed: bool = True) -> tuple[Tensor, Tensor]:
    field = checked_map(pixel_map)
    return field, checked_truth(truth, tuple(field.shape), needed=needed)
