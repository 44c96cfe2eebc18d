"""Image classifiers saved by transformers in a local folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

from usu.errors import MissingExtraError, ModelLoadError
from usu.models.loaded import Loaded
from usu.models.preparation import IMAGENET_MEAN, IMAGENET_STD, Preparation, Resample
from usu.models.weights import load_weights

#: Pillow's numbers for its filters, as they stand in preprocessor files.
_FILTERS = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}


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
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ModelLoadError(f"The folder {folder} does not hold an image classifier: {reason}") from error
    if weights is not None:
        load_weights(model, weights)
    labels = model.config.id2label
    classes = tuple(str(labels[index]) for index in sorted(labels))
    side = getattr(model.config, "image_size", None) or 224
    return Loaded(f"transformers:{path.name}", model.eval(), _preparation(path, _pair(side)), classes)


def _preparation(folder: Path, default: tuple[int, int]) -> Preparation:
    """What the folder's image processor does, read from its settings: its code would hide where the crop was."""
    file = folder / "preprocessor_config.json"
    if not file.is_file():
        return Preparation(crop=default, resize=None)
    settings: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    size = settings.get("size", default)
    resize = int(size["shortest_edge"]) if isinstance(size, dict) and "shortest_edge" in size else None
    crop = _pair(settings.get("crop_size") or (resize if resize is not None else size))
    if resize is not None and "crop_pct" in settings and "crop_size" not in settings:
        # ConvNeXt's way: the size is the crop's; from 384 on the picture is squeezed instead
        resize = int(resize / (settings["crop_pct"] or 1)) if resize < 384 else None
    elif resize is None and settings.get("do_center_crop") and _pair(size) != crop:
        raise ModelLoadError(
            f"{file.name} asks to squeeze pictures to {_pair(size)} and then to crop {crop}, which is not supported. "
            "Pass the model as 'file.py:function' with a prepare function of its own."
        )
    normalised = settings.get("do_normalize", True)
    name = _FILTERS.get(settings.get("resample", 2), "bilinear")
    return Preparation(
        crop=crop,
        resize=resize,
        mean=tuple(settings.get("image_mean", IMAGENET_MEAN)) if normalised else (0.0,) * 3,
        std=tuple(settings.get("image_std", IMAGENET_STD)) if normalised else (1.0,) * 3,
        resample=next(known for known in get_args(Resample) if known == name),
    )


def _pair(size: Any) -> tuple[int, int]:
    if isinstance(size, dict):
        if "height" in size:
            return int(size["height"]), int(size["width"])
        return int(size["shortest_edge"]), int(size["shortest_edge"])
    if isinstance(size, (list, tuple)):
        return int(size[0]), int(size[1])
    return int(size), int(size)
