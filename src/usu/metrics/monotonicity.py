"""Monotonicity correlation (Nguyen and Martínez, 2020): do pixels with more attribution matter more?"""

from __future__ import annotations

from typing import Literal, cast

import numpy as np
import torch
from torch import Tensor

from usu import _checks as check
from usu.forward import Engine, Model
from usu.forward.calls import Link, Target
from usu.forward.fills import Fill, apply, filled
from usu.metrics import quantus_compat
from usu.metrics.maps import group_means, ranking
from usu.metrics.passes import Measured, cuts, one_target, prepared
from usu.types import Array, NDArray


def monotonicity_correlation(
    pixel_map: Array, image: Array, model: Model, target: Target = None, *,
    fill: Fill | quantus_compat.QuantusFill | None = None, steps: int = 32, samples: int = 1,
    compat: Literal["quantus"] | None = None, link: Link = "probability", generator: torch.Generator | int = 0,
) -> Measured:  # fmt: skip
    """Spearman's correlation of |attribution| with (g(image) - g(image with the group filled))², over groups.

    The groups are ``steps`` runs of consecutive ranks of |attribution|, of equal size to a pixel; each is filled alone,
    and stands for its mean |attribution|. Fill None is ``"mean"``, and ``"uniform"`` with ``compat``.

    Args:
        samples: random fills per group, whose squared changes are averaged; only ``"uniform"`` has more than one.

    Guarantees:
        Higher is better. In [-1, 1]. 0 where no correlation exists, for a constant map or a model that sees no
        difference (Quantus raises on both). Multiplying the map by any number but 0 changes nothing.
        ``steps · samples + 1`` evaluations, one more if ``target`` is None. ``curve`` holds the mean squared changes,
        the group of least attribution first.

    >>> squares = lambda batch: batch.square().sum((1, 2, 3))[:, None]
    >>> image = torch.tensor([[[1.0, 3.0, 2.0]]])
    >>> monotonicity_correlation(-image[0], image, squares, 0, fill=0, steps=3, link="logit").value
    1.0
    """
    quantus = quantus_compat.wanted(compat)
    field, asked, image, spent = prepared(pixel_map, image, model, target, link)
    if check.whole_number("samples", samples, least=1) > 1 and not (quantus and fill in (None, "uniform")):
        raise ValueError(f"`samples` must be 1 but for compat='quantus' with fill='uniform'; got {samples}.")
    if quantus:
        how = "uniform" if fill is None else fill
        groups, attributions, hidden = quantus_compat.groups(pixel_map, image, steps, samples, how, generator)
    else:
        sizes = cuts(field.numel(), steps, least=2).diff()
        groups = torch.empty(field.numel(), dtype=torch.int64)
        groups[ranking(field.abs(), generator).flip(0)] = torch.arange(steps).repeat_interleave(sizes)
        attributions = group_means(field.abs().flatten(), groups, steps).numpy()
        hidden = filled(image, "mean" if fill is None else cast(Fill, fill))
    changes = _changes(asked, image, hidden, groups, steps, samples).numpy()
    return Measured(spearman(attributions, changes), steps * samples + 1 + spent, changes)


def _changes(engine: Engine, image: Tensor, hidden: Tensor, groups: Tensor, steps: int, samples: int) -> Tensor:
    """Mean squared change (steps,) when each group is filled alone; ``hidden``: an image, or a number per variant."""
    layers = image.numel() // len(groups), -1, image.shape[-1]
    group, shown = groups.to(image.device).reshape(layers[1:]), image.reshape(layers)
    # the last variant is the image itself: a group that no value has
    which = torch.cat([torch.arange(steps).repeat_interleave(samples), torch.tensor([steps])]).to(image.device)
    if hidden.ndim == 1:
        each = torch.cat([hidden, hidden[:1]])[:, None, None, None]
    else:
        each = hidden.reshape(layers).expand(len(which), *shown.shape)

    def build(rows: slice) -> Tensor:
        return apply(shown, each[rows], group != which[rows, None, None]).reshape(-1, *image.shape)

    values = one_target(engine.evaluate(image, len(which), build))
    return (values[:-1] - values[-1]).square().reshape(steps, samples).mean(1)


def spearman(a: NDArray, b: NDArray) -> float:
    """The correlation of the ranks; 0 where it does not exist."""
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return 0.0
    from scipy.stats import spearmanr

    return min(1.0, max(-1.0, float(spearmanr(a, b).statistic)))  # its rounding may leave the interval
