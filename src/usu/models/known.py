"""What a model that is handed in says of itself: how its pictures are prepared, and what its classes are called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor, nn

from usu.models.files import with_geometry
from usu.models.load import EMBEDDED_PREPARATION, Loaded, imagenet_classes
from usu.models.pictures import Preparation, Prepare
from usu.types import NDArray


@dataclass(frozen=True, eq=False)
class Known:
    """A model, and what is known of it; None where nothing is."""

    model: Any
    prepare: Prepare | None = None
    classes: tuple[str, ...] | None = None
    layer: str | None = None


def known(model: Any, prepare: Any = None) -> Known:
    """The model itself, and what it says of itself.

    Args:
        model: what `usu.models.load` returned; a ``transformers.pipeline("image-classification")``; a model of timm or
            transformers, or the embedded one; or any other, of which nothing is known.
        prepare: how its pictures are prepared, if it does not say so: see `preparation`.
    """
    own = None if prepare is None else preparation(prepare)
    if isinstance(model, Loaded):
        return Known(model.model, own or model.prepare, model.classes, model.layer)
    processor = getattr(model, "image_processor", None)
    if isinstance(getattr(model, "model", None), nn.Module) and hasattr(processor, "to_dict"):  # a pipeline
        return Known(model.model, own or preparation(processor), _labels(model.model))
    home = type(model).__module__.partition(".")[0]
    if home == "efficientnet_lite_pytorch":
        return Known(model, own or EMBEDDED_PREPARATION, imagenet_classes())
    if home == "timm" or isinstance(getattr(model, "pretrained_cfg", None), dict):
        return Known(model, own or _timm(model), imagenet_classes() if _thousand(model) else None)
    if isinstance(model, nn.Module) and hasattr(model, "config"):
        return Known(model, own, _labels(model))
    return Known(model, own)


def preparation(given: Any) -> Prepare:
    """A way to prepare pictures, from what other libraries call it.

    A `Preparation`; torchvision's ``weights`` or ``weights.transforms()``; timm's data config; a processor of
    transformers; or a function of pixels (H, W, 3) in bytes that returns the input (C, h, w), or that and a `Geometry`.
    A function that returns no geometry, such as torchvision's ``Compose``, is taken to show the whole picture.
    """
    if isinstance(given, Preparation):
        return given
    if isinstance(given, dict):
        from usu.models.libraries import timm_preparation

        return timm_preparation(given)
    if hasattr(given, "to_dict") and hasattr(given, "image_mean"):
        from usu.models.libraries import processor_settings

        settings = {name: value for name, value in given.to_dict().items() if value is not None}
        return processor_settings(settings, (224, 224), type(given).__name__)
    if callable(getattr(given, "transforms", None)) and not isinstance(given, nn.Module):  # an entry of WeightsEnum
        given = given.transforms()
    if all(hasattr(given, name) for name in ("crop_size", "resize_size", "mean", "std", "interpolation")):
        from usu.models.libraries import torchvision_preparation

        return torchvision_preparation(given)
    if not callable(given):
        raise TypeError(
            "`prepare` must be a usu.models.Preparation, torchvision's weights, timm's data config, a processor of "
            f"transformers, or a function of pixels; got {type(given).__name__}."
        )
    return with_geometry(_of_pixels(given))


def _of_pixels(function: Callable[[Any], Any]) -> Callable[[NDArray], Any]:
    """Transforms of torchvision and timm want a Pillow image."""
    if type(function).__module__.partition(".")[0] not in ("torchvision", "timm"):
        return function

    def prepared(pixels: NDArray) -> Tensor:
        from PIL import Image

        found: Tensor = function(Image.fromarray(np.ascontiguousarray(pixels)))
        return found

    return prepared


def _labels(model: Any) -> tuple[str, ...] | None:
    labels = getattr(getattr(model, "config", None), "id2label", None)
    return tuple(str(labels[index]) for index in sorted(labels)) if labels else None


def _timm(model: Any) -> Prepare:
    from timm.data.config import resolve_model_data_config

    from usu.models.libraries import timm_preparation

    return timm_preparation(resolve_model_data_config(model))  # type: ignore[no-untyped-call]


def _thousand(model: Any) -> bool:
    return getattr(model, "num_classes", None) == 1000
