"""What the layers of a model return in one forward pass, and where in the picture their numbers sit.

The graph that autograd keeps tells what depends on the picture, and which patch a token was made of.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from usu import _checks as check
from usu.sources.tracing import trace_tokens

#: Class, distillation and register tokens in front of the patches: at most so many where the patches were seen, and
#: at most one and four where the grid can only be guessed from their number.
_MOST_PREFIX_TOKENS, _MOST_GUESSED = 16, 5
#: Outputs kept while searching. The layer wanted is near the end, and so memory does not grow with depth.
_KEPT = 64
#: Nodes of the graph between the picture, or a convolution, and its tokens: more are no patch embedding.
_EMBEDDING = 100
_WITHOUT_HOOK = (nn.Linear, torch.jit.ScriptModule)


@dataclass(frozen=True)
class LayerGrid:
    """How an output (B, C, h, w), (B, h, w, C) or (B, prefix + h·w + suffix, C) covers the picture."""

    #: (h, w); (l,) of a signal, (d, h, w) of a volume.
    size: tuple[int, ...]
    layout: Literal["channels first", "channels last", "tokens"]
    #: Tokens in front of the patches (class, distillation, registers): they have no place in the picture.
    prefix: int = 0
    #: Tokens behind them (the detection tokens of YOLOS).
    suffix: int = 0

    @property
    def places(self) -> int:
        """How many there are."""
        return prod(self.size)

    def arrange(self, output: Tensor) -> Tensor:
        """The output as (B, C, h, w), without the tokens that have no place."""
        if self.layout == "channels first":
            return output
        if self.layout == "channels last":
            return output.movedim(-1, 1)
        places = output[:, self.prefix : self.prefix + self.places]
        return places.reshape(len(places), *self.size, -1).movedim(-1, 1)

    def __str__(self) -> str:
        form = " x ".join(map(str, self.size)) + " tokens" * (self.layout == "tokens")
        aside = [f"{side} {n}" for side, n in (("after", self.prefix), ("before", self.suffix)) if n]
        return f"{form} {' and '.join(aside)} without a place" if aside else form


def find_grid(
    shape: tuple[int, ...], batch: int, size: tuple[int, ...], patches: Collection[tuple[int, ...]] = (), *,
    guess: bool = True,
) -> LayerGrid | None:  # fmt: skip
    """The grid of a layer's output, or None if it does not lie over the picture.

    A grid must have the picture's aspect (to within rounding) and more than one place. Tokens are tried against
    ``patches``, the grids of convolutions seen before them (a ViT's patch embedding), then against these merged two by
    two (Swin) and, with ``guess``, every grid of square patches; as few prefix tokens as possible win.

    >>> find_grid((1, 7, 7, 768), 1, (224, 224)).layout
    'channels last'
    >>> str(find_grid((1, 197, 768), 1, (224, 224)))
    '14 x 14 tokens after 1 without a place'
    >>> find_grid((1, 12, 197, 64), 1, (224, 224)) is None  # heads x tokens: no picture
    True
    """
    if not shape or shape[0] != batch:
        return None
    if len(shape) == len(size) + 2:
        if _covers(shape[2:], size):
            return LayerGrid(shape[2:], "channels first")
        if len(size) > 1 and _covers(shape[1:-1], size):
            return LayerGrid(shape[1:-1], "channels last")
    return _tokens(shape[1], size, patches, guess) if len(shape) == 3 else None


def _covers(grid: tuple[int, ...], size: tuple[int, ...]) -> bool:
    if prod(grid) <= 1 or any(few > many for few, many in zip(grid, size, strict=True)):
        return False
    if len(size) == 1:
        return True
    # slices and frames are thinned out at a pace of their own
    (h, w), (H, W) = grid[-2:], size[-2:]
    # padding and rounding may cost a row here and there at every stage; heads x tokens is off by far more
    return abs(h - w * H / W) <= 1 + 0.1 * h or abs(w - h * W / H) <= 1 + 0.1 * w


def _tokens(count: int, size: tuple[int, ...], patches: Collection[tuple[int, ...]], guess: bool) -> LayerGrid | None:
    def fitting(grids: Iterable[tuple[int, ...]], most: int) -> list[tuple[int, tuple[int, ...]]]:
        left = [(count - prod(grid), grid) for grid in grids if _covers(grid, size)]
        return [found for found in left if 0 <= found[0] <= most]

    found = fitting(patches, _MOST_PREFIX_TOKENS)
    if not found:
        sides = [side for side in range(1, min(size) + 1) if guess and all(length % side == 0 for length in size)]
        square = [tuple(length // side for length in size) for side in sides]
        # Swin merges patches two by two, and pads an odd row
        merged = [tuple(-(-side // 2**stage) for side in grid) for grid in patches for stage in range(1, 6)]
        found = fitting((*square, *merged), _MOST_GUESSED)
    prefix, grid = min(found, default=(0, None))
    return None if grid is None else LayerGrid(grid, "tokens", prefix)


def tensors_of(output: object) -> list[Tensor]:
    """An output itself, or those in a tuple, a list or a dictionary (a ModelOutput)."""
    values = output.values() if isinstance(output, Mapping) else output if isinstance(output, (tuple, list)) else ()
    return [output] if isinstance(output, Tensor) else [one for one in values if isinstance(one, Tensor)]


def upstream(
    start: Iterable[Any], stop: Collection[Any] = (), only: tuple[str, ...] = ("",), *, rows: bool = False
) -> set[Any]:
    """Nodes of the graph met on the way back from ``start``, not beyond ``stop`` and names that are not in ``only``.

    ``rows``: of a product of matrices only the left one is followed, whose rows are those of the product.
    """
    found: set[Any] = set()
    waiting = list(start)
    while waiting:
        node = waiting.pop()
        if node is None or node in found:
            continue
        found.add(node)
        name = node.name()
        # a convolution of single places is a product of matrices
        product = "Mm" in only and name.startswith("Convolution") and set(node._saved_weight.shape[2:]) <= {1}
        if node not in stop and (product or name.startswith(only)):
            parents = [parent for parent, _ in node.next_functions]
            if rows and name.startswith(("Bmm", "ScaledDot", "Baddbmm")):
                parents = parents[1:2] if name.startswith("Baddbmm") else parents[:1]
            waiting += parents
    return found


class LayerOutput(NamedTuple):
    """One layer's output over the picture."""

    name: str
    output: Tensor
    grid: LayerGrid


@dataclass(eq=False)
class Recording:
    """What the layers of a model returned in one forward pass."""

    #: (B, C, *size), the leaf of the graph.
    images: Tensor
    #: False: the graph does not show what depends on the picture, and shapes alone decide.
    trace: bool = True
    #: What the layer asked for returned last.
    asked: Tensor | None = None
    #: In the order the layers finished, the last ones.
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

    def __post_init__(self) -> None:
        #: What goes into the model: a copy, because a first layer that works in place may not touch a leaf.
        self.entry = self.images.clone()
        self._known: dict[bool, dict[Any, bool]] = {
            rows: {self.entry.grad_fn: True, None: False} for rows in (False, True)
        }
        self._grids: dict[tuple[int, ...], LayerGrid | None] = {}
        self._verdicts: dict[tuple[int, int], tuple[bool, LayerGrid | None]] = {}

    def depends(self, tensor: Tensor, *, rows: bool = False) -> bool:
        """Whether there is a way through the graph from the picture to this tensor.

        With ``rows``, one on which tokens stay themselves. Attention mixes what it looks at into its queries: words,
        object queries or latents that looked at the picture know it and are no places of it.
        """
        node, known = tensor.grad_fn, self._known[rows]
        if node not in known:
            known[node] = any(map(known.get, upstream([node], known, rows=rows)))
        return known[node]

    def grid(self, shape: tuple[int, ...], *, guess: bool = False) -> LayerGrid | None:
        """Where outputs of this shape lie over the picture; None: nowhere.

        Tokens are traced back to the patches they were made of. Where they are mixed before they are first seen, their
        number must be that of a convolution's places; with ``guess``, any number that fits the picture will do.
        """
        key = (*shape, int(guess))
        if key not in self._grids:
            rows = len(shape) == 3 and self.trace and shape[1:] not in self.channels_first
            certain, grid = self._traced((shape[1], shape[2])) if rows else (False, None)
            if grid is None and (guess or not certain):
                size, loose = tuple(self.images.shape[2:]), guess or not self.trace
                grid = find_grid(shape, len(self.images), size, self.patches, guess=loose)
            self._grids[key] = grid
        return self._grids[key]

    def _traced(self, kind: tuple[int, int]) -> tuple[bool, LayerGrid | None]:
        """Whether it is certain where tokens (., N, C) lie, and where. Layers may change their width."""
        if kind not in self.foreign:
            kind = next((one for one in self.tokens if one[0] == kind[0] and one not in self.foreign), kind)
        if kind not in self._verdicts:
            self._verdicts[kind] = self._verdict(kind[0], self.tokens.get(kind), kind in self.foreign)
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
        certain, order = trace_tokens(first, [*sources, self.images])
        return certain or foreign, LayerGrid(order[0], "tokens", *order[1:]) if order else None


@contextmanager
def recorded(
    model: nn.Module, images: Tensor, layer: str | None = None, *, every: bool = True, shapes: bool = False,
    trace: bool = True,
) -> Iterator[Recording]:  # fmt: skip
    """Record the forward pass of ``model(seen.entry)`` made inside; the hooks are gone afterwards.

    Layers with parameters are recorded; activations and poolings only repeat the layer before them. A linear projection
    is left out: inside attention it holds queries, keys and values, not features of places, and its block comes right
    after it. What TorchScript compiled takes no hooks.

    Args:
        layer: keep the output of this layer, whatever it is; None: of all that depend on the picture and lie over it.
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
                kind = (value.shape[1], value.shape[2])
                if kind not in seen.tokens and seen.depends(value):
                    seen.tokens[kind] = value
                elif kind not in seen.tokens:
                    seen.foreign.add(kind)
        if tensor is None:
            return None
        shape = tuple(tensor.shape)
        if len(shape) == dims + 2 and isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Conv3d)):
            seen.patches[shape[2:]] = tensor
            seen.channels_first.add(shape[1:])
        if not tensor.requires_grad:
            return None
        # the layers inside a ModelOutput are recorded themselves
        rebuilt, grid, by_token = isinstance(output, Tensor) or type(output) in (tuple, list), None, False
        candidate = search and rebuilt and len(shape) in (3, dims + 2) and shape[0] == len(images)
        if candidate and (not trace or seen.depends(tensor)):
            grid = seen.grid(shape)
            by_token = trace and grid is not None and grid.layout == "tokens"
            if by_token and not seen.depends(tensor, rows=True):
                grid = None
            if grid is None and len(shape) == 3:
                seen.unplaced[name] = check.shape(tensor)
        if name != layer and grid is None:
            return None
        # a block that returns what its last layer returned shares the copy, unless that was changed in place
        again = tensor is passed_on[0] and tensor._version == 0
        own = passed_on[1] if again and passed_on[1] is not None else tensor
        if name == layer:
            seen.asked = own
        if grid is not None:
            found = LayerOutput(name, own, grid)
            if every and layer is None:
                seen.outputs.append(found)
            if shapes:
                seen.by_shape.pop(shape, None)
                seen.by_shape[shape] = found
            if shapes and by_token:
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
