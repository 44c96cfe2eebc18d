"""A faster runtime for the same numbers: a module as an ONNX session, checked on the picture it will be asked about."""

from __future__ import annotations

import json
import os
import warnings
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from usu import _checks as check
from usu.errors import MissingExtraError, UsuError, first_line
from usu.forward.calls import undisturbed
from usu.forward.digest import described, digest
from usu.forward.engine import RUNTIMES, RuntimeName
from usu.forward.onnx import OnnxModel, from_onnx

#: Outputs may differ by so much, relative to the largest of them, and the top class may not.
_TOLERANCE = 1e-3
#: Kept or made anew, because the weights may have changed; for any number of pictures or, because a model may have put
#: the number it was traced with into the graph, for a few at a time.
_TRIES: tuple[tuple[bool, int | None], ...] = ((False, None), (True, None), (False, 4), (True, 4))
#: What was made of a module, as long as the module lives: by the shape of its input.
_MADE: WeakKeyDictionary[nn.Module, dict[tuple[object, ...], Any]] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class Runtime:
    """Who is asked for the scores; gradients stay with the module itself."""

    model: Any
    #: ``"torch"``, ``"onnx"``, ``"compile"``, or ``"callable"`` for what is no module.
    name: str
    #: Why it is not the one that was asked for.
    note: str = ""


def runtime(model: Any, image: Tensor, wanted: RuntimeName = "auto") -> Runtime:
    """The model in a faster form, if that gives the same answer for this picture.

    Args:
        model: an ``nn.Module`` on the CPU; anything else is left as it is.
        image: (C, H, W), as the model takes it; (C, L) and (C, D, H, W), too.
        wanted: ``"torch"``: the module. ``"onnx"``: ONNX Runtime; an error where that cannot be. ``"compile"``:
            `torch.compile`. ``"auto"``: ONNX Runtime where it can be had and agrees, else the module.

    Guarantees:
        Outputs agree on this picture to 1e-3 of the largest, with the same top class: one pass of each, which no budget
        counts. An export is made once for given weights and kept in the user's cache folder (``USU_CACHE``).

    >>> runtime(lambda batch: batch, torch.zeros(1, 2, 2)).name
    'callable'
    """
    check.choice("engine", wanted, RUNTIMES)
    if not isinstance(model, nn.Module):
        return Runtime(model, "onnx" if isinstance(model, OnnxModel) else "callable")
    if wanted == "torch":
        return Runtime(model, "torch")
    kind = "compile" if wanted == "compile" else "onnx"
    try:
        return Runtime(_checked(model, image, kind), kind)
    except (UsuError, ImportError) as error:
        if wanted != "auto":
            raise
        return Runtime(model, "torch", str(error))


def _checked(model: nn.Module, image: Tensor, kind: str) -> Any:
    """The fast form, which agrees with the module on this picture."""
    batch = image.detach()[None]
    if kind == "onnx" and any(weight.device.type != "cpu" for weight in model.parameters()):
        raise UsuError("The ONNX engine runs on the CPU, and the model does not.")
    with undisturbed(model), torch.no_grad():
        weight = next((w for w in model.parameters() if w.is_floating_point()), batch)
        batch = batch.to(weight)
        expected = model(batch)
        if not isinstance(expected, Tensor):
            raise UsuError(f"The model returns a {type(expected).__name__}; only one tensor is exported.")
        made = _MADE.setdefault(model, {})
        key = (kind, *batch.shape[1:], batch.dtype)
        for fresh, pictures in _TRIES:
            if fresh or pictures or key not in made:
                compiles = kind == "compile"
                made[key] = torch.compile(model) if compiles else _exported(model, batch, pictures, fresh=fresh)
            if _agree(expected, made[key], batch):
                return made[key]
    del made[key]
    raise UsuError(f"The {kind} engine gives another answer than torch for this picture.")


def _agree(expected: Tensor, fast: Any, batch: Tensor) -> bool:
    try:
        found = fast(batch)
    except Exception:  # the runtimes have a dozen exception classes; whatever it is, this form does not work
        return False
    if expected.shape != found.shape:
        return False
    a, b = expected.double().flatten(1), found.double().flatten(1)
    near = (a - b).abs().amax() <= _TOLERANCE * a.abs().amax().clamp(min=1)
    return bool(near) and bool((a.argmax(1) == b.argmax(1)).all())


def _exported(model: nn.Module, batch: Tensor, pictures: int | None, *, fresh: bool) -> OnnxModel:
    """From the cache, or made anew; for so many pictures at a time, or any number."""
    for package in ("onnxruntime", "onnx"):
        if find_spec(package) is None:
            raise MissingExtraError(package, "onnx", "The ONNX engine")
    asked = [described(model), list(batch.shape), str(batch.dtype), torch.__version__, pictures]
    name = digest(json.dumps(asked).encode())
    path = cache_folder() / f"{name}.onnx"
    if path.is_file() and not fresh:
        try:
            return from_onnx(path)
        except Exception:  # the runtime has a dozen exception classes; whatever is wrong with the file, make it anew
            path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{name}.{uuid4().hex}.onnx")  # beside it, where large exports keep their weights
    several = batch.expand(pictures or 2, *batch.shape[1:]).clone()
    axes = None if pictures else {"image": {0: "pictures"}, "logits": {0: "pictures"}}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the exporter tells of its own future, and of shapes it takes as constants
            torch.onnx.export(
                model, (several,), str(draft), input_names=["image"], output_names=["logits"], opset_version=17,
                dynamo=False, dynamic_axes=axes,
            )  # fmt: skip
        draft.replace(path)
        return from_onnx(path)
    except UsuError:
        raise
    except Exception as error:
        raise UsuError(f"The model cannot be exported to ONNX: {first_line(error)}") from error
    finally:
        draft.unlink(missing_ok=True)


def cache_folder() -> Path:
    """Where exports are kept: ``USU_CACHE``, or ``usu`` in the user's cache folder."""
    own = os.environ.get("USU_CACHE")
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(own).expanduser() if own else Path(home).expanduser() / "usu"
