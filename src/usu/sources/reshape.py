"""A layer's tokens as maps over the picture, for tools that take a reshape function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from usu import _checks as check
from usu.forward import undisturbed
from usu.sources.graph import tensors_of
from usu.sources.grids import LayerGrid, find_grid
from usu.sources.layers import recorded
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
        return self.grid(found[0]).arrange(found[0])

    def grid(self, output: Tensor) -> LayerGrid:
        """Where in the picture the output's numbers sit."""
        shape = tuple(output.shape)
        found = find_grid(shape, shape[0] if shape else 0, self.size, self.patches)
        if found is None:
            raise ValueError(
                f"`tokens` must lie over pictures of {self.size[0]} x {self.size[1]}; got {check.shape(output)}. "
                "Choose another layer, or name the pictures' size with `input_size`."
            )
        return found


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
    weights = [weight for weight in [*model.parameters(), *model.buffers()] if weight.is_floating_point()]
    like = weights[0] if weights else torch.zeros(())
    if isinstance(input_size, (Tensor, np.ndarray)):
        given = check.as_tensor("input_size", input_size)
        if given.ndim not in (3, 4):
            raise ValueError(
                f"`input_size` must be (H, W), or images (B,) C x H x W; got an array of {check.shape(given)}."
            )
        example = given.reshape(-1, *given.shape[-3:])[:1].detach()
    else:
        size = _size_of(model) if input_size is None else _checked_size(input_size)
        example = torch.zeros(1, _channels_of(model), *size)
    with undisturbed(model), torch.no_grad(), recorded(model, example, every=False) as seen:
        model(example.to(like))
    return ReshapeTransform((example.shape[2], example.shape[3]), frozenset(seen.patches))


def _checked_size(size: Sequence[int]) -> tuple[int, int]:
    sides = tuple(size) if isinstance(size, Sequence) and not isinstance(size, str) else ()
    if len(sides) != 2:
        raise ValueError(f"`input_size` must be height and width; got {size!r}.")
    height, width = (check.whole_number("input_size", side, least=1) for side in sides)
    return height, width


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


def _channels_of(model: nn.Module) -> int:
    first = next((module for module in model.modules() if isinstance(module, nn.Conv2d)), None)
    return 3 if first is None else first.in_channels
