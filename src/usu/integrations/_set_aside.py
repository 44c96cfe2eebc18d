"""What an adapter moves out of the way for the time of a call, and puts back whatever happens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import nn


@contextmanager
def deaf(bases: Sequence[Any]) -> Iterator[None]:
    """The library's forward hooks set aside; afterwards they are back, in their old places among the others."""
    handles = [handle for base in bases for handle in base.activations_and_grads.handles]
    ours = {handle.id for handle in handles}
    tables = {id(t): t for t in (handle.hooks_dict_ref() for handle in handles) if t is not None}.values()
    before = [(table, dict(table)) for table in tables]
    for table in tables:
        for key in ours & set(table):
            del table[key]
    try:
        yield
    finally:
        for table, content in before:
            now = dict(table)
            table.clear()
            table.update({key: hook for key, hook in content.items() if key in ours or key in now})
            table.update(now)


@contextmanager
def as_found(model: nn.Module) -> Iterator[None]:
    """Gradients, submodules and forward hooks as before: AblationCAM swaps layers, and an error would leave them so."""
    gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
    tables: list[dict[Any, Any]] = [t for m in model.modules() for t in (m._modules, m._forward_hooks)]
    before = [(table, dict(table)) for table in tables]
    for parameter, _ in gradients:
        parameter.grad = None
    try:
        yield
    finally:
        for parameter, gradient in gradients:
            parameter.grad = gradient
        for table, content in before:
            if list(table.items()) != list(content.items()):
                table.clear()
                table.update(content)


@contextmanager
def replaced(thing: Any, values: dict[str, Any]) -> Iterator[None]:
    """Attributes of this one object, for a while."""
    missing = object()
    before = {name: vars(thing).get(name, missing) for name in values}
    vars(thing).update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is missing:
                del vars(thing)[name]
            else:
                vars(thing)[name] = value
