"""The words the stages share: arrays and guarantees."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
import torch

NDArray: TypeAlias = np.ndarray[Any, Any]
Array: TypeAlias = NDArray | torch.Tensor
#: "The same library comes out that went in."
ArrayT = TypeVar("ArrayT", NDArray, torch.Tensor)

#: What an upsampler can promise. The auditor measures each of them, the law tests run over whoever declares them.
#:
#: ======  ==========================================================================================
#: D1      every cell keeps its mass
#: D1-G    every cell holds exactly the budget it was given
#: mass    the total is kept
#: D2      inside a cell, a higher score never gets less
#: D3      a score gap has the same effect everywhere on the score scale
#: D4      nothing outside a cell changes anything inside it
#: D4'     nothing outside a cell changes how the cell's budget is shared inside it
#: ======  ==========================================================================================
Guarantee: TypeAlias = Literal["D1", "D1-G", "mass", "D2", "D3", "D4", "D4'"]
GUARANTEES: tuple[Guarantee, ...] = ("D1", "D1-G", "mass", "D2", "D3", "D4", "D4'")
