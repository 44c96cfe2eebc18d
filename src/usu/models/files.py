"""Models from a user's own files: a Python function, or an ONNX export."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from usu.errors import ModelLoadError, UsuError, first_line
from usu.forward import onnx
from usu.models.libraries import preparation
from usu.models.load import Loaded, imagenet_classes, load_weights
from usu.models.pictures import Preparation


def from_py(name: str, weights: str | None = None) -> Loaded:
    """``file.py:function``, where the function returns a model, ``(model, prepare)`` or a `Loaded`.

    Without ``prepare`` the picture is prepared as torchvision does for ImageNet (256, centre 224, mean and std); what
    it may be is told by `usu.models.libraries.preparation`.
    """
    made = _ran(name, function_of(name))
    if isinstance(made, Loaded):
        loaded = made
    else:
        model, prepare = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
        way = Preparation() if prepare is None else _ran(name, lambda: preparation(prepare))
        loaded = Loaded(name, model, way)
    if not callable(loaded.model):
        got = f"{name} returned {type(made).__name__}"
        raise ModelLoadError(f"`model` must name a function that returns a model, or (model, prepare); {got}.")
    if isinstance(loaded.model, nn.Module):
        loaded.model.eval()
        if weights is not None:
            load_weights(loaded.model, weights)
    elif weights is not None:
        raise ModelLoadError(f"`weights` must go with an nn.Module; {name} returned {type(loaded.model).__name__}.")
    return loaded


def function_of(name: str) -> Callable[..., Any]:
    """A user's ``file.py:function``, not called yet. What lies beside the file can be imported by it."""
    file, _, function = name.rpartition(":")
    path = Path(file).expanduser()
    if not path.is_file():
        raise ModelLoadError(f"`model` must be 'file.py:function'; got {name!r}, and {file} does not exist.")
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        made = _ran(path.name, lambda: runpy.run_path(str(path), run_name=f"usu_user_{path.stem}")).get(function)
    finally:
        if folder in sys.path:
            sys.path.remove(folder)
    if not callable(made):
        raise ModelLoadError(f"`model` must name a function of {path.name}; got {function!r}, which is not one.")
    return made  # type: ignore[no-any-return]


def _ran(name: str, code: Callable[[], Any]) -> Any:
    """What a user's own code returns; whatever it raises is one sentence."""
    try:
        return code()
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise ModelLoadError(f"`model` must be code that runs; {name} does not ({reason}).") from error


def onnx_model(name: str) -> onnx.OnnxModel:
    """The model in an ``.onnx`` file, or one sentence why there is none."""
    path = Path(name).expanduser()
    if not path.is_file():
        raise ModelLoadError(f"`model` must be an .onnx file; got {name!r}, which does not exist.")
    try:
        return onnx.from_onnx(path)
    except UsuError:
        raise
    except Exception as error:  # the runtime has a dozen exception classes of its own
        why = f"{path.name} cannot be read as one: {first_line(error)}"
        raise ModelLoadError(f"`model` must be an .onnx file; {why}") from error


def from_onnx(name: str, weights: str | None = None) -> Loaded:
    """An ``.onnx`` file, prepared as torchvision does for ImageNet. Without gradients: bring a coarse map."""
    if weights is not None:
        raise ModelLoadError(f"`weights` must be left out for an .onnx file, which holds its own; got {weights}.")
    model, file = onnx_model(name), Path(name).name
    shape = model.session.get_inputs()[0].shape
    if len(shape) != 4 or (isinstance(shape[1], int) and shape[1] != 3):
        raise ModelLoadError(
            f"`model` must take pictures as B x 3 x H x W; {file} takes {shape}. "
            "Wrap it in a Python function and pass 'file.py:function'."
        )
    height, width = (side if isinstance(side, int) else 224 for side in shape[2:])
    prepare = Preparation(crop=(height, width), resize=round(min(height, width) * 256 / 224))
    probe = _ran(file, lambda: model(torch.zeros(1, 3, height, width)))
    return Loaded(file, model, prepare, imagenet_classes() if probe.shape[-1] == 1000 else None)
