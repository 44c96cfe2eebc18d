"""Coarse maps: where the mass comes from that is later redistributed."""

from __future__ import annotations

from torch import nn

from usu import _checks as check
from usu.sources.attention import attention_rollout, gradient_attention
from usu.sources.cams import gradcam, hirescam, layercam
from usu.sources.coarse_map import CoarseMap, Target
from usu.sources.reshape import ReshapeTransform, reshape_transform
from usu.types import Array

__all__ = [
    "LAYER_SOURCES",
    "SOURCES",
    "CoarseMap",
    "ReshapeTransform",
    "attention_rollout",
    "coarse_map",
    "gradcam",
    "gradient_attention",
    "hirescam",
    "layercam",
    "reshape_transform",
]

_OF_A_LAYER = {"gradcam": gradcam, "hirescam": hirescam, "layercam": layercam}
_OF_ALL_LAYERS = {"attention_rollout": attention_rollout, "gradient_attention": gradient_attention}
SOURCES: tuple[str, ...] = (*_OF_A_LAYER, *_OF_ALL_LAYERS)
#: Those that look at one layer.
LAYER_SOURCES: tuple[str, ...] = tuple(_OF_A_LAYER)


def coarse_map(
    source: str,
    model: nn.Module,
    images: Array,
    target: Target = None,
    *,
    layer: str | nn.Module | None = None,
    finer: bool = False,
) -> CoarseMap:
    """The coarse map of the source with this name, one of ``SOURCES``; ``finer`` as in `usu.gradcam`.

    >>> import torch
    >>> model = nn.Sequential(nn.Conv2d(1, 1, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    >>> coarse_map("layercam", model, torch.ones(1, 1, 2, 2)).layer
    '0'
    """
    check.choice("source", source, SOURCES)
    if source in _OF_A_LAYER:
        return _OF_A_LAYER[source](model, images, target, layer=layer, finer=finer)
    if layer is not None:
        raise ValueError(f"`layer` must be None for {source}, which goes through all layers; got {layer!r}.")
    return _OF_ALL_LAYERS[source](model, images, target)
