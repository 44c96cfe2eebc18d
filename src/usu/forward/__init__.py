"""The only room that calls a model for scores: batches, targets, fills, ONNX; the model is left as it was."""

from typing import TYPE_CHECKING, Any

from usu.forward.calls import Link, Target, undisturbed
from usu.forward.engine import Engine, Meter, Model, Progress, Reference, engine

if TYPE_CHECKING:
    from usu.forward.onnx import from_onnx as from_onnx

__all__ = ["Engine", "Link", "Meter", "Model", "Progress", "Reference", "Target", "engine", "from_onnx", "undisturbed"]


def __getattr__(name: str) -> Any:
    if name != "from_onnx":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from usu.forward.onnx import from_onnx

    return from_onnx
