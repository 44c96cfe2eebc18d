"""Coarse maps: where the mass comes from that is later redistributed."""

from usu.sources.gradcam import CoarseMap, gradcam

__all__ = ["CoarseMap", "gradcam"]
