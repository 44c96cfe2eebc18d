"""Coarse maps: where the mass comes from that is later redistributed."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from usu.sources.attention import attention_rollout as attention_rollout
    from usu.sources.attention import gradient_attention as gradient_attention
    from usu.sources.cams import coarse_map as coarse_map
    from usu.sources.cams import gradcam as gradcam
    from usu.sources.cams import hirescam as hirescam
    from usu.sources.cams import layercam as layercam
    from usu.sources.coarse import CoarseMap as CoarseMap
    from usu.sources.reshape import ReshapeTransform as ReshapeTransform
    from usu.sources.reshape import reshape_transform as reshape_transform

#: Those that look at one layer.
LAYER_SOURCES: tuple[str, ...] = ("gradcam", "hirescam", "layercam")
SOURCES: tuple[str, ...] = (*LAYER_SOURCES, "attention_rollout", "gradient_attention")

#: The names by the file they come from, loaded when they are first asked for.
_FROM = {
    "attention": "attention_rollout gradient_attention",
    "cams": "coarse_map gradcam hirescam layercam",
    "coarse": "CoarseMap",
    "reshape": "ReshapeTransform reshape_transform",
}
__all__ = ["LAYER_SOURCES", "SOURCES", *sorted(" ".join(_FROM.values()).split())]


def __getattr__(name: str) -> Any:
    for file, names in _FROM.items():
        if name in names.split():
            found = globals()[name] = getattr(import_module(f"usu.sources.{file}"), name)
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
