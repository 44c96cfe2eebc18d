"""Coarse maps: where the mass comes from that is later redistributed."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from usu.sources.cams import (  # noqa: I001 (the names of a file in one line)
        CoarseMap, attention_rollout, coarse_map, gradcam, gradient_attention, hirescam, layercam,
    )  # fmt: skip
    from usu.sources.tokens import ReshapeTransform, reshape_transform, token_drop

__all__ = [
    "LAYER_SOURCES", "SOURCES", "CoarseMap", "ReshapeTransform", "attention_rollout", "coarse_map", "gradcam",
    "gradient_attention", "hirescam", "layercam", "reshape_transform", "token_drop",
]  # fmt: skip

#: Those that look at one layer.
LAYER_SOURCES: tuple[str, ...] = ("gradcam", "hirescam", "layercam")
SOURCES: tuple[str, ...] = (*LAYER_SOURCES, "attention_rollout", "gradient_attention")

#: Names that are not in `cams.py`, by the file they come from; all are loaded when they are first asked for.
_FROM = {"ReshapeTransform": "tokens", "reshape_transform": "tokens", "token_drop": "tokens"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"usu.sources.{_FROM.get(name, 'cams')}"), name)
    return found
