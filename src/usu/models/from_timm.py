"""timm's models, with timm's own preprocessing. Imported only when the user asked for one."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable
from typing import Any

from usu.errors import MissingExtraError, ModelLoadError
from usu.models.classes import imagenet_classes
from usu.models.from_torchvision import broken_torchvision
from usu.models.loaded import Loaded
from usu.models.preparation import Preparation
from usu.models.weights import load_weights


def from_timm(name: str, weights: str | None = None) -> Loaded:
    """A timm model by its name, with local ``weights`` or timm's own."""
    try:
        import timm
        from timm.data.config import resolve_model_data_config
    except ModuleNotFoundError:
        raise MissingExtraError("timm", "timm", f"The model timm:{name}") from None
    except (RuntimeError, ImportError, AttributeError) as error:
        raise broken_torchvision(f"timm and the model {name!r}", error) from error
    if not timm.is_model(name):
        close = ", ".join(difflib.get_close_matches(name, timm.list_models(), n=5)) or "see timm.list_models()"
        raise ModelLoadError(f"`model` must be a model that timm knows; got {name!r}. Close are: {close}.")
    if weights is not None:
        model = timm.create_model(name, pretrained=False)
        load_weights(model, weights)
    else:
        try:
            model = timm.create_model(name, pretrained=True)
        except Exception as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise ModelLoadError(
                f"The weights of timm:{name} could not be had ({reason}). "
                "Pass a local file with --weights FILE (`weights=`)."
            ) from error
    settings_of: Callable[[Any], dict[str, Any]] = resolve_model_data_config
    config = settings_of(model)
    _, height, width = config["input_size"]
    # "squash" ignores the aspect; "border" would pad, which only zooms out a little compared with the centre
    squash = config.get("crop_mode") == "squash"
    preparation = Preparation(
        crop=(height, width),
        resize=None if squash else math.floor(min(height, width) / config["crop_pct"]),
        mean=tuple(config["mean"]),
        std=tuple(config["std"]),
        resample=config["interpolation"] if config["interpolation"] != "random" else "bilinear",
    )
    classes = imagenet_classes() if getattr(model, "num_classes", None) == 1000 else None
    return Loaded(f"timm:{name}", model.eval(), preparation, classes)
