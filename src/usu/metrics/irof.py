"""IROF (Rieger and Hansen, 2020): iterative removal of features, whole segments at a time."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from usu import _checks as check
from usu.forward import Model
from usu.forward.fills import Fill, filled
from usu.forward.outputs import Link, Target
from usu.metrics.curves import area, group_means, label_map, walk
from usu.metrics.measurement import Measured
from usu.metrics.passes import asked, checked_map, dice, ranking
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
        compat: ``"quantus"`` gives the number of Quantus 0.6.0, ``IROF(perturb_baseline=fill, return_aggregate=False)``
            with a constant ``fill``: K minus the area under f_1 / f_0, ..., f_K / f_0 with one per step, not clipped.
            It grows with K, its SLIC segments, which are the default here too then. (It takes pictures with one
            channel only, and its ``"mean"`` is that of the picture as it is being filled.)
        generator: orders segments of equal relevance at random.

    Guarantees:
        Higher is better. In [0, 1], but for ``compat``. Multiplying the map by a positive number or adding one changes
        nothing. K + 1 evaluations, one more if ``target`` is None; K = 196 with the default on pictures of at least
        14 x 14.
        ``curve`` holds f_0, ..., f_K, neither divided nor clipped.

    >>> total = lambda batch: batch.sum((1, 2, 3))[:, None]
    >>> picture = torch.tensor([[[1.0, 3.0]]])
    >>> irof(picture[0], picture, total, 0, segments=(1, 2), fill=0, link="logit").value  # 1, 1/4, 0
    0.625
    """
    if compat is not None:
        check.choice("compat", compat, ("quantus",))
    question, picture, spent = asked(model, target, image, link)
    size = int(picture.shape[-2]), int(picture.shape[-1])
    field = checked_map(pixel_map, size)
    if segments is None and compat is not None:
        segments = _slic(picture)
    if segments is None:
        segments = min(14, size[0]), min(14, size[1])
    labels, count = label_map("segments", segments, size)
    best_first = ranking(group_means(field, labels, count), dice(generator))
    place = torch.empty_like(best_first)
    place[best_first] = torch.arange(count)
    removed = torch.bincount(labels.flatten(), minlength=count)[best_first].cumsum(0)
    order = place[labels.flatten()].argsort(stable=True)
    counts = torch.cat([torch.zeros(1, dtype=torch.int64), removed])
    values = walk(question, picture, filled(picture, fill), order, counts, insert=False)
    if values[0] <= 0:
        raise ValueError(
            f"`link` must give the picture itself a positive value, to which the others are compared; got "
            f"{float(values[0]):.4g}. Use 'probability'."
        )
    if compat is not None:
        after = (values / values[0])[1:]
        return Measured(count - float(torch.trapezoid(after)), len(values) + spent, values.numpy())
    ratios = (values / values[0]).clamp(0, 1)
    fractions = torch.arange(count + 1).double() / count
    return Measured(1 - area(ratios, fractions), len(values) + spent, values.numpy())


def _slic(picture: Tensor) -> Array:
    """Superpixels of the model's own input, as Quantus takes them."""
    from skimage.segmentation import slic

    segments: Array = slic(picture.permute(1, 2, 0).double().cpu().numpy(), start_label=0)
    return segments
