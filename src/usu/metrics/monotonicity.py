"""Monotonicity correlation (Nguyen and Martínez, 2020): do pixels with more attribution matter more?"""

from __future__ import annotations

from typing import Literal, cast

import numpy as np
import torch
from torch import Tensor

from usu import _checks as check
from usu.forward import Engine, Model
from usu.forward.fills import Fill, apply, filled
from usu.forward.outputs import Link, Target
from usu.metrics.curves import (
    QuantusFill,
    checked_steps,
    cuts,
    draws_as_quantus,
    group_means,
    level_as_quantus,
    one_target,
    values_as_quantus,
)
from usu.metrics.measurement import Measured
from usu.metrics.passes import asked, checked_map, dice, ranking
from usu.types import Array, NDArray


def monotonicity_correlation(
    pixel_map: Array,
    image: Array,
    model: Model,
    target: Target = None,
    *,
    fill: Fill | QuantusFill | None = None,
    steps: int = 32,
    samples: int = 1,
    compat: Literal["quantus"] | None = None,
    link: Link = "probability",
    generator: torch.Generator | int = 0,
) -> Measured:
    """Spearman's correlation of |attribution| with (g(picture) - g(picture with the group filled))², over groups.

    The groups are ``steps`` runs of consecutive ranks of |attribution|, of equal size to a pixel; each is filled alone,
    all channels together, and stands for its mean |attribution|.

    Args:
        pixel_map: (H, W); its absolute value counts.
        image: (C, H, W), as the model takes it.
        fill: what takes the group's place; see `usu.fills`. None is ``"mean"``, and ``"uniform"`` with ``compat``.
        steps: the number of groups.
        samples: random fills per group, whose squared changes are averaged; only ``"uniform"`` has more than one.
        compat: ``"quantus"`` gives the number of Quantus 0.6.0, ``MonotonicityCorrelation(features_in_step=C·H·W /
            steps, nr_samples=samples, perturb_baseline=fill)`` called on this picture alone. An (H, W) map is repeated
            for every channel and C·H·W values are ranked, equal ones as numpy's unstable sort leaves them (another
            numpy, processor or float type may give another number). ``"black"`` is the smallest value of the picture,
            ``"white"`` the largest, ``"mean"`` the mean over all channels, ``"uniform"`` one number from [0, 1) per
            sample, as numpy gives them after ``numpy.random.seed(generator)``; or a number. Its own defaults are
            "uniform" and 100 samples; every other fill just repeats the same number nr_samples times, here once.
        generator: orders pixels of equal value at random (not with ``compat``).

    Guarantees:
        Higher is better. In [-1, 1]. 0 where no correlation exists, for a constant map or a model that sees no
        difference (Quantus raises on both). Multiplying the map by any number but 0 changes nothing.
        ``steps · samples + 1`` evaluations, one more if ``target`` is None. ``curve`` holds the mean squared changes,
        the group of least attribution first.

    >>> squares = lambda batch: batch.square().sum((1, 2, 3))[:, None]
    >>> picture = torch.tensor([[[1.0, 3.0, 2.0]]])
    >>> monotonicity_correlation(-picture[0], picture, squares, 0, fill=0, steps=3, link="logit").value
    1.0
    """
    if compat is not None:
        check.choice("compat", compat, ("quantus",))
    question, picture, spent = asked(model, target, image, link)
    field = checked_map(pixel_map, tuple(picture.shape[-2:])).abs()
    random = compat is not None and fill in (None, "uniform")
    if isinstance(samples, bool) or not isinstance(samples, int) or samples < 1 or (samples > 1 and not random):
        raise ValueError(
            f"`samples` must be 1, or a larger whole number with compat='quantus' and fill='uniform'; got {samples!r}. "
            "Other fills would give the same number each time."
        )
    if compat is None:
        order = ranking(field, dice(generator)).flip(0)
        sizes = cuts(field.numel(), checked_steps(steps, field.numel(), least=2)).diff()
        groups = torch.empty_like(order)
        groups[order] = torch.arange(steps).repeat_interleave(sizes)
        attributions = group_means(field.flatten(), groups, steps).numpy()
        hidden = filled(picture, "mean" if fill is None else cast(Fill, fill))
    else:
        values = np.abs(values_as_quantus(pixel_map, len(picture), steps))
        order = torch.from_numpy(np.argsort(values))
        groups = torch.empty_like(order)
        groups[order] = torch.arange(steps).repeat_interleave(len(order) // steps)
        attributions = values[order.numpy()].reshape(steps, -1).sum(1)
        level = level_as_quantus(picture, "uniform" if fill is None else fill)
        levels = (
            draws_as_quantus(steps * samples, generator)
            if level is None
            else torch.full((steps,), level, dtype=torch.float64)
        )
        hidden = levels.to(picture)
    changes = _changes(question, picture, hidden, groups, steps, samples).numpy()
    return Measured(_spearman(attributions, changes), steps * samples + 1 + spent, changes)


def _changes(engine: Engine, image: Tensor, hidden: Tensor, groups: Tensor, steps: int, samples: int) -> Tensor:
    """Mean squared change (steps,) when each group is filled alone; ``hidden``: a picture, or a number per variant."""
    layers = image.numel() // len(groups), -1, image.shape[-1]
    group, shown = groups.to(image.device).reshape(layers[1:]), image.reshape(layers)
    # the last variant is the picture itself: a group that no value has
    which = torch.cat([torch.arange(steps).repeat_interleave(samples), torch.tensor([steps])]).to(image.device)
    if hidden.ndim == 1:
        each = torch.cat([hidden, hidden[:1]])[:, None, None, None]
    else:
        each = hidden.reshape(layers).expand(len(which), *shown.shape)

    def build(rows: slice) -> Tensor:
        return apply(shown, each[rows], group != which[rows, None, None]).reshape(-1, *image.shape)

    values = one_target(engine.evaluate(image, len(which), build))
    return (values[:-1] - values[-1]).square().reshape(steps, samples).mean(1)


def _spearman(a: NDArray, b: NDArray) -> float:
    """The correlation of the ranks; 0 where it does not exist."""
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return 0.0
    from scipy.stats import spearmanr

    return min(1.0, max(-1.0, float(spearmanr(a, b).statistic)))  # its rounding may leave the interval
