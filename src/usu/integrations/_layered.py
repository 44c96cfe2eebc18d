"""Several maps of one picture, from layers of any resolution, redistributed by one set of scores.

Scores do not depend on the map they move, so the model is asked once and not once per layer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from usu.forward import Model, Progress
from usu.pipeline import map_of, mass_error_of, upsample
from usu.results import Upsampled
from usu.settings import Settings
from usu.types import Array

#: What becomes of several layers' maps: their mean or sum, or the product of their unit maps.
Combine: TypeAlias = Literal["mean", "sum", "product"]
#: A map is shown at full strength from this quantile on.
SHOWN = 0.98


def upsample_layers(
    layers: Sequence[Tensor], images: Tensor, model: Model, targets: Any, settings: Settings, *,
    combine: Combine = "mean", picture: Array | None = None, progress: Progress | None = None,
) -> Upsampled[Tensor]:  # fmt: skip
    """The layers' maps (B, h, w), each redistributed, as one map: their mean or sum, or the product of their unit maps.

    Guarantees:
        Under the budget ``"cell"`` every layer keeps its cells' masses before they are combined; ``mass_error`` is the
        worst of all layers. No more evaluations than for one layer.

    >>> layers, few = [torch.full((1, 1, 1), 4.0), torch.tensor([[[2.0, 0.0]]])], Settings(evaluations=8)
    >>> found = upsample_layers(layers, torch.zeros(1, 1, 2, 2), lambda x: x.sum((1, 2, 3))[:, None], 0, few)
    >>> found.pixel_map.tolist(), found.evaluations  # a black picture moves nothing: (4 + 2) / 2 and (4 + 0) / 2
    ([[[3.0, 2.0], [3.0, 2.0]]], 8)
    """
    if len(layers) == 1 or settings.scoring == "none":
        parts = [
            upsample(layer, images, model, targets, preset=own, picture=picture, finer=finer or None, progress=progress)
            for layer, own, finer in _each(layers, settings)
        ]
        return replace(
            parts[0],
            pixel_map=_combined([part.pixel_map for part in parts], combine),
            evaluations=sum(part.evaluations for part in parts),
            mass_error=max(part.mass_error for part in parts),
        )
    if settings.base == "layers":  # they are the layers
        settings = replace(settings, base="bilinear")
    # one cell for the whole picture: every segment can matter, unless there is nothing to redistribute
    some = torch.stack([layer.flatten(1).any(1) for layer in layers]).any(0)
    first = upsample(
        some.to(layers[0].dtype)[:, None, None], images, model, targets, preset=settings, picture=picture,
        progress=progress,
    )  # fmt: skip
    maps = [map_of(layer, first.scores, settings) for layer in layers]
    error = max(mass_error_of(m, layer, first.scores, settings) for m, layer in zip(maps, layers, strict=True))
    return replace(first, pixel_map=_combined(maps, combine), mass_error=error)


def _each(layers: Sequence[Tensor], settings: Settings) -> Iterator[tuple[Tensor, Settings, list[Tensor]]]:
    """Each layer with the finer ones among them; the finest has only its smooth map.

    Where none is finer than another, each follows the model's own finer layers.
    """
    sizes = [layer[0].numel() for layer in layers]
    for layer, size in zip(layers, sizes, strict=True):
        finer = sorted((other for other in layers if other[0].numel() > size), key=lambda other: other[0].numel())
        plain = len(set(sizes)) > 1 and not finer
        yield layer, replace(settings, base="bilinear") if plain else settings, finer


def _combined(maps: Sequence[Tensor], how: Combine) -> Tensor:
    if how == "product":
        return torch.stack([for_display(one, quantile=1.0) for one in maps]).prod(0)
    return torch.stack(list(maps)).sum(0) / (len(maps) if how == "mean" else 1)


def for_display(maps: Tensor, quantile: float = SHOWN) -> Tensor:
    """Each map of (B, H, W) from 0 to 1: its lowest value is 0, and from the quantile on everything is 1.

    Mass that is redistributed has a sharp peak: scaled by its maximum, 2 % of the pixels would be above one half where
    a resized CAM has 10 %; scaled by the 98 % quantile it is as many. A map that is the same everywhere is 0.

    >>> for_display(torch.tensor([[[1.0, 2.0, 3.0]]])).tolist()
    [[[0.0, 0.5, 1.0]]]
    """
    field = maps.double()
    flat = field.flatten(1)
    low = flat.amin(1)
    high = flat.kthvalue(max(1, math.ceil(quantile * flat.shape[1])), 1).values
    high = high.where(high > low, flat.amax(1))
    width = (high - low).where(high > low, 1)
    return ((field - low[:, None, None]) / width[:, None, None]).clamp(max=1).to(maps.dtype)
