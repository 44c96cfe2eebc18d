"""Which patch of the picture each token was made of, seen in gradients."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TypeAlias

import torch
from torch import Tensor

#: The grid (h, w), the number of tokens in front of it, and of those behind it.
Order: TypeAlias = tuple[tuple[int, ...], int, int]


def trace_tokens(tokens: Tensor, sources: Sequence[Tensor]) -> tuple[bool, Order | None]:
    """Whether each place of a source (B, c, *size) belongs to one token of (B, N, C), and the order of the tokens.

    The gradient of Σ_j k_j <r, T_j> at a place is k_j · d<r, T_j>: its ratio to that with all k_j = 1 says which token
    the place belongs to. The numbers k go in as digits from 0 to 3, which leave room for the rounding of bfloat16. The
    order is None if it is not that of a picture.

    >>> picture = torch.randn(1, 3, 4, 8, requires_grad=True)
    >>> patches = torch.nn.functional.avg_pool2d(picture, 2).flatten(2).mT
    >>> trace_tokens(torch.cat([torch.zeros(1, 1, 3), patches, torch.zeros(1, 5, 3)], 1), [picture])
    (True, ((2, 4), 1, 5))
    """
    count, width = tokens.shape[1:]
    direction = torch.randn(width, generator=torch.Generator().manual_seed(0)).to(tokens)
    numbers = torch.arange(count, device=tokens.device)
    digits = max(1, -(-(count - 1).bit_length() // 2))
    codes = [torch.ones_like(numbers), *(numbers // 4**k % 4 for k in range(digits))]
    weighted = [(code[:, None] * direction).expand_as(tokens) for code in codes]
    slopes = [torch.autograd.grad(tokens, sources, one, retain_graph=True, allow_unused=True) for one in weighted]
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


def _in_order(index: Tensor, count: int) -> Order | None:
    first = int(index.flatten()[0])
    size: list[int] = []
    expected, stride = torch.full_like(index, first), 1
    for axis in reversed(range(index.ndim)):  # the last dimension runs fastest
        line = index.movedim(axis, 0).reshape(index.shape[axis], -1)[:, 0]
        along = torch.cat([torch.zeros_like(line[:1]), line.diff().ne(0).cumsum(0)])  # which token of this axis
        expected += stride * along.reshape(-1, *[1] * (index.ndim - axis - 1))
        size.insert(0, int(along[-1]) + 1)
        stride *= size[0]
    if not torch.equal(index, expected) or prod(size) <= 1:
        return None
    return tuple(size), first, count - first - prod(size)
