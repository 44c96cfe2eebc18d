"""The grids of layers: where in the picture their numbers sit, channels first, channels last, or tokens in a row."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

import torch
from torch import Tensor

#: Class, distillation and register tokens in front of the patches: at most so many where the patches were seen, and
#: at most one and four where the grid can only be guessed from their number.
_MOST_PREFIX_TOKENS, _MOST_GUESSED = 16, 5


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
    two (Swin) and, with ``guess``, every grid of square patches that fills the picture, each with as few prefix tokens
    as possible.

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
    if len(shape) == 3:
        return _tokens(shape[1], size, patches, guess)
    return None


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
        square = [
            tuple(side // patch for side in size)
            for patch in range(1, min(size) + 1)
            if guess and all(side % patch == 0 for side in size)
        ]
        # Swin merges patches two by two, and pads an odd row
        merged = [tuple(-(-side // 2**stage) for side in grid) for grid in patches for stage in range(1, 6)]
        found = fitting((*square, *merged), _MOST_GUESSED)
    if not found:
        return None
    prefix, grid = min(found)
    return LayerGrid(grid, "tokens", prefix)


def trace_tokens(tokens: Tensor, sources: Sequence[Tensor]) -> tuple[bool, LayerGrid | None]:
    """The grid of tokens (B, N, C) that are each made of one patch of a source (B, c, *size), seen in their gradients.

    The gradient of Σ_j k_j <r, T_j> at a place is k_j · d<r, T_j>: its ratio to that with all k_j = 1 says which token
    the place belongs to. The numbers of the tokens go in as digits from 0 to 3, which leave room for the rounding of
    bfloat16.

    Returns:
        Whether each place belongs to one token, and the grid, None if the tokens are not in the order of a picture.

    >>> picture = torch.randn(1, 3, 4, 8, requires_grad=True)
    >>> patches = torch.nn.functional.avg_pool2d(picture, 2).flatten(2).mT
    >>> _, grid = trace_tokens(torch.cat([torch.zeros(1, 1, 3), patches, torch.zeros(1, 5, 3)], 1), [picture])
    >>> str(grid)
    '2 x 4 tokens after 1 and before 5 without a place'
    """
    count, width = tokens.shape[1:]
    direction = torch.randn(width, generator=torch.Generator().manual_seed(0)).to(tokens)
    numbers = torch.arange(count, device=tokens.device)
    digits = max(1, -(-(count - 1).bit_length() // 2))
    codes = [torch.ones_like(numbers), *(numbers // 4**k % 4 for k in range(digits))]
    slopes = [
        torch.autograd.grad(
            tokens, sources, (code[:, None] * direction).expand_as(tokens), retain_graph=True, allow_unused=True
        )
        for code in codes
    ]
    for plain, *coded in zip(*slopes, strict=True):
        index = None if plain is None else _token_of_each_place(plain, coded)
        if index is not None:
            return True, _in_order(index, count)
    return False, None


def _token_of_each_place(plain: Tensor, coded: Sequence[Tensor]) -> Tensor | None:
    """(*size), without a margin that no token sees; None where places are shared."""
    plain = plain.double()
    weight = plain.square().sum((0, 1))
    index = torch.zeros_like(weight)
    for k, slope in enumerate(coded):
        digit = ((slope.double() * plain).sum((0, 1)) / weight).nan_to_num().round()
        if bool(((slope.double() - digit * plain).square().sum((0, 1)) > 0.01 * weight).any()):
            return None
        index += digit * 4**k
    there = weight > 0
    for axis in range(weight.ndim):
        along = there.movedim(axis, 0).reshape(there.shape[axis], -1).any(1).nonzero().flatten()
        there, index = there.index_select(axis, along), index.index_select(axis, along)
    return index.long() if there.numel() and bool(there.all()) else None


def _in_order(index: Tensor, count: int) -> LayerGrid | None:
    first = int(index.flatten()[0])
    size: list[int] = []
    expected, stride = torch.full_like(index, first), 1
    for axis in reversed(range(index.ndim)):  # the last dimension runs fastest
        along = (index.movedim(axis, 0).reshape(index.shape[axis], -1)[:, 0] - first) // stride
        steps = along.diff()
        if bool(((steps != 0) & (steps != 1)).any()):
            return None
        expected += stride * along.reshape(-1, *[1] * (index.ndim - axis - 1))
        size.insert(0, int(along[-1]) + 1)
        stride *= max(size[0], 1)
    if not torch.equal(index, expected) or prod(size) <= 1:
        return None
    return LayerGrid(tuple(size), "tokens", first, count - first - prod(size))
