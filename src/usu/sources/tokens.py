"""Where the blocks of a vision transformer begin and end, for models that leave out the tokens of hidden patches."""

from __future__ import annotations

import torch
from torch import nn

from usu import _checks as check
from usu.errors import UsuError
from usu.forward import undisturbed
from usu.forward.tokens import TokenDrop
from usu.sources.layers import recorded
from usu.types import Array


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
        even = grid is not None and all(side % n == 0 for side, n in zip(picture.shape[1:], grid.size, strict=True))
        if grid is None or not even:
            raise UsuError(
                f"Tokens are left out of vision transformers only; the blocks of this {type(model).__name__} take no "
                "tokens of equal patches."
            )
        ends = named[blocks[0].name], named[blocks[-1].name]
        made = TokenDrop(model, ends, grid.size, grid.prefix, blocks[0].output.shape[1], len(picture))
        with torch.no_grad():
            made.check(picture)
    return made
