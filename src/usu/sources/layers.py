"""Layers of a model: found by name, listened to during one pass, chosen by what reaches the target."""

from __future__ import annotations

import difflib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from usu import _checks as check
from usu.sources.grids import Grid, find_grid

#: Outputs kept while searching. The layer wanted is near the end, and so memory does not grow with depth.
KEPT = 64
_MUTE = (nn.Linear, torch.jit.ScriptModule)


@dataclass(frozen=True, eq=False)
class Heard:
    """One layer's output in one pass."""

    name: str
    output: Tensor
    grid: Grid | None


def find_layer(model: nn.Module, layer: str | nn.Module) -> tuple[str, nn.Module]:
    """The layer by its dotted name, or the module itself, as (name, module)."""
    modules = dict(model.named_modules())
    if isinstance(layer, nn.Module):
        for name, module in modules.items():
            if module is layer:
                return name, module
        raise ValueError(
            f"`layer` must be part of the model; got a {type(layer).__name__} that is not in it. "
            "Take it from this very model, or name it as in model.named_modules()."
        )
    if not isinstance(layer, str):
        raise TypeError(
            f"`layer` must be a name or a module; got {type(layer).__name__}. Leave it None to have it chosen."
        )
    if layer in modules and layer:
        return layer, modules[layer]
    names = [name for name in modules if name]
    close = difflib.get_close_matches(layer, names, n=5, cutoff=0.4) or names[-5:]
    raise ValueError(f"`layer` must name a layer of the model; got {layer!r}. Close are: {', '.join(close)}.")


def candidates(model: nn.Module) -> dict[str, nn.Module]:
    """Layers worth listening to when none was asked for: those with parameters below the model itself.

    Activations and poolings only repeat what the layer before them says. A linear projection is left out because
    inside attention it holds queries, keys and values, not features of places; its block comes right after it. What
    TorchScript compiled takes no hooks.
    """
    return {
        name: module
        for name, module in model.named_modules()
        if name and not isinstance(module, _MUTE) and any(True for _ in module.parameters())
    }


@contextmanager
def listen(
    model: nn.Module,
    modules: Mapping[str, nn.Module],
    images: Tensor,
    *,
    only_grids: bool,
    tell: Callable[[Heard], None] | None = None,
) -> Iterator[Sequence[Heard]]:
    """Collect what ``modules`` return, in the order they finish; the hooks are gone afterwards.

    What goes on to the next layer is a copy, so that one that works in place cannot change what was heard. With
    ``tell`` each is told at once, and not kept.
    """
    heard: deque[Heard] = deque(maxlen=KEPT)
    take = heard.append if tell is None else tell
    batch, size = images.shape[0], (images.shape[2], images.shape[3])

    def keep_output(name: str, output: Any) -> Any:
        tensor = first_tensor(output)
        if tensor is None or not tensor.requires_grad:
            return None
        rebuilt = isinstance(output, Tensor) or type(output) in (tuple, list)
        grid = find_grid(tuple(tensor.shape), batch, size, patches)
        if only_grids and (grid is None or not rebuilt):  # the layers inside a ModelOutput are heard themselves
            return None
        take(Heard(name, tensor, grid))
        if output is tensor:
            return tensor.clone()
        return type(output)([tensor.clone(), *output[1:]]) if rebuilt and output[0] is tensor else None

    with ExitStack() as hooks:
        patches = hooks.enter_context(patch_grids(model))
        for name, module in modules.items():
            handle = module.register_forward_hook(lambda _module, _inputs, out, name=name: keep_output(name, out))
            hooks.callback(handle.remove)
        yield heard


@contextmanager
def patch_grids(model: nn.Module) -> Iterator[set[tuple[int, int]]]:
    """Collect the sizes of what the convolutions return: a ViT's patch embedding is one of them."""
    patches: set[tuple[int, int]] = set()

    def note(_module: nn.Module, _inputs: object, output: object) -> None:
        if isinstance(output, Tensor) and output.ndim == 4:
            patches.add((output.shape[2], output.shape[3]))

    handles = [module.register_forward_hook(note) for module in model.modules() if isinstance(module, nn.Conv2d)]
    try:
        yield patches
    finally:
        for handle in handles:
            handle.remove()


def first_tensor(output: object) -> Tensor | None:
    """What a layer says: its tensor, the first of a tuple, or the first in a dictionary (a ModelOutput)."""
    values = output.values() if isinstance(output, Mapping) else output if isinstance(output, (tuple, list)) else ()
    return output if isinstance(output, Tensor) else next((v for v in values if isinstance(v, Tensor)), None)


def gradients_at(score: Tensor, layers: Sequence[Heard], *, again: bool = False) -> tuple[Tensor | None, ...]:
    """d(score) / d(output) of each layer, None where there is no way; the parameters' .grad stays as it is."""
    outputs = [layer.output for layer in layers]
    return torch.autograd.grad(score, outputs, retain_graph=again, allow_unused=True)


def choose(layers: Sequence[Heard], score: Tensor, *, again: bool = False) -> tuple[Heard, Tensor | None, str]:
    """The last layer over the picture through which the score can be changed, its gradient, and why it is that one.

    The head of a ViT that reads the class token alone leaves the patches of the last blocks' outputs without gradient;
    then it is the layer before, usually the first norm of the last block.
    """
    if not layers:
        raise ValueError(
            "`model` must have a layer that lies over the picture (B x C x h x w, or tokens of a grid); got none. "
            "Name one with `layer`, or bring a coarse map of your own."
        )
    # nearly always it is the very last one, and a backward pass through the head is all that is needed
    last = gradients_at(score, layers[-1:], again=True)
    if _reaches(layers[-1], last[0]):
        return layers[-1], last[0], f"the last spatial layer ({_form(layers[-1])})"
    gradients = gradients_at(score, layers, again=again)
    for passed, (layer, gradient) in enumerate(reversed(list(zip(layers, gradients, strict=True)))):
        if _reaches(layer, gradient):
            later = f"{passed} later one has" if passed == 1 else f"{passed} later ones have"
            return layer, gradient, f"the last spatial layer with a gradient ({_form(layer)}; {later} none there)"
    return layers[-1], last[0], f"the last spatial layer ({_form(layers[-1])}); none has a gradient"


def _form(layer: Heard) -> str:
    if layer.grid is None:
        return "no grid"
    form = f"{layer.grid.height} x {layer.grid.width}"
    if layer.grid.layout != "tokens":
        return form
    return f"{form} tokens after {layer.grid.prefix} without a place" if layer.grid.prefix else f"{form} tokens"


def _reaches(layer: Heard, gradient: Tensor | None) -> bool:
    return gradient is not None and layer.grid is not None and bool(layer.grid.arrange(gradient).count_nonzero())


def grid_of(layer: Heard, images: Tensor) -> Grid:
    """The grid of a layer asked for by name: as found, else a plain (B, C, h, w), else an error with the shape."""
    if layer.grid is not None:
        return layer.grid
    shape = layer.output.shape
    if len(shape) == 4 and shape[0] == len(images) and shape[2] * shape[3] > 1:
        return Grid(shape[2], shape[3], "channels first")
    raise ValueError(
        f"`layer` must have an output that lies over the picture; got {layer.name!r} with "
        f"{check.shape(layer.output)} for pictures of {check.shape(images)}. "
        "Choose an earlier layer, or leave it None to have one chosen."
    )
