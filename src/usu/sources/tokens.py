"""A transformer's tokens: as maps over the picture, left out where they are hidden, traced back to their patches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from usu import _checks as check
from usu.errors import UsuError
from usu.forward import undisturbed
from usu.forward.tokens import TokenDrop
from usu.sources.recording import LayerGrid, find_grid, recorded, tensors_of
from usu.types import Array


@dataclass(frozen=True)
class ReshapeTransform:
    """A layer's output, tokens or channels last, as (B, D, h, w). Made by `reshape_transform`."""

    #: Height and width of the pictures it was made for.
    size: tuple[int, int]
    #: Sizes of what the model's convolutions returned; the patch embedding is among them.
    patches: frozenset[tuple[int, ...]]

    def __call__(self, tokens: Any) -> Tensor:
        """(B, N, D), (B, h, w, D) or (B, D, h, w) as (B, D, h, w), without the tokens that have no place."""
        found = tensors_of(tokens)
        if not found:
            raise TypeError(f"`tokens` must be a layer's output; got {type(tokens).__name__}.")
        shape = tuple(found[0].shape)
        grid = find_grid(shape, shape[0] if shape else 0, self.size, self.patches)
        if grid is None:
            raise ValueError(
                f"`tokens` must lie over pictures of {self.size[0]} x {self.size[1]}; got {check.shape(found[0])}. "
                "Choose another layer, or name the pictures' size with `input_size`."
            )
        return grid.arrange(found[0])


def reshape_transform(model: nn.Module, input_size: Sequence[int] | Array | None = None) -> ReshapeTransform:
    """The function that pytorch-grad-cam asks for as ``reshape_transform``: tokens (B, N, D) to (B, D, h, w).

    Class, distillation and register tokens are left out; Swin's (B, h, w, D) and (B, N, D) and the maps of a CNN are
    understood. The grid is that of the patch embedding, which is seen at work on one blank picture.

    Args:
        model: the model whose layers will be looked at; left exactly as it was found.
        input_size: (H, W) of the pictures, or a batch of them as an example; None asks the model (timm, transformers
            and torchvision know theirs). Not necessarily square.

    Guarantees:
        Values are moved, never changed; one forward pass here, none later.

    >>> model = nn.Sequential(nn.Conv2d(3, 8, 16, stride=16), nn.Flatten(2))
    >>> to_maps = reshape_transform(model, (32, 64))
    >>> to_maps(torch.zeros(1, 1 + 2 * 4, 8)).shape  # one token has no place
    torch.Size([1, 8, 2, 4])
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"`model` must be an nn.Module; got {type(model).__name__}.")
    weights = (weight for weight in (*model.parameters(), *model.buffers()) if weight.is_floating_point())
    like = next(weights, torch.zeros(()))
    if isinstance(input_size, (Tensor, np.ndarray)):
        given = check.as_tensor("input_size", input_size)
        if given.ndim not in (3, 4):
            raise ValueError(
                f"`input_size` must be (H, W), or images (B,) C x H x W; got an array of {check.shape(given)}."
            )
        example = given.reshape(-1, *given.shape[-3:])[:1].detach()
    else:
        sides = _size_of(model) if input_size is None else input_size
        if not isinstance(sides, Sequence) or isinstance(sides, str) or len(sides) != 2:
            raise ValueError(f"`input_size` must be height and width; got {input_size!r}.")
        size = [check.whole_number("input_size", side, least=1) for side in sides]
        channels = (module.in_channels for module in model.modules() if isinstance(module, nn.Conv2d))
        example = torch.zeros(1, next(channels, 3), *size)
    with undisturbed(model), torch.no_grad(), recorded(model, example, every=False) as seen:
        model(example.to(like))
    return ReshapeTransform((example.shape[2], example.shape[3]), frozenset(seen.patches))


def _size_of(model: nn.Module) -> tuple[int, int]:
    """What timm, transformers and torchvision write down about their models."""
    settings = getattr(model, "pretrained_cfg", None) or getattr(model, "default_cfg", None)
    told = (
        getattr(getattr(model, "patch_embed", None), "img_size", None),
        getattr(getattr(model, "config", None), "image_size", None),
        getattr(model, "image_size", None),
        settings["input_size"][-2:] if isinstance(settings, Mapping) and settings.get("input_size") else None,
    )
    for size in told:
        if isinstance(size, int):
            return size, size
        if isinstance(size, Sequence) and len(size) == 2:
            return int(size[0]), int(size[1])
    raise ValueError(
        f"`input_size` must be given where the model does not tell; got None for a {type(model).__name__}. "
        "Pass (H, W), or a batch of pictures as an example."
    )


def token_drop(model: object, image: Array) -> TokenDrop:
    """The same vision transformer, told by one more channel which patches are hidden: their tokens are left out.

    With `usu.fills.Drop` as the fill, scores are made this way: `usu.explain` and `usu.upsample` call this themselves.

    Args:
        model: of timm, transformers, torchvision or your own; left exactly as it was found.
        image: (C, H, W), as the model takes it: the first pass shows its blocks, and four to six more pictures that
            leaving out is the same as masking in attention.

    Raises:
        UsuError: if the model is no vision transformer, or leaving tokens out is not the same there.

    >>> token_drop(nn.Conv2d(3, 1, 2), torch.zeros(3, 8, 8))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    usu.errors.UsuError: Tokens are left out of vision transformers only; the blocks of this Conv2d take no ...
    """
    if not isinstance(model, nn.Module):
        raise UsuError(f"Tokens are left out of an nn.Module only; this is a {type(model).__name__}.")
    picture = check.as_tensor("image", image).detach()
    with undisturbed(model), torch.inference_mode(False):
        with torch.enable_grad(), recorded(model, picture[None].clone().requires_grad_(), shapes=True) as seen:
            model(seen.entry)
        named = dict(model.named_modules())
        # blocks are several of a kind, one after the other, and hold more weights than what is inside them
        found = [blocks for blocks in seen.blocks.values() if len(blocks) > 1]
        sizes = [sum(weight.numel() for one in blocks for weight in named[one.name].parameters()) for blocks in found]
        blocks = found[sizes.index(max(sizes))] if found else []
        grid = seen.grid(tuple(blocks[0].output.shape)) if blocks else None
        if grid is None or any(side % n for side, n in zip(picture.shape[1:], grid.size, strict=True)):
            raise UsuError(
                f"Tokens are left out of vision transformers only; the blocks of this {type(model).__name__} take no "
                "tokens of equal patches."
            )
        ends = named[blocks[0].name], named[blocks[-1].name]
        made = TokenDrop(model, ends, grid.size, grid.prefix, blocks[0].output.shape[1], len(picture))
        with torch.no_grad():
            made.check(picture)
    return made


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
