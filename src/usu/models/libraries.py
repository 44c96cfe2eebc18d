"""Models of torchvision, timm and transformers: by their names, and what one that is handed in says of itself.

Each library is imported only when one of its models is wanted.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from usu.errors import MissingExtraError, ModelLoadError, first_line
from usu.models.load import EMBEDDED_PREPARATION, Loaded, imagenet_classes, load_weights
from usu.models.pictures import IMAGENET_MEAN, IMAGENET_STD, Geometry, Preparation, Prepare, Resample
from usu.types import NDArray

#: Pillow's numbers for its filters, as they stand in transformers' preprocessor files.
_FILTERS: dict[int, Resample] = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}


def known(model: Any, prepare: Any = None) -> Loaded:
    """The model itself, and what it says of itself.

    Args:
        model: what `usu.models.load` returned; a ``transformers.pipeline("image-classification")``; a model of timm or
            transformers, or the embedded one; or any other, of which nothing is known.
        prepare: how its pictures are prepared, if it does not say so: see `preparation`.
    """
    name, own = type(model).__name__, None if prepare is None else preparation(prepare)
    if isinstance(model, Loaded):
        return Loaded(model.name, model.model, own or model.prepare, model.classes, model.layer)
    processor = getattr(model, "image_processor", None)
    if isinstance(getattr(model, "model", None), nn.Module) and hasattr(processor, "to_dict"):  # a pipeline
        return Loaded(name, model.model, own or preparation(processor), _labels(model.model))
    home = type(model).__module__.partition(".")[0]
    if home == "efficientnet_lite_pytorch":
        return Loaded(name, model, own or EMBEDDED_PREPARATION, imagenet_classes())
    if home == "timm" or isinstance(getattr(model, "pretrained_cfg", None), dict):
        return _of_timm(name, model, own)

    def unknown(_pixels: NDArray) -> tuple[Tensor, Geometry]:
        raise ValueError(
            f"`prepare` must say how a picture becomes the model's input, because the model ({name}) does not; got "
            "None. Pass torchvision's weights, timm's data config, a processor of transformers, a "
            "usu.models.Preparation or a function of pixels; or hand in a tensor."
        )

    return Loaded(name, model, own or unknown, _labels(model) if isinstance(model, nn.Module) else None)


def _of_timm(name: str, model: Any, prepare: Prepare | None = None) -> Loaded:
    from timm.data.config import resolve_model_data_config

    config: dict[str, Any] = resolve_model_data_config(model)  # type: ignore[no-untyped-call]
    thousand = getattr(model, "num_classes", None) == 1000
    return Loaded(name, model, prepare or preparation(config), imagenet_classes() if thousand else None)


def _labels(model: Any) -> tuple[str, ...] | None:
    """What a model of transformers calls its classes."""
    labels = getattr(getattr(model, "config", None), "id2label", None)
    return tuple(str(labels[index]) for index in sorted(labels)) if labels else None


def preparation(given: Any) -> Prepare:
    """A way to prepare pictures, from what other libraries call it.

    A `Preparation`; torchvision's ``weights`` or ``weights.transforms()``; timm's data config; a processor of
    transformers; or a function of pixels (H, W, 3) in bytes that returns the input (C, h, w), or that and a `Geometry`.
    A function that returns no geometry, such as torchvision's ``Compose``, is taken to show the whole picture.
    """
    if isinstance(given, Preparation):
        return given
    if isinstance(given, dict):  # timm.data.resolve_model_data_config(model)
        size = given["input_size"][1:]
        # "squash" ignores the aspect; "border" would pad, which only zooms out a little compared with the centre
        squash = given.get("crop_mode") == "squash"
        return Preparation(
            crop=(size[0], size[1]),
            resize=None if squash else math.floor(min(size) / given["crop_pct"]),
            mean=tuple(given["mean"]),
            std=tuple(given["std"]),
            resample=given["interpolation"] if given["interpolation"] != "random" else "bilinear",
        )
    if hasattr(given, "to_dict") and hasattr(given, "image_mean"):
        settings = {name: value for name, value in given.to_dict().items() if value is not None}
        return _of_processor(settings, (224, 224), type(given).__name__)
    if callable(getattr(given, "transforms", None)) and not isinstance(given, nn.Module):  # an entry of WeightsEnum
        given = given.transforms()
    if all(hasattr(given, name) for name in ("crop_size", "resize_size", "mean", "std", "interpolation")):
        return Preparation(
            crop=(int(given.crop_size[0]),) * 2,
            resize=int(given.resize_size[0]),
            mean=tuple(given.mean),
            std=tuple(given.std),
            resample=given.interpolation.value,
        )
    if not callable(given):
        raise TypeError(
            "`prepare` must be a usu.models.Preparation, torchvision's weights, timm's data config, a processor of "
            f"transformers, or a function of pixels; got {type(given).__name__}."
        )
    # transforms of these want a Pillow image
    pillow = type(given).__module__.partition(".")[0] in ("torchvision", "timm")

    def prepared(pixels: NDArray) -> tuple[Tensor, Geometry]:
        from PIL import Image

        made = given(Image.fromarray(np.ascontiguousarray(pixels)) if pillow else pixels)
        tensor, geometry = made if isinstance(made, tuple) else (made, None)
        if not isinstance(tensor, Tensor) or tensor.ndim != 3:
            got = tuple(tensor.shape) if isinstance(tensor, Tensor) else type(tensor).__name__
            raise ModelLoadError(f"`prepare` must return a tensor C x H x W; got {got}. Leave out the batch dimension.")
        seen = (int(tensor.shape[1]), int(tensor.shape[2]))
        return tensor, geometry or Geometry.whole((pixels.shape[0], pixels.shape[1]), seen)

    return prepared


def processor_preparation(folder: Path, default: tuple[int, int]) -> Preparation:
    """What the folder's image processor does, read from its settings: its code would hide where the crop was."""
    file = folder / "preprocessor_config.json"
    if not file.is_file():
        return Preparation(crop=default, resize=None)
    return _of_processor(json.loads(file.read_text(encoding="utf-8")), default, file.name)


def _of_processor(settings: dict[str, Any], default: tuple[int, int], name: str) -> Preparation:
    """What an image processor with these settings does; ``name`` is what an error calls it."""
    size = settings.get("size", default)
    resize = int(size["shortest_edge"]) if isinstance(size, dict) and "shortest_edge" in size else None
    crop = _pair(settings.get("crop_size") or (resize if resize is not None else size))
    if resize is not None and "crop_pct" in settings and "crop_size" not in settings:
        # ConvNeXt's way: the size is the crop's; from 384 on the picture is squeezed instead
        resize = int(resize / (settings["crop_pct"] or 1)) if resize < 384 else None
    elif resize is None and settings.get("do_center_crop") and _pair(size) != crop:
        raise ModelLoadError(
            f"{name} asks to squeeze pictures to {_pair(size)} and then to crop {crop}, which is not supported. "
            "Pass the model as 'file.py:function' with a prepare function of its own."
        )
    normalised = settings.get("do_normalize", True)
    return Preparation(
        crop=crop,
        resize=resize,
        mean=tuple(settings.get("image_mean", IMAGENET_MEAN)) if normalised else (0.0,) * 3,
        std=tuple(settings.get("image_std", IMAGENET_STD)) if normalised else (1.0,) * 3,
        resample=_FILTERS.get(settings.get("resample", 2), "bilinear"),
    )


def _pair(size: Any) -> tuple[int, int]:
    if isinstance(size, dict):
        size = (size["height"], size["width"]) if "height" in size else size["shortest_edge"]
    height, width = size if isinstance(size, (list, tuple)) else (size, size)
    return int(height), int(width)


def from_torchvision(name: str, weights: str | None = None) -> Loaded:
    """A torchvision classifier by its name, with local ``weights`` or torchvision's own."""
    try:
        from torchvision import models
    except ModuleNotFoundError:
        raise ModelLoadError(
            f"The model {name!r} is not the embedded 'efficientnet_lite0', and torchvision, where it may come from, is "
            f"not installed. Check the name, or install the torchvision that matches torch {torch.__version__}."
        ) from None
    except (RuntimeError, ImportError, AttributeError) as error:  # "operator torchvision::nms does not exist"
        raise _broken_torchvision(f"the model {name!r}", error) from error
    wanted = "the embedded 'efficientnet_lite0', a torchvision classifier, 'timm:NAME', 'transformers:FOLDER', "
    _check_name(name, models.list_models(module=models), f"{wanted}'file.py:function' or an .onnx file")
    offered = models.get_model_weights(name)
    # a file says nothing of its preprocessing; the architecture's first recipe has the right size
    recipe = offered.DEFAULT if weights is None else next(iter(offered))
    model = _filled(f"torchvision:{name}", weights, lambda own: models.get_model(name, weights=recipe if own else None))
    return Loaded(f"torchvision:{name}", model.eval(), preparation(recipe), imagenet_classes())


def from_timm(name: str, weights: str | None = None) -> Loaded:
    """A timm model by its name, with local ``weights`` or timm's own."""
    try:
        import timm
    except ModuleNotFoundError:
        raise MissingExtraError("timm", "timm", f"The model timm:{name}") from None
    except (RuntimeError, ImportError, AttributeError) as error:
        raise _broken_torchvision(f"timm and the model {name!r}", error) from error
    if not timm.is_model(name):
        _check_name(name, timm.list_models(), "a model that timm knows")
    model = _filled(f"timm:{name}", weights, lambda own: timm.create_model(name, pretrained=own))
    return _of_timm(f"timm:{name}", model.eval())


def from_transformers(folder: str, weights: str | None = None) -> Loaded:
    """The classifier in ``folder`` (config.json and weights), prepared as its preprocessor_config.json says."""
    path = Path(folder).expanduser()
    if not (path / "config.json").is_file():
        raise ModelLoadError(
            f"`model` must be a folder saved by transformers, with a config.json; got {folder!r}. "
            "Download the model first, and give the path of its folder."
        )
    try:
        from transformers import AutoModelForImageClassification
    except ModuleNotFoundError:
        raise MissingExtraError("transformers", "transformers", f"The model in {folder}") from None
    try:
        model = AutoModelForImageClassification.from_pretrained(path, local_files_only=True)
    except Exception as error:
        raise ModelLoadError(f"The folder {folder} does not hold an image classifier: {first_line(error)}") from error
    if weights is not None:
        load_weights(model, weights)
    side = getattr(model.config, "image_size", None) or 224
    return Loaded(f"transformers:{path.name}", model.eval(), processor_preparation(path, _pair(side)), _labels(model))


def _check_name(name: str, names: Sequence[str], wanted: str) -> None:
    if name not in names:
        close = difflib.get_close_matches(name, names, n=5)
        told = f"Close are: {', '.join(close)}" if close else f"Some are: {', '.join(names[:5])}"
        raise ModelLoadError(f"`model` must be {wanted}; got {name!r}. {told}.")


def _filled(name: str, weights: str | None, make: Callable[[bool], Any]) -> Any:
    """The model with the weights of a local file, or with the library's own."""
    if weights is not None:
        model = make(False)
        load_weights(model, weights)
        return model
    try:
        return make(True)
    except Exception as error:
        raise ModelLoadError(
            f"The weights of {name} could not be downloaded ({first_line(error)}). "
            "Pass a local file with --weights FILE (`weights=`)."
        ) from error


def _broken_torchvision(wanted: str, error: Exception) -> ModelLoadError:
    return ModelLoadError(
        f"torchvision is needed for {wanted} and is installed, but does not work with torch {torch.__version__} "
        f"({first_line(error)}). Install the builds of torch and torchvision that belong together: both for CPU, or "
        "both for the same CUDA. The embedded model 'efficientnet_lite0' needs neither torchvision nor a download."
    )
