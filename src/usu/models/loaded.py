"""A model that is ready to be asked about pictures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from torch import Tensor

from usu.models.preparation import Geometry
from usu.types import NDArray

#: Pixels (H, W, 3), uint8 or float in [0, 1], to the model's input (C, h, w) and where that sits in the picture.
Prepare: TypeAlias = Callable[[NDArray], tuple[Tensor, Geometry]]


@dataclass(frozen=True, eq=False)
class Loaded:
    """A model in evaluation mode with all that is needed to use it."""

    name: str
    #: An ``nn.Module``, or a callable without gradients (ONNX): then a coarse map has to come from elsewhere.
    model: Callable[[Tensor], Any]
    prepare: Prepare
    #: Class names in the order of the output; None if unknown.
    classes: tuple[str, ...] | None = None
    #: The layer to take coarse maps from; None has it chosen.
    layer: str | None = None
