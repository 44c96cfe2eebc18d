"""Coarse maps: where the mass comes from that is later redistributed."""

from usu.sources.attention import attention_rollout, gradient_attention
from usu.sources.by_name import LAYER_SOURCES, SOURCES, coarse_map
from usu.sources.cams import gradcam, hirescam, layercam
from usu.sources.coarse_map import CoarseMap
from usu.sources.reshape import ReshapeTransform, reshape_transform

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
