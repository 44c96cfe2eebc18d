"""Half deletion within cells: does the map know which half of each cell matters? The coarse map cannot help it."""

from __future__ import annotations

import torch
from torch import Tensor

from usu.forward import Model
from usu.forward.fills import Fill, apply, filled
from usu.forward.outputs import Link, Target
from usu.metrics.curves import label_map, one_target
from usu.metrics.measurement import Measured
from usu.metrics.passes import asked, checked_map, dice, ranking
from usu.types import Array


def half_deletion(
    pixel_map: Array,
    image: Array,
    model: Model,
    cells: Array | tuple[int, int],
    target: Target = None,
    *,
    fill: Fill = "mean",
    link: Link = "probability",
    generator: torch.Generator | int = 0,
) -> Measured:
    """drop(top half of every cell filled) - drop(bottom half filled) = g(bottom filled) - g(top filled).

    Both pictures lose the same number of pixels in every cell, so how much the map gives to a cell plays no part: only
    what it says inside of cells does. Of an odd number of pixels the middle one belongs to neither half.

    Args:
        pixel_map: (H, W), higher = more relevant.
        image: (C, H, W), as the model takes it.
        cells: the shape (h, w) of the coarse map, or any label map (H, W).
        fill: what takes the pixels' place; see `usu.fills`.
        generator: orders pixels of equal value at random, so that a map constant in its cells expects 0.

    Guarantees:
        Higher is better, 0 is chance. In [-1, 1] for probabilities. Only the order inside each cell matters: any
        increasing transformation of the map, even another one for each cell, leaves the value as it is. 2 evaluations,
        one more if ``target`` is None. ``curve`` holds g(top filled) and g(bottom filled).

    >>> total = lambda batch: batch.sum((1, 2, 3))[:, None]
    >>> picture = torch.tensor([[[1.0, 3.0, 5.0, 5.0]]])
    >>> half_deletion(picture[0], picture, total, (1, 2), 0, fill=0, link="logit").value  # 11 - 1 - (11 - 3) of cell 0
    2.0
    """
    question, picture, spent = asked(model, target, image, link)
    size = int(picture.shape[-2]), int(picture.shape[-1])
    field = checked_map(pixel_map, size)
    labels, count = label_map("cells", cells, size)
    keep = ~halves(field, labels, count, dice(generator)).to(picture.device)
    hidden = filled(picture, fill)
    values = one_target(question.evaluate(picture, 2, lambda rows: apply(picture, hidden, keep[rows])))
    return Measured(float(values[1] - values[0]), len(values) + spent, values.numpy())


def halves(field: Tensor, labels: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """(2, H, W) booleans: the top half of every cell's pixels, and the bottom half.

    >>> field, labels = torch.tensor([[0.3, 0.9, 0.1, 0.2]]), torch.tensor([[0, 0, 0, 1]])
    >>> halves(field, labels, 2, torch.Generator().manual_seed(0)).tolist()
    [[[False, True, False, False]], [[False, False, True, False]]]
    """
    order, cell = ranking(field, generator), labels.flatten()
    order = order[cell[order].argsort(stable=True)]  # cell by cell, the most relevant pixel of each first
    sizes = torch.bincount(cell, minlength=count)
    place = torch.arange(len(cell)) - (sizes.cumsum(0) - sizes)[cell[order]]
    size = sizes[cell[order]]
    result = torch.empty(2, len(cell), dtype=torch.bool)
    result[:, order] = torch.stack([place < size // 2, place >= size - size // 2])
    return result.reshape(2, *field.shape)
