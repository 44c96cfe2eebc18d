"""Layers of a model: found by name, recorded during one forward pass, chosen by what reaches the target."""

from __future__ import annotations

import difflib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from usu import _checks as check
from usu.sources.grids import LayerGrid, find_grid

#: Outputs kept while searching. The layer wanted is near the end, and so memory does not grow with depth.
_KEPT = 64
_WITHOUT_HOOK = (nn.Linear, torch.jit.ScriptModule)


def find_layer(model: nn.Module, layer: str | nn.Module) -> str:
    """The dotted name of a layer given by that name, or as the module itself."""
    modules: dict[str, nn.Module] = dict(model.named_modules())
    if isinstance(layer, nn.Module):
        for name, module in modules.items():
            if module is layer:
                return name
        raise ValueError(f"`layer` must be part of the model; got a {type(layer).__name__} that is not in it.")
    if not isinstance(layer, str):
        raise TypeError(f"`layer` must be a name or a module; got {type(layer).__name__}.")
    if layer in modules and layer:
        return layer
    names = [name for name in modules if name]
    close = difflib.get_close_matches(layer, names, n=5, cutoff=0.4) or names[-5:]
    raise ValueError(f"`layer` must name a layer of the model; got {layer!r}. Close are: {', '.join(close)}.")


@dataclass(frozen=True, eq=False)
class LayerOutput:
    """One layer's output in one pass."""

    name: str
    output: Tensor


@dataclass(eq=False)
class Recording:
    """What the layers of a model returned in one forward pass."""

    #: (B, C, H, W), the leaf of the graph.
    images: Tensor
    #: In the order the layers finished: the last ones, or those of the layer asked for.
    outputs: deque[LayerOutput] = field(default_factory=lambda: deque(maxlen=_KEPT))
    #: The last output of each shape, in that order.
    by_shape: dict[tuple[int, ...], LayerOutput] = field(default_factory=dict)
    #: Grids (h, w) of what the convolutions returned: a ViT's patch embedding is one of them.
    patches: set[tuple[int, int]] = field(default_factory=set)
    _grids: dict[tuple[int, ...], LayerGrid | None] = field(default_factory=dict)

    def grid(self, shape: tuple[int, ...]) -> LayerGrid | None:
        """Where outputs of this shape lie over the picture; None: nowhere."""
        if shape not in self._grids:
            height, width = self.images.shape[2:]
            self._grids[shape] = find_grid(shape, len(self.images), (height, width), self.patches)
        return self._grids[shape]


@contextmanager
def recorded(
    model: nn.Module, images: Tensor, layer: str | None = None, *, every: bool = True, shapes: bool = False
) -> Iterator[Recording]:
    """Record the forward pass made inside; the hooks are gone afterwards.

    Layers with parameters are recorded. Activations and poolings only repeat the layer before them. A linear projection
    is left out because inside attention it holds queries, keys and values, not features of places; its block comes
    right after it. What TorchScript compiled takes no hooks.

    Args:
        layer: keep the outputs of this layer, whatever it is; None: of all that may lie over the picture.
        every: False keeps none; only `Recording.patches` is filled.
        shapes: also keep the last output of each shape.
    """
    seen = Recording(images)
    passed_on: list[Tensor | None] = [None, None]  # the copy that was handed on last, and what it is a copy of

    def keep(name: str, module: nn.Module, _inputs: object, output: Any) -> Any:
        tensor = first_tensor(output)
        if tensor is None:
            return None
        shape = tuple(tensor.shape)
        if len(shape) == 4 and isinstance(module, nn.Conv2d):
            seen.patches.add((shape[2], shape[3]))
        rebuilt = isinstance(output, Tensor) or type(output) in (tuple, list)
        # the layers inside a ModelOutput are recorded themselves
        spatial = rebuilt and len(shape) in (3, 4) and shape[0] == len(images) and seen.grid(shape) is not None
        wanted = name == layer or (layer is None and every and spatial)
        if not tensor.requires_grad or not (wanted or (shapes and spatial)):
            return None
        # a block that returns what its last layer returned shares the copy, unless that was changed in place
        again = tensor is passed_on[0] and tensor._version == 0
        one = LayerOutput(name, passed_on[1] if again and passed_on[1] is not None else tensor)
        if wanted:
            seen.outputs.append(one)
        if shapes and spatial:
            seen.by_shape.pop(shape, None)
            seen.by_shape[shape] = one
        if again or not rebuilt:
            return None
        # a copy goes on, so that a layer that works in place cannot change what was recorded
        passed_on[:] = tensor.clone(), tensor
        if output is tensor:
            return passed_on[0]
        return type(output)([passed_on[0], *output[1:]]) if output[0] is tensor else None

    handles = [
        module.register_forward_hook(partial(keep, name))
        for name, module in model.named_modules()
        if name == layer or (name and not isinstance(module, _WITHOUT_HOOK) and any(True for _ in module.parameters()))
    ]
    try:
        yield seen
    finally:
        passed_on[:] = None, None
        for handle in handles:
            handle.remove()


def first_tensor(output: object) -> Tensor | None:
    """A layer's tensor: its output, the first of a tuple, or the first in a dictionary (a ModelOutput)."""
    values = output.values() if isinstance(output, Mapping) else output if isinstance(output, (tuple, list)) else ()
    return output if isinstance(output, Tensor) else next((v for v in values if isinstance(v, Tensor)), None)


def gradients_at(score: Tensor, layers: Sequence[LayerOutput], *, again: bool = False) -> tuple[Tensor | None, ...]:
    """d(score) / d(output) of each layer, None where there is no way; the parameters' .grad stays as it is."""
    return torch.autograd.grad(score, [one.output for one in layers], retain_graph=again, allow_unused=True)


@dataclass(frozen=True, eq=False)
class Chosen:
    """A layer's activation and the target's gradient there, (B, C, h, w) each; None where there is no gradient."""

    layer: str
    grid: LayerGrid
    activation: Tensor
    gradient: Tensor | None
    reason: str


def named_layer(seen: Recording, score: Tensor, layer: str, *, again: bool = False) -> Chosen:
    """The layer asked for, as it ran last: its grid as found, else a plain (B, C, h, w)."""
    if not seen.outputs:
        raise ValueError(
            f"`layer` must take part in the forward pass; got {layer!r}, which did not run, or returned no tensor "
            "with a gradient."
        )
    one = seen.outputs[-1]
    shape = tuple(one.output.shape)
    grid = seen.grid(shape)
    if grid is None and len(shape) == 4 and shape[0] == len(seen.images) and shape[2] * shape[3] > 1:
        grid = LayerGrid(shape[2], shape[3], "channels first")
    if grid is None:
        raise ValueError(
            f"`layer` must have an output that lies over the picture; got {layer!r} with {check.shape(one.output)} for "
            f"pictures of {check.shape(seen.images)}. Choose an earlier layer, or leave it None to have one chosen."
        )
    return _arranged(one, grid, gradients_at(score, [one], again=again)[0], "asked for")


def last_layer(seen: Recording, score: Tensor, *, again: bool = False) -> Chosen:
    """The last layer over the picture through which the score can be changed.

    The head of a ViT that reads the class token alone leaves the patches of the last blocks' outputs without gradient;
    then it is the layer before, usually the first norm of the last block.
    """
    layers = [(one, grid) for one in seen.outputs if (grid := seen.grid(tuple(one.output.shape))) is not None]
    if not layers:
        raise ValueError(
            "`model` must have a layer that lies over the picture (B x C x h x w, or tokens of a grid); got none. "
            "Name one with `layer`, or bring a coarse map of your own."
        )
    # nearly always it is the very last one, and a backward pass through the head is all that is needed
    one, grid = layers[-1]
    (slope,) = gradients_at(score, [one], again=True)
    last = _arranged(one, grid, slope, f"the last spatial layer ({grid})")
    if _nonzero(last.gradient):
        return last
    slopes = gradients_at(score, [one for one, _ in layers], again=again)
    for passed, ((one, grid), slope) in enumerate(zip(reversed(layers), reversed(slopes), strict=True)):
        later = f"{passed} later one has" if passed == 1 else f"{passed} later ones have"
        found = _arranged(one, grid, slope, f"the last spatial layer with a gradient ({grid}; {later} none there)")
        if _nonzero(found.gradient):
            return found
    return replace(last, reason=f"{last.reason}; none has a gradient")


def finer_layers(seen: Recording, score: Tensor, cells: int, levels: int, *, again: bool = False) -> list[Chosen]:
    """The last layer of each of the next ``levels`` resolutions above ``cells`` places."""
    last: dict[tuple[int, int], tuple[LayerOutput, LayerGrid]] = {}
    for shape, one in seen.by_shape.items():
        grid = seen.grid(shape)
        if grid is not None and grid.height * grid.width > cells:
            last[grid.height, grid.width] = one, grid
    found = [last[size] for size in sorted(last, key=lambda size: size[0] * size[1])[:levels]]
    if not found or not score.requires_grad:
        return []
    slopes = gradients_at(score, [one for one, _ in found], again=again)
    return [_arranged(one, grid, slope, "") for (one, grid), slope in zip(found, slopes, strict=True)]


def _arranged(one: LayerOutput, grid: LayerGrid, slope: Tensor | None, reason: str) -> Chosen:
    gradient = None if slope is None else grid.arrange(slope)
    return Chosen(one.name, grid, grid.arrange(one.output.detach()), gradient, reason)


def _nonzero(gradient: Tensor | None) -> bool:
    return gradient is not None and bool(gradient.count_nonzero())
