"""Weights on disk: a folder per training, with its state after the last whole epoch, and in the end a manifest.

Every file is written beside its place and moved there in one step. The manifest is last: where it is, all is whole.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

WEIGHTS, STATE, MANIFEST = "weights.safetensors", "state.safetensors", "manifest.json"


def key(settings: Mapping[str, object]) -> str:
    """Eight letters that differ as soon as a setting does."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]


def fingerprint(*tensors: Tensor) -> str:
    """Of what a training sees."""
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(tensor.contiguous().numpy().tobytes())
    return found.hexdigest()[:16]


def finished(place: Path, model: nn.Module) -> dict[str, object] | None:
    """The manifest of a whole training, with its weights put into ``model``; None if there is none."""
    if not (place / MANIFEST).exists():
        return None
    model.load_state_dict(load_file(place / WEIGHTS))
    return json.loads((place / MANIFEST).read_text(encoding="utf-8"))


def finish(place: Path, model: nn.Module, record: Mapping[str, object]) -> None:
    """Weights, then the manifest; the state is not needed any more."""
    place.mkdir(parents=True, exist_ok=True)
    _write(place / WEIGHTS, dict(model.state_dict()), {})
    draft = place / f".{MANIFEST}"
    draft.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    draft.replace(place / MANIFEST)
    (place / STATE).unlink(missing_ok=True)


def save(place: Path, model: nn.Module, adam: torch.optim.Optimizer, rows: list[dict[str, float]]) -> None:
    """The state after an epoch: weights, Adam's moments and what was measured so far."""
    place.mkdir(parents=True, exist_ok=True)
    tensors = {f"model/{name}": value for name, value in model.state_dict().items()}
    for number, moments in adam.state_dict()["state"].items():
        tensors |= {f"adam/{number}/{name}": value for name, value in moments.items()}
    _write(place / STATE, tensors, {"rows": json.dumps(rows)})


def begun(place: Path, model: nn.Module, adam: torch.optim.Optimizer) -> list[dict[str, float]]:
    """The rows of the epochs that are done, with ``model`` and ``adam`` as they were after the last of them."""
    if not (place / STATE).exists():
        return []
    with safe_open(place / STATE, framework="pt") as file:
        rows: list[dict[str, float]] = json.loads(file.metadata()["rows"])
    tensors = load_file(place / STATE)
    model.load_state_dict({name[6:]: value for name, value in tensors.items() if name.startswith("model/")})
    moments: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        if name.startswith("adam/"):
            _, number, moment = name.split("/")
            moments.setdefault(int(number), {})[moment] = value
    adam.load_state_dict({**adam.state_dict(), "state": moments})
    return rows


def _write(path: Path, tensors: dict[str, Tensor], notes: dict[str, str]) -> None:
    draft = path.with_name(f".{path.name}")
    save_file({name: value.detach().contiguous() for name, value in tensors.items()}, draft, metadata=notes)
    draft.replace(path)
