"""Quantus: an explanation function for its metrics. It is called by Quantus and needs nothing of it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Literal, TypeAlias

import numpy as np
from torch import Tensor, nn

from usu import _checks as check
from usu.errors import UsuWarning
from usu.pipeline import upsample
from usu.settings import Settings
from usu.sources import gradcam
from usu.types import Array, NDArray

#: (model, images (B, C, H, W), one class per picture) -> coarse maps (B, h, w).
Source: TypeAlias = Callable[[nn.Module, Tensor, list[int]], Array]


def explain_func(
    source: Source | Literal["gradcam"] = "gradcam", *, layer: str | None = None, preset: str | Settings | None = None,
    evaluations: int | None = None,
) -> Callable[..., NDArray]:  # fmt: skip
    """An ``explain_func`` for Quantus: a coarse map of a source, upsampled.

    Args:
        source: ``"gradcam"``, or any callable (model, images, classes) -> coarse maps (B, h, w).
        layer: where Grad-CAM looks, by name, because Quantus may hand over a copy of the model; None takes the last
            spatial layer.

    A remark about a map, such as that it is zero because all evidence speaks against the class, is a warning.

    >>> model = nn.Sequential(nn.Conv2d(1, 1, 4, 4), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    >>> _ = [nn.init.ones_(parameter) for parameter in model.parameters()]
    >>> explain_func(evaluations=8)(model, np.ones((2, 1, 8, 8)), np.array([0, 0])).shape
    (2, 1, 8, 8)
    """
    if source != "gradcam" and not callable(source):
        raise ValueError(f"`source` must be 'gradcam' or a callable (model, images, classes); got {source!r}.")
    return partial(_explained, source=source, layer=layer, preset=preset, evaluations=evaluations)


def _explained(
    model: nn.Module, inputs: Array, targets: Array, *, source: Source | Literal["gradcam"], layer: str | None,
    preset: str | Settings | None, evaluations: int | None, device: str | None = None, method: str | None = None,
    img_size: int | None = None, nr_channels: int | None = None,
) -> NDArray:  # fmt: skip
    """(B, 1, H, W), un-normalised: the metric scales if it wants to.

    Metrics pass ``device``, `quantus.evaluate` ``method``, and its tutorials ``img_size`` and ``nr_channels``; none
    of them is used, because the model and ``inputs`` (B, C, H, W) tell all that is needed.
    """
    images = check.as_tensor("inputs", inputs)
    if images.ndim != 4:
        raise ValueError(f"`inputs` must be pictures, B x C x H x W; got {check.shape(images)}.")
    weight = next((w for w in model.parameters() if w.is_floating_point()), None)
    if weight is not None:  # Quantus makes float64 of pictures here and there
        images = images.to(weight)
    classes = [int(goal) for goal in np.asarray(targets).reshape(-1)]
    if len(classes) != len(images):
        raise ValueError(f"`targets` must be one class per picture ({len(images)}); got {len(classes)}.")
    if callable(source):
        coarse = check.as_tensor("source", source(model, images, classes))
    else:
        found = gradcam(model, images, classes, layer=layer)
        for note in found.notes:  # a metric has no place for remarks, and a map of zeros spoils its mean
            warnings.warn(note, UsuWarning, stacklevel=2)
        coarse = found.values
    done = upsample(coarse, images, model, classes, preset=preset, evaluations=evaluations)
    return done.pixel_map.detach().cpu().numpy()[:, None]
