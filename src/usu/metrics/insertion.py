"""Insertion: how fast the class appears when the most relevant pixels come first."""

from __future__ import annotations

import torch

from usu.forward import Model
from usu.forward.fills import Fill, filled
from usu.forward.outputs import Link, Target
from usu.metrics.curves import area, checked_steps, cuts, walk
from usu.metrics.measurement import Measured
from usu.metrics.passes import asked, checked_map, dice, ranking
from usu.types import Array


def insertion(
    pixel_map: Array,
    image: Array,
    model: Model,
    target: Target = None,
    *,
    fill: Fill = "mean",
    steps: int = 16,
    link: Link = "probability",
    generator: torch.Generator | int = 0,
) -> Measured:
    """Area under g(fill showing the fraction q of most relevant pixels), q from 0 to 1, by the trapezoid rule.

    Args:
        pixel_map: (H, W), higher = more relevant.
        image: (C, H, W), as the model takes it.
        fill: what the picture starts from, and what pixels not shown yet look like; see `usu.fills`.
        steps: q = 0, 1/steps, ..., 1, each rounded to a whole number of pixels.
        generator: orders pixels of equal value at random.

    Guarantees:
        Higher is better. In [0, 1] for probabilities, and not normalised: a picture the model is unsure of has a small
        area whatever the map, so compare maps of one picture. Only the order of the pixels matters: any increasing
        transformation of the map leaves the value as it is. ``steps + 1`` evaluations, one more if ``target`` is None.
        ``curve`` holds the steps + 1 values.

    >>> total = lambda batch: batch.sum((1, 2, 3))[:, None]
    >>> picture = torch.tensor([[[1.0, 3.0]]])
    >>> insertion(picture[0], picture, total, 0, fill=0, steps=2, link="logit").value  # 0, 3, 4
    2.5
    """
    question, picture, spent = asked(model, target, image, link)
    field = checked_map(pixel_map, tuple(picture.shape[-2:]))
    counts = cuts(field.numel(), checked_steps(steps, field.numel()))
    order = ranking(field, dice(generator))
    values = walk(question, picture, filled(picture, fill), order, counts, insert=True)
    return Measured(area(values, counts.double() / field.numel()), len(values) + spent, values.numpy())
