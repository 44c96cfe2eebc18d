"""IROF (Rieger and Hansen, 2020): iterative removal of features, whole segments at a time."""

from __future__ import annotations

from typing import Literal

import torch

from usu.forward import Model
from usu.forward.fills import Fill, filled
from usu.forward.outputs import Link, Target
from usu.metrics import quantus_compat
from usu.metrics.maps import dense_cells, group_means, ranking
from usu.metrics.passes import Measured, area, prepared, walk
from usu.types import Array


def irof(
    pixel_map: Array,
    image: Array,
    model: Model,
    target: Target = None,
    *,
    segments: Array | tuple[int, int] | None = None,
    fill: Fill = "mean",
    link: Link = "probability",
    compat: Literal["quantus"] | None = None,
    generator: torch.Generator | int = 0,
) -> Measured:
    """Area over the curve f_k / f_0, clipped to [0, 1], k = 0 to K segments removed, the most relevant first.

    1 - (1/K) Σ_k (r_k + r_k+1) / 2 with r_k = clip(f_k / f_0, 0, 1). The relevance of a segment is the mean of the map
    over it.

    Args:
        pixel_map: (H, W), higher = more relevant.
        image: (C, H, W), as the model takes it.
        segments: what is removed at a time: the shape of a grid (rows, columns), or any label map (H, W). None is a
            grid of 14 x 14 blocks (of single pixels along a side shorter than that): on purpose not the superpixels a
            scorer may have used, which would let a map be judged by the segments it was made of.
        fill: what takes a segment's place; see `usu.fills`.
        link: of something positive; the (log-)odds of a class have no meaningful ratio.
        compat: ``"quantus"`` gives the number of Quantus; `usu.metrics.quantus_compat` says what differs.
        generator: orders segments of equal relevance at random.

    Guarantees:
        Higher is better. In [0, 1], but for ``compat``. Multiplying the map by a positive number or adding one changes
        nothing. K + 1 evaluations, one more if ``target`` is None; K = 196 with the default on images of at least
        14 x 14. ``curve`` holds f_0, ..., f_K, neither divided nor clipped.

    >>> total = lambda batch: batch.sum((1, 2, 3))[:, None]
    >>> image = torch.tensor([[[1.0, 3.0]]])
    >>> irof(image[0], image, total, 0, segments=(1, 2), fill=0, link="logit").value  # 1, 1/4, 0
    0.625
    """
    quantus = quantus_compat.wanted(compat)
    field, asked, image, spent = prepared(pixel_map, image, model, target, link)
    height, width = field.shape
    if segments is None:
        segments = quantus_compat.slic_segments(image) if quantus else (min(14, height), min(14, width))
    labels, count = dense_cells(segments, (height, width), "segments")
    best_first = ranking(group_means(field, labels, count), generator)
    place = best_first.argsort()
    order = place[labels.flatten()].argsort(stable=True)
    removed = torch.bincount(labels.flatten(), minlength=count)[best_first].cumsum(0)
    counts = torch.cat([removed.new_zeros(1), removed])
    values = walk(asked, image, filled(image, fill), order, counts)
    if values[0] <= 0:
        raise ValueError(
            f"`link` must give the image itself a positive value, to which the others are compared; got "
            f"{float(values[0]):.4g}. Use 'probability'."
        )
    ratios = values / values[0]
    if quantus:
        value = count - float(torch.trapezoid(ratios[1:]))
    else:
        value = 1 - area(ratios.clamp(0, 1), torch.arange(count + 1).double() / count)
    return Measured(value, len(values) + spent, values.numpy())
