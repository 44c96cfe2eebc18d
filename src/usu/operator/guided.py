"""The guided filter: a map made to follow the picture's edges."""

from __future__ import annotations

import torch
from torch import Tensor

from usu.types import NDArray
from usu.upsamplers.filters import guided_filter

_RADII_PER_SIDE = 28


def follow_picture(scores: Tensor, picture: NDArray, *, stretch: bool = True) -> Tensor:
    """Scores (T, H, W) whose edges are the picture's: a guided filter, and each field back to [0, 1].

    ``stretch``: by min-max; False only cuts off what the filter brought beyond.

    Segments cut where they must; inside of one, pixels that look like an important neighbour are more important.

    >>> picture = torch.tensor([[0.0, 1.0, 1.0, 1.0]])[..., None].expand(1, 4, 3).numpy()
    >>> follow_picture(torch.tensor([[[0.0, 0.0, 1.0, 1.0]]]).double(), picture).round(decimals=1).tolist()
    [[[0.0, 0.5, 0.9, 1.0]]]
    """
    flat = scores.flatten(1)
    constant = flat.amin(1) == flat.amax(1)
    if bool(constant.all()):
        return scores
    radius = max(1, round(min(scores.shape[-2:]) / _RADII_PER_SIDE))
    smooth = guided_filter(scores, picture, radius=radius).flatten(1)
    if not stretch:
        return smooth.clamp(0, 1).reshape(scores.shape)
    low, high = smooth.amin(1, keepdim=True), smooth.amax(1, keepdim=True)
    found = (smooth - low) / (high - low)
    return torch.where(constant[:, None], flat, found).reshape(scores.shape)
