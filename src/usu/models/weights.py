"""Weights from a local file into a model."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from usu.errors import MissingExtraError, ModelLoadError

#: Where training scripts put the weights inside a checkpoint.
_WRAPPERS = ("state_dict", "model_state_dict", "model")
#: What DataParallel, Lightning and torch.compile put before every name.
_PREFIXES = ("module.", "model.", "_orig_mod.")


def load_weights(model: nn.Module, path: str | Path) -> None:
    """Fill ``model`` from a ``.safetensors`` or ``.pth`` file; every parameter must fit."""
    path = Path(path)
    if not path.is_file():
        raise ModelLoadError(f"`weights` must be a file; got {path}, which does not exist. Check the path.")
    state = _read(path)
    own = model.state_dict()
    for prefix in _PREFIXES:
        if not own.keys() & state.keys() and all(key.startswith(prefix) for key in state):
            state = {key[len(prefix) :]: value for key, value in state.items()}
    missing = sorted(set(own) - set(state))
    unknown = sorted(set(state) - set(own))
    wrong = sorted(key for key in set(own) & set(state) if own[key].shape != state[key].shape)
    if missing or unknown or wrong:
        faults = ((missing, "are missing"), (unknown, "are unknown to it"), (wrong, "have another shape"))
        told = [f"{len(keys)} {what} (such as {keys[0]})" for keys, what in faults if keys]
        raise ModelLoadError(
            f"`weights` must fit the model; of the tensors in {path.name} {', '.join(told)}. "
            "Is it the file of another architecture, or of another number of classes?"
        )
    model.load_state_dict(state)


def _read(path: Path) -> dict[str, Tensor]:
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
    except (pickle.UnpicklingError, RuntimeError, EOFError, OSError, ValueError) as error:
        raise ModelLoadError(
            f"`weights` must be a file of tensors (a state dict); {path.name} cannot be read as one. "
            "Save it with torch.save(model.state_dict(), ...); whole pickled models are not loaded, because they can "
            "run code."
        ) from error
    for name in _WRAPPERS:
        if isinstance(content, Mapping) and isinstance(content.get(name), Mapping):
            content = content[name]
    if not isinstance(content, Mapping) or not content or not all(isinstance(v, Tensor) for v in content.values()):
        raise ModelLoadError(
            f"`weights` must hold a state dict; {path.name} holds {type(content).__name__}. "
            "Save it with torch.save(model.state_dict(), ...)."
        )
    return dict(content)
