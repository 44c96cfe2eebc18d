"""Several maps of one picture, from layers of any resolution, redistributed by one set of scores.

Scores do not depend on the map they move, so the model is asked once and not once per layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from usu.forward import Model, Progress
from usu.operator.budgets import SoftPrior
from usu.operator.cells import partition_of
from usu.operator.redistribute import cell_budgets
from usu.pipeline import upsample
from usu.results import Upsampled
from usu.settings import Settings, settings_of
from usu.spread import spread
from usu.types import Array


def upsample_layers(
    layers: Sequence[Tensor],
    images: Tensor,
    model: Model,
    targets: Any,
    *,
    combine: Literal["mean", "sum", "product"] = "mean",
    preset: str | Settings | None = None,
    evaluations: int | None = None,
    picture: Array | None = None,
    seed: int | None = None,
    progress: Progress | None = None,
) -> Upsampled[Tensor]:
    """The layers' maps (B, h, w), each redistributed, as one map: their mean or sum, or the product of their unit maps.

    Guarantees:
        Under the budget ``"cell"`` every layer keeps its cells' masses before they are combined; ``mass_error`` is the
        worst of all layers. No more evaluations than for one layer.

    >>> layers = [torch.full((1, 1, 1), 4.0), torch.tensor([[[2.0, 0.0]]])]
    >>> found = upsample_layers(layers, torch.zeros(1, 1, 2, 2), lambda x: x.sum((1, 2, 3))[:, None], 0, evaluations=8)
    >>> found.pixel_map.tolist(), found.evaluations  # a black picture moves nothing: (4 + 2) / 2 and (4 + 0) / 2
    ([[[3.0, 2.0], [3.0, 2.0]]], 8)
    """

    settings = settings_of(preset)
    if settings.base == "layers" and len(layers) > 1:  # they are the layers
        settings = replace(settings, base="bilinear")

    def asked(coarse: Tensor) -> Upsampled[Tensor]:
        return upsample(
            coarse, images, model, targets, preset=settings, evaluations=evaluations, picture=picture, seed=seed,
            progress=progress,
        )  # fmt: skip

    if settings.scoring == "unguided" or len(layers) == 1:  # no scores to share
        parts = [asked(layer) for layer in layers]
        first, maps = parts[0], [part.pixel_map for part in parts]
        error = max(part.mass_error for part in parts)
    else:
        # one cell for the whole picture: every segment can matter, unless there is nothing to redistribute
        some = torch.stack([layer.flatten(1).any(1) for layer in layers]).any(0)
        first = asked(some.to(layers[0].dtype)[:, None, None])
        maps = [spread(layer, first.scores, settings) for layer in layers]
        error = max(_mass_error(m, layer, first.scores, settings) for m, layer in zip(maps, layers, strict=True))
    if combine == "product":
        combined = torch.stack([unit(part) for part in maps]).prod(0)
    else:
        combined = torch.stack(maps).sum(0) / (len(maps) if combine == "mean" else 1)
    return replace(first, pixel_map=combined, mass_error=error)


def unit(maps: Tensor) -> Tensor:
    """Each map of (B, H, W) from 0 to 1 by min-max; one that is the same everywhere is 0.

    >>> unit(torch.tensor([[[1e-12, 3e-12]], [[5.0, 5.0]]])).tolist()
    [[[0.0, 1.0]], [[0.0, 0.0]]]
    """
    field = maps.double()
    low, high = field.amin((1, 2), keepdim=True), field.amax((1, 2), keepdim=True)
    return ((field - low) / (high - low).where(high > low, 1)).to(maps.dtype)


def _mass_error(result: Tensor, layer: Tensor, scores: Tensor, settings: Settings) -> float:
    """Largest relative error of what the budget promises, as in `usu.upsample`."""
    cells, _ = partition_of(layer, scores, None)
    masses = layer.double().flatten(1) * cells.sizes
    sums = cells.total(result)
    if isinstance(settings.budget, SoftPrior):
        sums, wanted = sums.sum(1, keepdim=True), masses.sum(1, keepdim=True)
        scale = masses.abs().sum(1, keepdim=True)
    else:
        wanted = cell_budgets(layer.double(), scores, budget=settings.budget, signed=settings.signed)
        mean = wanted.abs().mean(1, keepdim=True)
        scale = wanted.abs().where(wanted.abs() > 1e-9 * mean, mean)
    return float(((sums - wanted).abs() / scale.where(scale > 0, 1)).max())
