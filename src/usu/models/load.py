"""From a name to a model."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from usu.models.embedded import NAME as EMBEDDED
from usu.models.embedded import efficientnet_lite0
from usu.models.from_file import from_onnx_file, from_python
from usu.models.from_timm import from_timm
from usu.models.from_torchvision import from_torchvision
from usu.models.from_transformers import from_transformers
from usu.models.loaded import Loaded


def load(name: str = EMBEDDED, *, weights: str | Path | None = None, device: str | torch.device = "cpu") -> Loaded:
    """A model by name, in evaluation mode on ``device``.

    ==========================  ====================================================================
    ``efficientnet_lite0``      the embedded network (extra ``demo``)
    ``resnet50``                any classifier of torchvision; also ``torchvision:resnet50``
    ``timm:NAME``               any model of timm
    ``transformers:FOLDER``     an image classifier saved by transformers
    ``file.py:function``        your function that returns a model, or (model, prepare)
    ``file.onnx``               an ONNX export; it has no gradients, so bring a coarse map
    ==========================  ====================================================================

    ``weights`` is a local file (``.safetensors``, ``.pth``) with a state dict. The global random numbers are not moved.

    Raises:
        ModelLoadError: in one sentence, what is missing and what to do.
        MissingExtraError: if a package is missing.
    """
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"`name` must be the name of a model; got {name!r}. Try {EMBEDDED!r}.")
    file = None if weights is None else str(weights)
    # a network draws its first weights at random before they are replaced
    with torch.random.fork_rng(devices=[]):
        loaded = _by_form(name.strip(), file)
    if isinstance(loaded.model, nn.Module):
        loaded.model.to(device)
    return loaded


def _by_form(name: str, weights: str | None) -> Loaded:
    if name == EMBEDDED:
        return efficientnet_lite0(weights)
    if name.lower().endswith(".onnx"):
        return from_onnx_file(name, weights)
    if name.rpartition(":")[0].endswith(".py"):
        return from_python(name, weights)
    kind, _, rest = name.partition(":")
    if kind == "timm" and rest:
        return from_timm(rest, weights)
    if kind == "transformers" and rest:
        return from_transformers(rest, weights)
    return from_torchvision(rest if kind == "torchvision" and rest else name, weights)
