"""Hooks, gradients and layers that are taken away for the time of a call, and put back whatever happens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.utils.hooks import RemovableHandle


@contextmanager
def without_hooks(handles: Sequence[RemovableHandle]) -> Iterator[None]:
    """These hooks off their modules; afterwards they are back, in their old places among the others.

    >>> layer, order = nn.Identity(), []
    >>> handles = [layer.register_forward_hook(lambda *_, name=name: order.append(name)) for name in "ab"]
    >>> with without_hooks(handles[:1]):
    ...     _ = layer(1)
    >>> _ = layer(1)
    >>> order
    ['b', 'a', 'b']
    """
    ours = {handle.id for handle in handles}
    tables = {id(table): table for handle in handles if (table := handle.hooks_dict_ref()) is not None}
    before = [(table, dict(table)) for table in tables.values()]
    for table, content in before:
        for key in ours & content.keys():
            del table[key]
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
    tables: list[dict[Any, Any]] = [table for m in model.modules() for table in (m._modules, m._forward_hooks)]
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
