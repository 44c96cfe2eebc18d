"""Any value as plain ones, the same in every process: what the rows of a folder depend on."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

#: What a function's result can depend on without being an argument, and does not change by itself.
_LASTING = (bool, int, float, str, tuple, np.ndarray, Tensor, nn.Module)


def digest(*parts: bytes) -> str:
    """Sixteen characters that differ where the bytes do."""
    found = hashlib.sha256()
    for part in parts:
        found.update(len(part).to_bytes(8, "little") + part)
    return found.hexdigest()[:16]


def described(value: Any) -> Any:
    """A value and what it is made of, as JSON can hold it.

    Networks and arrays are known by their numbers; functions by their name, their code and what lasting values they
    see; anything with a ``fingerprint()`` by that; other objects by their kind and fields or public attributes.

    >>> described(partial(max, 3)), described(np.zeros(2)) == described(torch.zeros(2, dtype=torch.float64))
    ({'kind': 'partial', 'of': 'builtins.max', 'given': [[3], {}]}, True)
    """
    return _described(value, ())


def _described(value: Any, above: tuple[Any, ...]) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    kind = _name(type(value))
    if any(value is one for one in above):
        return kind  # a circle
    inner = (*above, value)
    if isinstance(value, (list, tuple)):
        return [_described(one, inner) for one in value]
    if isinstance(value, (set, frozenset)):
        return sorted((_described(one, inner) for one in value), key=str)
    if isinstance(value, Mapping):
        return {str(key): _described(one, inner) for key, one in value.items()}
    if isinstance(value, (np.ndarray, np.generic, Tensor)):
        return {"kind": "numbers", "digest": _numbers(value)}
    if isinstance(value, nn.Module):
        state = value.state_dict()
        return {"kind": kind, "weights": digest(*(f"{name} {_described(state[name], ())}".encode() for name in state))}
    if isinstance(value, partial):
        return {
            "kind": "partial",
            "of": _described(value.func, inner),
            "given": [_described(list(value.args), inner), _described(value.keywords, inner)],
        }
    if isinstance(value, MethodType):
        return {"kind": _name(value.__func__), "of": _described(value.__self__, inner)}
    if isinstance(value, FunctionType):
        return {"kind": _name(value), "code": _code(value.__code__), "sees": _described(_seen(value), inner)}
    if isinstance(value, type) or (callable(value) and not hasattr(value, "__dict__")):
        return _name(value)
    if callable(getattr(value, "fingerprint", None)):
        return {"kind": kind, "fingerprint": value.fingerprint()}
    names = [field.name for field in fields(value)] if is_dataclass(value) else list(getattr(value, "__dict__", ()))
    public = (name for name in names if not name.startswith("_"))
    return {"kind": kind, **{name: _described(getattr(value, name), inner) for name in public}}


def _name(value: Any) -> str:
    return f"{getattr(value, '__module__', None)}.{getattr(value, '__qualname__', type(value).__qualname__)}"


def _numbers(value: Any) -> str:
    if isinstance(value, Tensor) and value.layout is torch.strided and not value.is_quantized:
        flat = value.detach().cpu().contiguous().reshape(-1)
        return digest(f"{value.dtype}{list(value.shape)}".replace("torch.", "").encode(), _bytes(flat))
    if isinstance(value, Tensor):
        return digest(str(value).encode())
    array = np.asarray(value)
    return digest(f"{array.dtype}{list(array.shape)}".encode(), array.tobytes())


def _bytes(flat: Tensor) -> bytes:
    return flat.view(torch.uint8).numpy().tobytes() if len(flat) else b""


def _code(code: CodeType) -> str:
    """Of the instructions and constants; where the file is and on which line does not matter."""
    inner = [_code(one) if isinstance(one, CodeType) else repr(one) for one in code.co_consts]
    return digest(code.co_code, " ".join(code.co_names).encode(), "\n".join(inner).encode())


def _seen(function: FunctionType) -> dict[str, Any]:
    """Defaults, what the function closes over and what it names in its module, as far as it lasts."""
    code = function.__code__
    found: dict[str, Any] = {"defaults": function.__defaults__, **(function.__kwdefaults__ or {})}
    found |= {name: function.__globals__[name] for name in code.co_names if name in function.__globals__}
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not yet filled
            continue
    return {name: value for name, value in found.items() if isinstance(value, _LASTING)}
