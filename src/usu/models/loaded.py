"""A model that is ready for pictures, and what every way to one needs: its weights and its class names."""

from __future__ import annotations

import difflib
import pickle
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from usu.errors import MissingExtraError, ModelLoadError
from usu.models.preparation import Geometry
from usu.types import NDArray

#: Pixels (H, W, 3), uint8 or float in [0, 1], to the model's input (C, h, w) and where that sits in the picture.
Prepare: TypeAlias = Callable[[NDArray], tuple[Tensor, Geometry]]

#: Names shown when a name fits several classes.
_SHOWN = 8
#: Where training scripts put the weights inside a checkpoint.
_WRAPPERS = ("state_dict", "model_state_dict", "model")
#: What DataParallel, Lightning and torch.compile put before every name.
_PREFIXES = ("module.", "model.", "_orig_mod.")


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


@cache
def imagenet_classes() -> tuple[str, ...]:
    """The 1000 ImageNet classes, each with its synonyms: ``"tench, Tinca tinca"``."""
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
    for prefix in _PREFIXES:
        if not own.keys() & state.keys() and all(key.startswith(prefix) for key in state):
            state = {key[len(prefix) :]: value for key, value in state.items()}
    missing, unknown = sorted(own.keys() - state.keys()), sorted(state.keys() - own.keys())
    both = sorted(own.keys() & state.keys())
    wrong = [key for key in both if own[key].shape != state[key].shape]
    # whole numbers in the place of real ones (or the other way round) would be converted in silence
    other = [key for key in both if own[key].dtype.is_floating_point != state[key].dtype.is_floating_point]
    if missing or unknown or wrong or other:
        faults = (
            (missing, "are missing"),
            (unknown, "are unknown to it"),
            (wrong, "have another shape"),
            (other, "hold another kind of number"),
        )
        told = [f"{len(keys)} {what} (such as {keys[0]})" for keys, what in faults if keys]
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
    try:
        content: Any = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, OSError, ValueError, KeyError, AttributeError) as error:
        raise ModelLoadError(
            f"`weights` must be a file of tensors (a state dict); {path.name} cannot be read as one. "
            "Save it with torch.save(model.state_dict(), ...); whole pickled models are not loaded, because they can "
            "run code."
        ) from error
    for name in _WRAPPERS:
        if isinstance(content, Mapping) and isinstance(content.get(name), Mapping):
            content = content[name]
    named = isinstance(content, Mapping) and all(isinstance(key, str) for key in content)
    if not named or not content or not all(isinstance(value, Tensor) for value in content.values()):
        raise ModelLoadError(
            f"`weights` must hold a state dict, names and tensors; {path.name} holds {type(content).__name__}"
            f"{'' if named else ' without names'}. "
            "Save it with torch.save(model.state_dict(), ...)."
        )
    return dict(content)


def first_line(error: BaseException) -> str:
    """What a library says of its failure, without its history."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
