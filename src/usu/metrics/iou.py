"""Intersection over union: how well does the map, cut at a threshold, cover the object."""

from __future__ import annotations

import torch

from usu.metrics.passes import checked_map, dice, ranking
from usu.metrics.truth import checked_truth
from usu.types import Array


def iou(pixel_map: Array, truth: Array) -> float:
    """max over t of |{Ã ≥ t} ∩ T| / |{Ã ≥ t} ∪ T|, with every value of the map tried as the threshold t.

    The best threshold is chosen with the truth in hand: an upper bound on what a user who must guess it gets. Pixels of
    one value are inside or outside together.

    Args:
        pixel_map: (H, W); the sign counts, negative values come last.
        truth: (H, W), True inside the object; without a pixel it is refused, with all of them the answer is 1.

    Guarantees:
        In [area share, 1], higher is better; the lowest threshold takes everything, so a constant map gets the area
        share and a permuted map little more. Any increasing function of the map changes nothing, so neither does its
        scale. No evaluations; one sort.

    >>> import numpy as np
    >>> iou(np.array([[4.0, 3.0, 2.0, 1.0]]), np.array([[1, 0, 1, 0]]))  # {4, 3, 2} holds both, and one too many
    0.6666666666666666
    """
    field = checked_map(pixel_map)
    inside = checked_truth(truth, tuple(field.shape)).flatten()
    values, order = field.flatten().sort(descending=True)
    # only where the next value is another one can a threshold cut
    last = torch.cat([values[1:] != values[:-1], values.new_ones(1, dtype=torch.bool)])
    hits = inside[order].cumsum(0)[last].double()
    taken = torch.arange(1, len(values) + 1)[last]
    return float((hits / (taken + inside.sum() - hits)).max())


def area_iou(pixel_map: Array, truth: Array, *, generator: torch.Generator | int = 0) -> float:
    """|S ∩ T| / |S ∪ T| with S the |T| highest pixels: the threshold is set by the object's area, not by its place.

    Args:
        pixel_map: (H, W); the sign counts.
        truth: (H, W), True inside the object; without a pixel it is refused, with all of them the answer is 1.
        generator: a seed, or a generator to draw from: pixels of equal value are taken in a random order.

    Guarantees:
        In [0, 1], higher is better; with p the area share, a random order gets about p / (2 - p). Any increasing
        function of the map changes nothing. No evaluations; one sort.

    >>> import numpy as np
    >>> area_iou(np.array([[4.0, 3.0, 2.0, 1.0]]), np.array([[1, 0, 1, 0]]))  # {4, 3} holds one of two
    0.3333333333333333
    """
    field = checked_map(pixel_map)
    inside = checked_truth(truth, tuple(field.shape)).flatten()
    area = int(inside.sum())
    hits = int(inside[ranking(field, dice(generator))[:area]].sum())
    return hits / (2 * area - hits)
