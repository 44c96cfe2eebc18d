"""Pixel flipping (Bach et al., 2015): deletion read after every step, and Quantus' version of it."""

from __future__ import annotations

from typing import Literal, cast

import numpy as np
import torch
from torch import Tensor

from usu import _checks as check
from usu.forward import Model
from usu.forward.fills import Fill, filled
from usu.forward.outputs import Link, Target
from usu.metrics.curves import (
    QuantusFill,
    area,
    checked_steps,
    cuts,
    draws_as_quantus,
    falling_means,
    level_as_quantus,
    values_as_quantus,
    walk,
)
from usu.metrics.measurement import Measured
from usu.metrics.passes import asked, checked_map, dice, ranking
from usu.types import Array


def pixel_flipping(
    pixel_map: Array,
    image: Array,
    model: Model,
    target: Target = None,
    *,
    fill: Fill | QuantusFill | None = None,
    steps: int = 32,
    compat: Literal["quantus"] | None = None,
    link: Link = "probability",
    generator: torch.Generator | int = 0,
) -> Measured:
    """Area under g after 1, 2, ..., n = ``steps`` steps, per step: Σ_k (f_k + f_k+1) / 2 / (n - 1), k from 1 to n - 1.

    Each step fills the next 1/n of the pixels, the most relevant first, all channels of a pixel together. The
    untouched picture is not on the curve; `usu.metrics.deletion` has it.

    Args:
        pixel_map: (H, W), higher = more relevant.
        image: (C, H, W), as the model takes it.
        fill: what takes the pixels' place; see `usu.fills`. None is ``"mean"``, and ``"black"`` with ``compat``.
        compat: ``"quantus"`` gives the number of Quantus 0.6.0, ``PixelFlipping(features_in_step=C·H·W / steps,
            perturb_baseline=fill)`` called on this picture alone: its curve, and the area under it. It differs by:

            - channels: an (H, W) map is repeated for every channel and C·H·W values are ranked. Quantus leaves the
              order of equal ones to numpy's unstable sort, so that the red of a pixel may go steps before its blue, and
              another numpy, processor or float type may give another number.
            - the area: steps are one apart, so it grows with their number (at most n - 1).
            - the fills: ``"black"`` is the smallest value of the picture, ``"white"`` the largest, ``"mean"`` the mean
              over all channels of the picture *as filled so far*, ``"uniform"`` one number from [0, 1) per step, as
              numpy gives them after ``numpy.random.seed(generator)``; or a number.

            Quantus itself wants H·W to be a multiple of ``features_in_step``, and its own areas call ``numpy.trapz``,
            which numpy 2.4 no longer has: there only its curves work.
        generator: orders pixels of equal value at random (not with ``compat``).

    Guarantees:
        Lower is better. In [0, 1] for probabilities. Only the order of the pixels matters: any increasing
        transformation of the map leaves the value as it is. ``steps`` evaluations, one more if ``target`` is None.
        ``curve`` holds the ``steps`` values.

    >>> total = lambda batch: batch.sum((1, 2, 3))[:, None]
    >>> picture = torch.tensor([[[1.0, 3.0]]])
    >>> pixel_flipping(picture[0], picture, total, 0, fill=0, steps=2, link="logit").value  # 1, 0
    0.5
    """
    if compat is not None:
        check.choice("compat", compat, ("quantus",))
    question, picture, spent = asked(model, target, image, link)
    field = checked_map(pixel_map, tuple(picture.shape[-2:]))
    if compat is None:
        counts = cuts(field.numel(), checked_steps(steps, field.numel(), least=2))
        order = ranking(field, dice(generator))
        hidden = filled(picture, "mean" if fill is None else cast(Fill, fill))
    else:
        order = torch.from_numpy(np.argsort(-values_as_quantus(pixel_map, len(picture), steps)))
        counts = cuts(len(order), steps)
        hidden = _filled_as_quantus(picture, order.reshape(steps, -1), "black" if fill is None else fill, generator)
    values = walk(question, picture, hidden, order, counts[1:], insert=False)
    places = torch.arange(steps).double() / (1 if compat else steps - 1)
    return Measured(area(values, places), steps + spent, values.numpy())


def _filled_as_quantus(image: Tensor, order: Tensor, fill: object, generator: torch.Generator | int) -> Tensor:
    """The picture after the last step: each row of ``order`` (steps, values) was filled with a number of its own."""
    steps, size = order.shape
    flat = image.detach().cpu().double().flatten()
    level = level_as_quantus(image, fill)
    if fill == "mean":
        levels = falling_means(flat, flat[order].sum(1), size)
    elif level is None:
        levels = draws_as_quantus(steps, generator)
    else:
        levels = flat.new_full((steps,), level)
    flat[order.flatten()] = levels.repeat_interleave(size)
    return flat.reshape(image.shape).to(image)
