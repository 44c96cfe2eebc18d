"""A transformer's tokens: as maps over the picture, and left out where the picture is hidden."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from usu import _checks as check
from usu.errors import UsuError
from usu.forward import undisturbed
from usu.forward.tokens import TokenDrop
from usu.sources.recording import find_grid, recorded, tensors_of
from usu.types import Array


@dataclass(frozen=True)
class ReshapeTransform:
    """A layer's output, tokens or channels last, as (B, D, h, w). Made by `reshape_transform`."""

    #: Of the pictures it was made for.
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

    Tokens without a place are left out; Swin's (B, h, w, D) and the maps of a CNN are understood. The grid is that of
    the patch embedding, which is seen at work on one blank picture.

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
        grid = blocks[0].grid if blocks else None
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
