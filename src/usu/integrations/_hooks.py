"""Hooks, gradients and attributes that are taken away for the time of a call, and put back whatever happens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.utils.hooks import RemovableHandle


@contextmanager
def without_hooks(handles: Iterable[RemovableHandle]) -> Iterator[None]:
    """These hooks off their modules; afterwards they are back, in their old places among the others.

    >>> layer, order = nn.Identity(), []
    >>> handles = [layer.register_forward_hook(lambda *_, name=name: order.append(name)) for name in "ab"]
    >>> with without_hooks(handles[:1]):
    ...     _ = layer(1)
    >>> _ = layer(1)
    >>> order
    ['b', 'a', 'b']
    """
    removed = [(handle.id, table) for handle in handles if (table := handle.hooks_dict_ref()) is not None]
    ours = {key for key, _ in removed}
    before = [(table, dict(table)) for table in {id(table): table for _, table in removed}.values()]
    for key, table in removed:
        table.pop(key, None)
    try:
        yield
    finally:
        for table, content in before:
            now = dict(table)  # others may have come or gone meanwhile
            table.clear()
            table.update({key: hook for key, hook in content.items() if key in ours or key in now})
            table.update(now)


@contextmanager
def restored(model: nn.Module) -> Iterator[None]:
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
def patched(thing: Any, values: dict[str, Any]) -> Iterator[None]:
    """Attributes of this one object, for a while."""
    own = vars(thing)
    before = {name: own[name] for name in values if name in own}
    own.update(values)
    try:
        yield
    finally:
        for name in values:
            own.pop(name, None)
        own.update(before)
