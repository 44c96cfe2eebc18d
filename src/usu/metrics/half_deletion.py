"""Half deletion: does the map know which half of each cell matters? The coarse map cannot help it."""

from __future__ import annotations

import torch
from torch import Tensor

from usu.forward import Model
from usu.forward.calls import Link, Target
from usu.forward.fills import Fill, apply, filled
from usu.metrics.maps import dense_cells, ranking
from usu.metrics.passes import Measured, one_target, prepared
from usu.types import Array


def half_deletion(
    pixel_map: Array, image: Array, model: Model, cells: Array | tuple[int, int], target: Target = None, *,
    fill: Fill = "mean", link: Link = "probability", generator: torch.Generator | int = 0,
) -> Measured:  # fmt: skip
    """drop(top half of every cell filled) - drop(bottom half filled) = g(bottom filled) - g(top filled).

    Both images lose the same number of pixels in every cell, so only what the map says inside of cells plays a part.
    Of an odd number of pixels the middle one belongs to neither half.

    Guarantees:
        Higher is better, 0 is chance. In [-1, 1] for probabilities. Only the order inside each cell matters: any
        increasing transformation of the map, even another one for each cell, leaves the value as it is. 2 evaluations,
        one more if ``target`` is None. ``curve`` holds g(top filled) and g(bottom filled).

    >>> total = lambda batch: batch.sum((1, 2, 3))[:, None]
    >>> image = torch.tensor([[[1.0, 3.0, 5.0, 5.0]]])
    >>> half_deletion(image[0], image, total, (1, 2), 0, fill=0, link="logit").value  # 11 - 1 - (11 - 3) of cell 0
    2.0
    """
    field, asked, image, spent = prepared(pixel_map, image, model, target, link)
    keep = ~halves(field, *dense_cells(cells, tuple(field.shape)), generator).to(image.device)
    hidden = filled(image, fill)
    values = one_target(asked.evaluate(image, 2, lambda rows: apply(image, hidden, keep[rows])))
    return Measured(float(values[1] - values[0]), len(values) + spent, values.numpy())


def halves(field: Tensor, labels: Tensor, count: int, generator: torch.Generator | int) -> Tensor:
    """(2, H, W) booleans: the top half of every cell's pixels, and the bottom half.

    >>> field, labels = torch.tensor([[0.3, 0.9, 0.1, 0.2]]), torch.tensor([[0, 0, 0, 1]])
    >>> halves(field, labels, 2, 0).tolist()
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
