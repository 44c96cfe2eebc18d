"""Any value as plain ones, the same in every process: what the rows of a folder depend on."""

from __future__ import annotations

import dis
import hashlib
import inspect
import logging
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from pathlib import PurePath
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

_PLAIN = (bool, int, float, str, type(None))
#: Known by how they are written.
_WRITTEN = (complex, bytes, range, slice, PurePath, np.dtype, torch.dtype, torch.device)
#: Not followed: what grows or changes by itself, and whole libraries.
_PASSING = (list, dict, set, bytearray, ModuleType, logging.Logger)
#: Code of these is known by its name; another version of it is another program.
_LIBRARIES = ("usu", "torch", "numpy", "builtins")


def digest(*parts: bytes) -> str:
    """Sixteen characters that differ where the bytes do."""
    found = hashlib.sha256()
    for part in parts:
        found.update(len(part).to_bytes(8, "little") + part)
    return found.hexdigest()[:16]


def described(value: Any) -> Any:
    """A value and what it is made of, as JSON can hold it.

    Anything whose class has a ``fingerprint()`` is known by that; networks by their structure and numbers; functions by
    their code and the lasting values it names; other objects by their class and their fields or public attributes.

    >>> described(partial(max, 3)), described(np.zeros(2)) == described(torch.zeros(2, dtype=torch.float64))
    ({'kind': 'partial', 'of': 'builtins.max', 'given': [[3], {}]}, True)
    """
    return _described(value, ())


def _described(value: Any, above: tuple[Any, ...]) -> Any:
    if isinstance(value, Enum):
        return f"{_name(type(value))}.{value.name}"
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, _WRITTEN):
        return repr(value)
    if any(value is one for one in above):
        return _name(type(value))  # a circle
    inner = (*above, value)
    if isinstance(value, (list, tuple)):
        return [_described(one, inner) for one in value]
    if isinstance(value, (set, frozenset)):
        return sorted((_described(one, inner) for one in value), key=str)
    if isinstance(value, Mapping):
        return {str(key): _described(one, inner) for key, one in value.items()}
    if isinstance(value, (ModuleType, type, np.ufunc)):
        return _name(value)
    if isinstance(value, (np.ndarray, np.generic, Tensor)):
        return {"kind": "numbers", "digest": digest(*_numbers(value))}
    return _made_of(value, inner)


def _made_of(value: Any, inner: tuple[Any, ...]) -> Any:
    """What is no plain value: functions and objects."""
    kind = _name(type(value))
    if callable(getattr(type(value), "fingerprint", None)):
        return {"kind": kind, "fingerprint": value.fingerprint()}
    if isinstance(value, partial):
        return {
            "kind": "partial",
            "of": _described(value.func, inner),
            "given": [_described(value.args, inner), _described(value.keywords, inner)],
        }
    if isinstance(value, (MethodType, BuiltinFunctionType)) and not isinstance(value.__self__, ModuleType | None):
        return {"kind": _name(value), "of": _described(value.__self__, inner)}
    function = inspect.unwrap(value) if callable(value) else value
    if isinstance(function, FunctionType):
        if _library(function):
            return _name(function)
        return {"kind": _name(function), "code": _code(function), **_sees(function, inner)}
    if isinstance(value, BuiltinFunctionType):
        return _name(value)
    if isinstance(value, nn.Module):
        return {"kind": kind, "weights": weights_digest(value), "structure": _structure(value)}
    has = {name: one for name, one in _attributes(value) if not isinstance(one, logging.Logger)}
    own = vars(type(value)).get("__call__")
    code = {"code": _code(own)} if isinstance(own, FunctionType) and not _library(own) else {}
    return {"kind": kind, **code, "has": _described(has, inner)}


def _name(value: Any) -> str:
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None) or type(value).__qualname__
    return f"{getattr(value, '__module__', None)}.{name}"


def _library(function: Any) -> bool:
    return str(function.__module__).partition(".")[0] in _LIBRARIES


def _attributes(value: Any) -> list[tuple[str, Any]]:
    """Fields, slots and attributes that are public and set."""
    names = [field.name for field in fields(value)] if is_dataclass(value) else list(getattr(value, "__dict__", ()))
    names += [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ()) if name not in names]
    return [(name, getattr(value, name)) for name in names if not name.startswith("_") and hasattr(value, name)]


def weights_digest(network: nn.Module) -> str:
    """Of the names and numbers of parameters and buffers."""
    parts: list[bytes] = []
    for name, tensor in (*network.named_parameters(), *network.named_buffers()):
        parts += (name.encode(), *_numbers(tensor))
    return digest(*parts)


def _structure(network: nn.Module) -> str:
    """Of its layers with their settings, numbers that are no tensors, and code of its own."""
    parts, code = [repr(network)], {}
    for name, layer in network.named_modules():
        kind, plain = type(layer), {}
        for key, one in _attributes(layer):
            if isinstance(one, _PLAIN) and key != "training":
                plain[key] = one
        if kind not in code:  # a class has many layers, and one code
            forward = inspect.getattr_static(kind, "forward", None)
            code[kind] = _code(forward) if isinstance(forward, FunctionType) and not _library(forward) else ""
        parts.append(f"{name} {sorted(plain.items(), key=str)} {code[kind]}")
    return digest("\n".join(parts).encode())


def _numbers(value: Any) -> tuple[bytes, ...]:
    """Type, shape and bytes."""
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        data = repr(array.tolist()).encode() if array.dtype == object else array.tobytes()
        return f"{array.dtype}{list(array.shape)}".encode(), data
    lazy = nn.parameter.is_lazy(value)
    head = f"{value.dtype}{'?' if lazy else list(value.shape)}".replace("torch.", "").encode()
    if value.is_meta or lazy:
        return (head,)  # not made yet
    tensor = value.detach()
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    elif tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    flat = tensor.cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return head, flat.view(torch.uint8).numpy().tobytes() if len(flat) else b""


def _code(function: FunctionType | CodeType) -> str:
    """Of the instructions, names and constants; not of the file or the line."""
    code = function.__code__ if isinstance(function, FunctionType) else function
    return digest(code.co_code, *map(str.encode, code.co_names), *map(_constant, code.co_consts))


def _constant(value: Any) -> bytes:
    return (_code(value) if isinstance(value, CodeType) else repr(described(value))).encode()


def _sees(function: FunctionType, inner: tuple[Any, ...]) -> dict[str, Any]:
    """Its defaults, and what it closes over or names in its module, as far as that lasts."""
    steps = [step for code in _nested(function.__code__) for step in dis.get_instructions(code)]
    used = {(step.opname, step.argval) for step in steps if step.opname.endswith(("_GLOBAL", "_DEREF"))}
    names = sorted(name for way, name in used if way == "LOAD_GLOBAL" and ("STORE_GLOBAL", name) not in used)
    found = {name: function.__globals__[name] for name in names if name in function.__globals__}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        if ("STORE_DEREF", name) not in used:
            try:
                found[name] = cell.cell_contents
            except ValueError:  # not filled yet
                continue
    lasting = {name: one for name, one in found.items() if not isinstance(one, _PASSING)}
    defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).items()]
    return {"sees": _described(lasting, inner), "defaults": _described(defaults, inner)}


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _nested(one)
