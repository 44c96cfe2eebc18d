"""Models of torchvision, timm and transformers, each imported only when one of its models is wanted."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import torch

from usu.errors import MissingExtraError, ModelLoadError, first_line
from usu.models.load import Loaded, imagenet_classes, load_weights
from usu.models.pictures import IMAGENET_MEAN, IMAGENET_STD, Preparation, Resample

#: Pillow's numbers for its filters, as they stand in transformers' preprocessor files.
_FILTERS = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}


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
    known = models.list_models(module=models)
    if name not in known:
        close = ", ".join(difflib.get_close_matches(name, known, n=5)) or ", ".join(known[:5])
        raise ModelLoadError(
            f"`model` must be the embedded 'efficientnet_lite0', a torchvision classifier, 'timm:NAME', "
            f"'transformers:FOLDER', 'file.py:function' or an .onnx file; got {name!r}. Close are: {close}."
        )
    offered = models.get_model_weights(name)
    # a file says nothing of its preprocessing; the architecture's first recipe has the right size
    recipe = offered.DEFAULT if weights is None else next(iter(offered))
    model = _filled(f"torchvision:{name}", weights, lambda own: models.get_model(name, weights=recipe if own else None))
    return Loaded(f"torchvision:{name}", model.eval(), torchvision_preparation(recipe.transforms()), imagenet_classes())


def torchvision_preparation(steps: Any) -> Preparation:
    """What torchvision's own transforms for classification do: ``weights.transforms()``."""
    return Preparation(
        crop=(int(steps.crop_size[0]),) * 2,
        resize=int(steps.resize_size[0]),
        mean=tuple(steps.mean),
        std=tuple(steps.std),
        resample=steps.interpolation.value,
    )


def from_timm(name: str, weights: str | None = None) -> Loaded:
    """A timm model by its name, with local ``weights`` or timm's own."""
    try:
        import timm
        from timm.data.config import resolve_model_data_config
    except ModuleNotFoundError:
        raise MissingExtraError("timm", "timm", f"The model timm:{name}") from None
    except (RuntimeError, ImportError, AttributeError) as error:
        raise _broken_torchvision(f"timm and the model {name!r}", error) from error
    if not timm.is_model(name):
        close = ", ".join(difflib.get_close_matches(name, timm.list_models(), n=5)) or "see timm.list_models()"
        raise ModelLoadError(f"`model` must be a model that timm knows; got {name!r}. Close are: {close}.")
    model = _filled(f"timm:{name}", weights, lambda own: timm.create_model(name, pretrained=own))
    classes = imagenet_classes() if getattr(model, "num_classes", None) == 1000 else None
    config: dict[str, Any] = resolve_model_data_config(model)  # type: ignore[no-untyped-call]
    return Loaded(f"timm:{name}", model.eval(), timm_preparation(config), classes)


def timm_preparation(config: dict[str, Any]) -> Preparation:
    """What timm's data config says: ``timm.data.resolve_model_data_config(model)``."""
    _, height, width = config["input_size"]
    # "squash" ignores the aspect; "border" would pad, which only zooms out a little compared with the centre
    squash = config.get("crop_mode") == "squash"
    return Preparation(
        crop=(height, width),
        resize=None if squash else math.floor(min(height, width) / config["crop_pct"]),
        mean=tuple(config["mean"]),
        std=tuple(config["std"]),
        resample=config["interpolation"] if config["interpolation"] != "random" else "bilinear",
    )


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
    labels = model.config.id2label
    classes = tuple(str(labels[index]) for index in sorted(labels))
    side = getattr(model.config, "image_size", None) or 224
    return Loaded(f"transformers:{path.name}", model.eval(), processor_preparation(path, _pair(side)), classes)


def processor_preparation(folder: Path, default: tuple[int, int]) -> Preparation:
    """What the folder's image processor does, read from its settings: its code would hide where the crop was."""
    file = folder / "preprocessor_config.json"
    if not file.is_file():
        return Preparation(crop=default, resize=None)
    return processor_settings(json.loads(file.read_text(encoding="utf-8")), default, file.name)


def processor_settings(settings: dict[str, Any], default: tuple[int, int], name: str) -> Preparation:
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
    method = _FILTERS.get(settings.get("resample", 2), "bilinear")
    return Preparation(
        crop=crop,
        resize=resize,
        mean=tuple(settings.get("image_mean", IMAGENET_MEAN)) if normalised else (0.0,) * 3,
        std=tuple(settings.get("image_std", IMAGENET_STD)) if normalised else (1.0,) * 3,
        resample=next(known for known in get_args(Resample) if known == method),
    )


def _pair(size: Any) -> tuple[int, int]:
    if isinstance(size, dict):
        size = (size["height"], size["width"]) if "height" in size else size["shortest_edge"]
    height, width = size if isinstance(size, (list, tuple)) else (size, size)
    return int(height), int(width)


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
