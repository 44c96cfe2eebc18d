"""Where in the picture a layer's numbers sit: channels first, channels last, or tokens in a row."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

#: Class, distillation and register tokens in front of the patches: at most so many where the patches were seen, and
#: at most one and four where the grid can only be guessed from their number.
_MOST_PREFIX_TOKENS, _MOST_GUESSED = 16, 5


@dataclass(frozen=True)
class LayerGrid:
    """How an output (B, C, h, w), (B, h, w, C) or (B, prefix + h·w, C) covers the picture."""

    height: int
    width: int
    layout: Literal["channels first", "channels last", "tokens"]
    #: Tokens in front of the patches (class, distillation, registers): they have no place in the picture.
    prefix: int = 0

    def arrange(self, output: Tensor) -> Tensor:
        """The output as (B, C, h, w), without the tokens that have no place."""
        if self.layout == "channels first":
            return output
        if self.layout == "channels last":
            return output.movedim(-1, 1)
        places = output[:, self.prefix :]
        return places.reshape(len(places), self.height, self.width, -1).movedim(-1, 1)

    def __str__(self) -> str:
        form = f"{self.height} x {self.width}" + " tokens" * (self.layout == "tokens")
        return f"{form} after {self.prefix} without a place" if self.prefix else form


def find_grid(
    shape: tuple[int, ...], batch: int, size: tuple[int, int], patches: Collection[tuple[int, int]] = ()
) -> LayerGrid | None:
    """The grid of a layer's output, or None if it does not lie over the picture.

    A grid must have the picture's aspect (to within rounding) and more than one place. Tokens are tried against
    ``patches``, the grids of convolutions seen before them (a ViT's patch embedding), then against these merged two by
    two (Swin) and every grid of square patches that fills the picture, each with as few prefix tokens as possible.

    >>> str(find_grid((1, 512, 7, 7), 1, (224, 224)))
    '7 x 7'
    >>> find_grid((1, 7, 7, 768), 1, (224, 224)).layout
    'channels last'
    >>> str(find_grid((1, 197, 768), 1, (224, 224)))
    '14 x 14 tokens after 1 without a place'
    >>> find_grid((1, 12, 197, 64), 1, (224, 224)) is None  # heads x tokens: no picture
    True
    """
    if not shape or shape[0] != batch:
        return None
    if len(shape) == 4:
        if _covers(shape[2], shape[3], size):
            return LayerGrid(shape[2], shape[3], "channels first")
        if _covers(shape[1], shape[2], size):
            return LayerGrid(shape[1], shape[2], "channels last")
    if len(shape) == 3:
        return _tokens(shape[1], size, patches)
    return None


def _covers(h: int, w: int, size: tuple[int, int]) -> bool:
    H, W = size
    if h * w <= 1 or h > H or w > W:
        return False
    # padding and rounding may cost a row here and there at every stage; heads x tokens is off by far more
    return abs(h - w * H / W) <= 1 + 0.1 * h or abs(w - h * W / H) <= 1 + 0.1 * w


def _tokens(count: int, size: tuple[int, int], patches: Collection[tuple[int, int]]) -> LayerGrid | None:
    H, W = size
    seen = [(count - h * w, h, w) for h, w in patches if _covers(h, w, size)]
    fitting = [found for found in seen if 0 <= found[0] <= _MOST_PREFIX_TOKENS]
    if not fitting:
        square = [
            (H // patch, W // patch)
            for patch in range(1, min(H, W) + 1)
            if H % patch == 0 == W % patch and patch**2 < H * W
        ]
        # Swin merges patches two by two, and pads an odd row
        merged = [(-(-h // 2**stage), -(-w // 2**stage)) for h, w in patches for stage in range(1, 6)]
        guessed = [(h, w) for h, w in (*square, *merged) if _covers(h, w, size)]
        fitting = [(count - h * w, h, w) for h, w in guessed if 0 <= count - h * w <= _MOST_GUESSED]
    if not fitting:
        return None
    prefix, h, w = min(fitting)
    return LayerGrid(h, w, "tokens", prefix)
