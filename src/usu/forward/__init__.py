"""The only room that calls a model for scores: batches, targets, fills, ONNX; the model is left as it was."""

from usu.forward.engine import Engine, Model, Progress, Reference, engine, undisturbed
from usu.forward.onnx import from_onnx
from usu.forward.outputs import Link, Target

__all__ = ["Engine", "Link", "Model", "Progress", "Reference", "Target", "engine", "from_onnx", "undisturbed"]
