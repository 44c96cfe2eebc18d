"""torchvision's classifiers. Imported only when the user asked for one."""

from __future__ import annotations

import difflib
from typing import Any

import torch

from usu.errors import ModelLoadError
from usu.models.classes import imagenet_classes
from usu.models.loaded import Loaded
from usu.models.preparation import Preparation
from usu.models.weights import load_weights


def from_torchvision(name: str, weights: str | None = None) -> Loaded:
    """A torchvision classifier by its name, with local ``weights`` or torchvision's own."""
    models = _torchvision(name).models
    known = models.list_models(module=models)
    if name not in known:
        close = ", ".join(difflib.get_close_matches(name, known, n=5)) or ", ".join(known[:5])
        raise ModelLoadError(
            f"`model` must be the embedded 'efficientnet_lite0', a torchvision classifier, 'timm:NAME', "
            f"'transformers:FOLDER', 'file.py:function' or an .onnx file; got {name!r}. Close are: {close}."
        )
    offered = models.get_model_weights(name)
    if weights is not None:
        model = models.get_model(name, weights=None)
        load_weights(model, weights)
        # a file says nothing of its preprocessing; the architecture's first recipe has the right size
        recipe = next(iter(offered))
    else:
        recipe = offered.DEFAULT
        try:
            model = models.get_model(name, weights=recipe)
        except Exception as error:
            raise ModelLoadError(
                f"The weights of {name} could not be downloaded ({_first_line(error)}). "
                "Pass a local file with --weights FILE (`weights=`)."
            ) from error
    return Loaded(f"torchvision:{name}", model.eval(), _preparation(recipe.transforms()), imagenet_classes())


def _preparation(recipe: Any) -> Preparation:
    crop = int(recipe.crop_size[0])
    return Preparation(
        crop=(crop, crop),
        resize=int(recipe.resize_size[0]),
        mean=tuple(recipe.mean),
        std=tuple(recipe.std),
        resample=recipe.interpolation.value,
    )


def _torchvision(name: str) -> Any:
    try:
        import torchvision
    except ModuleNotFoundError:
        raise ModelLoadError(
            f"The model {name!r} is not the embedded 'efficientnet_lite0', and torchvision, where it may come from, is "
            f"not installed. Check the name, or install the torchvision that matches torch {torch.__version__}."
        ) from None
    except (RuntimeError, ImportError, AttributeError) as error:  # "operator torchvision::nms does not exist"
        raise broken_torchvision(f"the model {name!r}", error) from error
    return torchvision


def broken_torchvision(wanted: str, error: Exception) -> ModelLoadError:
    """What to say when torchvision is there and cannot be imported."""
    return ModelLoadError(
        f"torchvision is needed for {wanted} and is installed, but does not work with torch {torch.__version__} "
        f"({_first_line(error)}). Install the builds of torch and torchvision that belong together: both for CPU, or "
        "both for the same CUDA. The embedded model 'efficientnet_lite0' needs neither torchvision nor a download."
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
