"""Any value as plain ones, the same in every process: what the rows of a folder depend on."""

from __future__ import annotations

import dis
import hashlib
import inspect
import logging
import platform
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime, timezone
from enum import Enum
from functools import partial
from importlib.metadata import version
from pathlib import PurePath
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

_PLAIN = (bool, int, float, str, type(None))
#: Known by how they are written.
_WRITTEN = (complex, bytes, range, slice, re.Pattern, PurePath, np.dtype, torch.dtype, torch.device)
#: Not followed: what grows or changes by itself, and whole libraries.
_PASSING = (list, dict, set, bytearray, ModuleType, logging.Logger)
#: What a list or a dictionary is followed for: a model keeps such things there, a counter or a log does not.
_LASTING = (Tensor, np.ndarray, nn.Module, FunctionType)
#: Code of these is known by its name; another version of it is another program.
_LIBRARIES = ("usu", "torch", "numpy", "builtins")
#: Stands where nobody can see what a value is made of.
OPAQUE = "not to be seen into"


def digest(*parts: bytes) -> str:
    """Sixteen characters that differ where the bytes do."""
    found = hashlib.sha256()
    for part in parts:
        found.update(len(part).to_bytes(8, "little") + part)
    return found.hexdigest()[:16]


def versions() -> dict[str, str]:
    """What ran, and when."""
    return {
        "usu-xai": version("usu-xai"),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


def described(value: Any) -> Any:
    """A value and what it is made of, as JSON can hold it.

    Anything whose class has a ``fingerprint()`` is known by that; networks by their numbers, their structure and their
    code; functions by their code, what it calls and the lasting values it names; other objects by their code and their
    attributes, except for private numbers and collections (counters and caches). What has neither is `OPAQUE`.

    >>> described(partial(max, 3)), described(np.zeros(2)) == described(torch.zeros(2, dtype=torch.float64))
    ({'kind': 'partial', 'of': 'builtins.max', 'given': [[3], {}]}, True)
    """
    return _described(value, (set(),))


def is_known(description: Any) -> bool:
    """Whether there is nothing in a description that could change unseen.

    >>> is_known(described([1, len])), is_known(described([iter([])]))
    (True, False)
    """
    if isinstance(description, dict):
        return all(map(is_known, description.values()))
    return all(map(is_known, description)) if isinstance(description, list) else description != OPAQUE


def _described(value: Any, above: tuple[Any, ...]) -> Any:
    """``above``: the ids of functions and classes that were described already, and all that this value is part of."""
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
    if isinstance(value, (ModuleType, np.ufunc)):
        return _name(value)
    if isinstance(value, type):
        code = _class_code(value, inner)
        return {"kind": _name(value), "code": code} if code else _name(value)
    if isinstance(value, (np.ndarray, np.generic, Tensor)):
        return {"kind": "numbers", "digest": digest(*_numbers(value))}
    return _made_of(value, inner)


def _made_of(value: Any, inner: tuple[Any, ...]) -> Any:
    """What is no plain value: functions and objects."""
    kind = _name(type(value))
    if callable(getattr(type(value), "fingerprint", None)):
        found = value.fingerprint()
        return {"kind": kind, "fingerprint": OPAQUE if found is None else found}
    if isinstance(value, partial):
        function = _described(value.func, inner)
        return {"kind": "partial", "of": function, "given": _described([value.args, value.keywords], inner)}
    if isinstance(value, (MethodType, BuiltinFunctionType)) and not isinstance(value.__self__, ModuleType | None):
        return {"kind": _name(value), "of": _described(value.__self__, inner)}
    function = inspect.unwrap(value) if callable(value) else value
    if isinstance(function, FunctionType):
        if _library(function) or _visited(function, inner):
            return _name(function)
        return {"kind": _name(function), "code": _code(function), **_sees(function, inner)}
    if isinstance(value, BuiltinFunctionType):
        return _name(value)
    if isinstance(value, nn.Module):
        return {"kind": kind, "weights": weights_digest(value), "structure": _structure(value, inner)}
    has = {name: one for name, one in _attributes(value) if not isinstance(one, logging.Logger)}
    if not hasattr(value, "__dict__") and not has and type(value) is not object:
        told = repr(value)  # of the interpreter or an extension
        return {"kind": kind, "is": OPAQUE if " at 0x" in told else told}
    code = _class_code(type(value), inner)
    return {"kind": kind, **({"code": code} if code else {}), "has": _described(has, inner)}


def _visited(value: Any, inner: tuple[Any, ...]) -> bool:
    """Whether it was described before in the same description; it is from now on."""
    before = id(value) in inner[0]
    inner[0].add(id(value))
    return before


def _class_code(kind: type, inner: tuple[Any, ...]) -> dict[str, Any]:
    """Of the methods of a class and of those above it, and of what they call; nothing of a library's."""
    found: dict[str, Any] = {}
    for one in kind.__mro__:
        if _library(one) or one is object or _visited(one, inner):
            continue
        for name, member in vars(one).items():
            function = getattr(member, "fget", None) or getattr(member, "__func__", member)
            if isinstance(function, FunctionType):
                function = inspect.unwrap(function)
                found[f"{one.__qualname__}.{name}"] = {"code": _code(function), **_sees(function, inner)}
    return found


def _name(value: Any) -> str:
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None) or type(value).__qualname__
    return f"{getattr(value, '__module__', None)}.{name}"


def _library(function: Any) -> bool:
    return str(function.__module__).partition(".")[0] in _LIBRARIES


def _attributes(value: Any) -> list[tuple[str, Any]]:
    """Fields, slots and attributes that are set: the public ones, and private ones that are no counter and no cache."""
    names = [field.name for field in fields(value)] if is_dataclass(value) else list(getattr(value, "__dict__", ()))
    names += [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ()) if name not in names]
    found = [(name, getattr(value, name)) for name in names if hasattr(value, name) and not name.startswith("__")]
    return [(name, one) for name, one in found if name[0] != "_" or not isinstance(one, (*_PLAIN, *_PASSING))]


def weights_digest(network: nn.Module) -> str:
    """Of the names and numbers of parameters and buffers."""
    parts: list[bytes] = []
    for name, tensor in (*network.named_parameters(), *network.named_buffers()):
        parts += (name.encode(), *_numbers(tensor))
    return digest(*parts)


def _structure(network: nn.Module, inner: tuple[Any, ...]) -> str:
    """Of its layers with their settings, numbers that are no tensors, and code of its own with all that it calls."""
    parts = [repr(network)]
    for name, layer in network.named_modules():
        plain = {key: one for key, one in _attributes(layer) if isinstance(one, _PLAIN) and key != "training"}
        parts.append(f"{name} {_name(type(layer))} {sorted(plain.items(), key=str)} {_class_code(type(layer), inner)}")
        if isinstance(layer, torch.jit.ScriptModule):  # its class has no code, it has
            parts.append(str(getattr(layer, "inlined_graph", "")))
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
    lasting = {name: one for name, one in found.items() if not isinstance(one, _PASSING) or _holds_lasting(one)}
    defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).items()]
    return {"sees": _described(lasting, inner), "defaults": _described(defaults, inner)}


def _holds_lasting(value: Any) -> bool:
    many = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(isinstance(one, _LASTING) for one in many)


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _nested(one)
