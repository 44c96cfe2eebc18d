"""The only room that calls a model for scores: batches, targets, fills, ONNX; the model is left as it was."""

from usu.forward.engine import Engine, Meter, Model, Progress, Reference, engine
from usu.forward.onnx import from_onnx
from usu.forward.outputs import Link, Target
from usu.forward.undisturbed import undisturbed

__all__ = ["Engine", "Link", "Meter", "Model", "Progress", "Reference", "Target", "engine", "from_onnx", "undisturbed"]
