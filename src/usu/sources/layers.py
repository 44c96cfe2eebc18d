"""Layers of a model: found by name, recorded during one forward pass, chosen by what reaches the target."""

from __future__ import annotations

import difflib
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from usu import _checks as check
from usu.sources.graph import is_embedding, tensors_of, upstream
from usu.sources.grids import LayerGrid, find_grid, trace_tokens

#: Outputs kept while searching. The layer wanted is near the end, and so memory does not grow with depth.
_KEPT = 64
#: Nodes of the graph between the picture, or a convolution, and its tokens: more are no patch embedding.
_EMBEDDING = 100
#: Fewer layers of a kind are no stack of transformer blocks with a middle.
_BLOCKS = 4
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


class LayerOutput(NamedTuple):
    """One layer's output in one pass."""

    name: str
    output: Tensor


@dataclass(eq=False)
class Recording:
    """What the layers of a model returned in one forward pass."""

    #: (B, C, *size), the leaf of the graph.
    images: Tensor
    #: False: the graph does not show what depends on the picture, and shapes alone decide.
    trace: bool = True
    #: In the order the layers finished: the last ones, or those of the layer asked for.
    outputs: deque[LayerOutput] = field(default_factory=lambda: deque(maxlen=_KEPT))
    #: The last output of each shape, in that order.
    by_shape: dict[tuple[int, ...], LayerOutput] = field(default_factory=dict)
    #: Outputs over the picture as tokens, by the parent and the kind of their module: blocks of a transformer together.
    blocks: dict[tuple[str, type], list[LayerOutput]] = field(default_factory=dict)
    #: What the convolutions returned, the last of each grid (h, w): a ViT's patch embedding is one of them.
    patches: dict[tuple[int, ...], Tensor] = field(default_factory=dict)
    #: C and l of what convolutions over signals returned: these are no tokens.
    channels_first: set[tuple[int, ...]] = field(default_factory=set)
    #: The first tensor (., N, C) of each N and C that depends on the picture: there a token may still be one patch.
    tokens: dict[tuple[int, int], Tensor] = field(default_factory=dict)
    #: N and C that were seen before without the picture: words, queries, or the position embedding of a ViT.
    foreign: set[tuple[int, int]] = field(default_factory=set)
    #: Layers that depend on the picture and have tokens without a grid, with their shapes.
    unplaced: dict[str, str] = field(default_factory=dict)
    #: Nodes of the graph that make the model's output, and those that are it but for pointwise steps; `output_nodes`.
    spent: set[Any] = field(default_factory=set)
    nearly: set[Any] = field(default_factory=set)

    def __post_init__(self) -> None:
        #: What goes into the model: a copy, because a first layer that works in place may not touch a leaf.
        self.entry = self.images.clone()
        self._known: dict[bool, set[Any]] = {rows: {self.entry.grad_fn, None} for rows in (False, True)}
        self._dependent: dict[bool, set[Any]] = {rows: {self.entry.grad_fn} - {None} for rows in (False, True)}
        self._grids: dict[tuple[int, ...], LayerGrid | None] = {}
        self._verdicts: dict[tuple[int, int], tuple[bool, LayerGrid | None]] = {}

    def depends(self, tensor: Tensor, *, rows: bool = False) -> bool:
        """Whether there is a way through the graph from the picture to this tensor.

        With ``rows``, one on which tokens stay themselves. Attention mixes what it looks at into its queries: words,
        object queries or latents that looked at the picture know it and are no places of it.
        """
        node, known, dependent = tensor.grad_fn, self._known[rows], self._dependent[rows]
        if node not in known:
            if not dependent.isdisjoint(upstream([node], known, rows=rows)):
                dependent.add(node)
            known.add(node)
        return node in dependent

    def grid(self, shape: tuple[int, ...], *, guess: bool = False) -> LayerGrid | None:
        """Where outputs of this shape lie over the picture; None: nowhere.

        Tokens are traced back to the patches they were made of. Where they are mixed before they are first seen, their
        number must be that of a convolution's places; with ``guess``, any number that fits the picture will do.
        """
        key = (*shape, int(guess))
        if key not in self._grids:
            rows = len(shape) == 3 and self.trace and shape[1:] not in self.channels_first
            certain, grid = self._traced(shape[1], shape[2]) if rows else (False, None)
            if grid is None and (guess or not certain):
                size, loose = tuple(self.images.shape[2:]), guess or not self.trace
                grid = find_grid(shape, len(self.images), size, self.patches, guess=loose)
            self._grids[key] = grid
        return self._grids[key]

    def note_tokens(self, value: Tensor) -> None:
        """Remember the first tokens (., N, C) of their kind."""
        kind = (value.shape[1], value.shape[2])
        if kind not in self.tokens:
            if self.depends(value):
                self.tokens[kind] = value
            else:
                self.foreign.add(kind)

    def _traced(self, count: int, width: int) -> tuple[bool, LayerGrid | None]:
        """Whether it is certain where tokens (., count, width) lie, and where. Layers may change their width."""
        kind = (count, width)
        if kind not in self.foreign:
            kind = next((one for one in self.tokens if one[0] == count and one not in self.foreign), kind)
        if kind not in self._verdicts:
            self._verdicts[kind] = self._verdict(count, self.tokens.get(kind), kind in self.foreign)
        return self._verdicts[kind]

    def _verdict(self, count: int, first: Tensor | None, foreign: bool) -> tuple[bool, LayerGrid | None]:
        if first is None:
            return foreign, None
        # the first is a slice of other tokens: all but the class token, or the detection tokens alone
        node: Any = first.grad_fn
        while node.name().startswith(("Clone", "Alias")):
            node = node.next_functions[0][0]
        if node.name().startswith("Slice") and node._saved_dim == 1 and len(node._saved_self_sym_sizes) == 3:
            sizes, start = node._saved_self_sym_sizes, node._saved_start
            whole = self.grid((len(self.images), sizes[1], sizes[2]))
            if whole is not None:
                start -= 0 if start < sizes[1] else 2**64 - sizes[1]  # counted from the end
                before = whole.prefix - start
                cut = replace(whole, prefix=before, suffix=count - before - whole.places)
                return True, cut if cut.prefix >= 0 <= cut.suffix else None
        # mixed tokens cannot be told apart, and a backward pass through many layers would cost as much as the map
        sources = [one for size, one in self.patches.items() if prod(size) <= count and self.depends(one)]
        ends = {self.entry.grad_fn, *(one.grad_fn for one in sources)}
        if len(upstream([first.grad_fn], ends)) > _EMBEDDING:
            return foreign, None
        certain, grid = trace_tokens(first, [*sources, self.images])
        return certain or foreign, grid


@contextmanager
def recorded(
    model: nn.Module, images: Tensor, layer: str | None = None, *, every: bool = True, shapes: bool = False,
    trace: bool = True,
) -> Iterator[Recording]:  # fmt: skip
    """Record the forward pass of ``model(seen.entry)`` made inside; the hooks are gone afterwards.

    Layers with parameters are recorded. Activations and poolings only repeat the layer before them. A linear projection
    is left out because inside attention it holds queries, keys and values, not features of places; its block comes
    right after it. What TorchScript compiled takes no hooks.

    Args:
        layer: keep the outputs of this layer, whatever it is; None: of all that depend on the picture and lie over it.
        every: False keeps none of them.
        shapes: also keep the last output of each shape.
        trace: as in `Recording`.
    """
    seen, search, dims = Recording(images, trace), shapes or (every and layer is None), images.ndim - 2
    passed_on: list[Tensor | None] = [None, None]  # the copy that was handed on last, and what it is a copy of

    def keep(name: str, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> Any:
        tensor = next(iter(tensors_of(output)), None)
        for value in (*inputs[:1], tensor):
            if isinstance(value, Tensor) and value.ndim == 3:
                seen.note_tokens(value)
        if tensor is None:
            return None
        shape = tuple(tensor.shape)
        if len(shape) == dims + 2 and isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Conv3d)):
            seen.patches[shape[2:]] = tensor
            seen.channels_first.add(shape[1:])
        if not tensor.requires_grad:
            return None
        # the layers inside a ModelOutput are recorded themselves
        rebuilt, spatial, grid = isinstance(output, Tensor) or type(output) in (tuple, list), False, None
        candidate = search and rebuilt and len(shape) in (3, dims + 2) and shape[0] == len(images)
        if candidate and (not trace or seen.depends(tensor)):
            grid = seen.grid(shape)
            spatial = grid is not None
            if grid is not None and trace and grid.layout == "tokens":
                spatial = seen.depends(tensor, rows=True)
            if not spatial and len(shape) == 3:
                seen.unplaced[name] = check.shape(tensor)
        wanted = name == layer or (layer is None and every and spatial)
        if not wanted and not (shapes and spatial):
            return None
        # a block that returns what its last layer returned shares the copy, unless that was changed in place
        again = tensor is passed_on[0] and tensor._version == 0
        found = LayerOutput(name, passed_on[1] if again and passed_on[1] is not None else tensor)
        if wanted:
            seen.outputs.append(found)
        if shapes and spatial:
            seen.by_shape.pop(shape, None)
            seen.by_shape[shape] = found
            if trace and grid is not None and grid.layout == "tokens":
                seen.blocks.setdefault((name.rpartition(".")[0], type(module)), []).append(found)
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
        if name == layer
        or (name and not isinstance(module, _WITHOUT_HOOK) and next(module.parameters(), None) is not None)
    ]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


@dataclass(frozen=True, eq=False)
class Chosen:
    """A layer's activation and the target's gradient there, (B, C, h, w) each; None where there is no gradient."""

    layer: str
    grid: LayerGrid
    activation: Tensor
    gradient: Tensor | None
    reason: str = ""


def named_layer(seen: Recording, score: Tensor, layer: str, *, again: bool = False) -> Chosen:
    """The layer asked for, as it ran last: its grid as found, else a plain (B, C, h, w)."""
    if not seen.outputs:
        raise ValueError(
            f"`layer` must take part in the forward pass; got {layer!r}, which did not run, or returned no tensor "
            "with a gradient."
        )
    one = seen.outputs[-1]
    shape = tuple(one.output.shape)
    grid = seen.grid(shape, guess=True)
    if grid is None and len(shape) == seen.images.ndim and shape[0] == len(seen.images) and prod(shape[2:]) > 1:
        grid = LayerGrid(shape[2:], "channels first")
    if grid is None:
        raise ValueError(
            f"`layer` must have an output that lies over the picture; got {layer!r} with {check.shape(one.output)} for "
            f"pictures of {check.shape(seen.images)}. Choose an earlier layer, or leave it None to have one chosen."
        )
    return replace(_at(score, [(one, grid)], again=again)[0], reason="asked for")


def last_layer(seen: Recording, score: Tensor, *, again: bool = False) -> Chosen:
    """The last layer over the picture through which the score can be changed, and that is not the model's output.

    Of a model whose output lies over the picture, it is one whose places still see each other before the output.
    The head of a ViT that reads the class token alone leaves the patches of the last blocks' outputs without gradient;
    then it is the layer before, usually the first norm of the last block.
    """
    placed = [(one, grid) for one in seen.outputs if (grid := seen.grid(tuple(one.output.shape))) is not None]
    layers = [(one, grid) for one, grid in placed if one.output.grad_fn not in seen.spent]
    spent = ", ".join(one.name for one, _ in placed if one.output.grad_fn in seen.spent)
    if not layers or (seen.unplaced and is_embedding(layers[-1][0].output)):
        lost = ", ".join(f"{name} ({shape})" for name, shape in seen.unplaced.items())
        raise ValueError(
            "`model` must have a layer behind its input embedding and before its output that depends on the picture "
            f"and lies over it (B x C x h x w, or tokens of its patches); got {lost or spent or 'none'}. "
            "Name one with `layer`, or bring a coarse map of your own."
        )
    aside = f"; not {spent}, which the target reads" if spent else ""
    near = [one for one, _ in layers if one.output.grad_fn in seen.nearly]
    deeper = [(one, grid) for one, grid in layers if one.output.grad_fn not in seen.nearly]
    if near and (not deeper or is_embedding(deeper[-1][0].output)):
        # nothing but the input embedding is left: the first of the others is the furthest from the output
        deeper += [(one, grid) for one, grid in layers if one is near[0]]
        near = near[1:]
    if near:
        aside += f", nor {', '.join(one.name for one in near)}, from which only pointwise steps lead there"
    layers = deeper
    # nearly always it is the very last one, and a backward pass through the head is all that is needed
    (last,) = _at(score, layers[-1:], again=True)
    if _nonzero(last.gradient):
        return replace(last, reason=f"the last spatial layer ({last.grid}{aside})")
    for passed, found in enumerate(reversed(_at(score, layers, again=again))):
        if _nonzero(found.gradient):
            later = f"{passed} later one has" if passed == 1 else f"{passed} later ones have"
            reason = f"the last spatial layer with a gradient ({found.grid}; {later} none there{aside})"
            return replace(found, reason=reason)
    return replace(last, reason=f"the last spatial layer ({last.grid}{aside}); none has a gradient")


def finer_layers(seen: Recording, score: Tensor, cells: int, levels: int, *, again: bool = False) -> list[Chosen]:
    """The last layer of each of the next ``levels`` resolutions above ``cells`` places.

    The tokens of a transformer keep their resolution. There the middle one of its blocks is heard instead: what it
    knows of a place has not yet been shared with all the others.
    """
    last: dict[tuple[int, ...], tuple[LayerOutput, LayerGrid]] = {}
    for shape, one in seen.by_shape.items():
        grid = seen.grid(shape)
        if grid is not None and grid.places > cells and one.output.grad_fn not in seen.nearly:
            last[grid.size] = one, grid
    found = [last[size] for size in sorted(last, key=prod)[:levels]]
    blocks = max(seen.blocks.values(), key=len, default=[])
    if not found and len(blocks) >= _BLOCKS:
        middle = blocks[(len(blocks) - 1) // 2]
        grid = seen.grid(tuple(middle.output.shape))
        found = [(middle, grid)] if grid is not None and grid.places >= cells else []
    return _at(score, found, again=again) if found and score.requires_grad else []


def _at(score: Tensor, layers: Sequence[tuple[LayerOutput, LayerGrid]], *, again: bool) -> list[Chosen]:
    """Each layer with d(score) / d(output); the parameters' .grad stays as it is."""
    slopes = torch.autograd.grad(score, [one.output for one, _ in layers], retain_graph=again, allow_unused=True)
    return [
        Chosen(one.name, grid, grid.arrange(one.output.detach()), None if slope is None else grid.arrange(slope))
        for (one, grid), slope in zip(layers, slopes, strict=True)
    ]


def _nonzero(gradient: Tensor | None) -> bool:
    return gradient is not None and bool(gradient.count_nonzero())
