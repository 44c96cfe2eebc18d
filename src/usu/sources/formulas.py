"""What a method makes of a layer: functions of its activation A and the target's gradient G, both (B, C, h, w)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

#: (activation, gradient), each (B, C, h, w), to signed maps (B, h, w).
Formula: TypeAlias = Callable[[Tensor, Tensor], Tensor]


def gradcam_of(activation: Tensor, gradient: Tensor) -> Tensor:
    """A channel counts by its mean gradient: Σ_c mean(G_c) · A_c."""
    return torch.einsum("bc,bchw->bhw", gradient.mean((2, 3)), activation)


def hirescam_of(activation: Tensor, gradient: Tensor) -> Tensor:
    """Every place counts by its own gradient: Σ_c G_c · A_c."""
    return (gradient * activation).sum(1)


def layercam_of(activation: Tensor, gradient: Tensor) -> Tensor:
    """Every place counts by its own gradient, where that is positive: Σ_c relu(G_c) · A_c."""
    return (gradient.relu() * activation).sum(1)


#: By the names of the methods.
FORMULAS: dict[str, Formula] = {"gradcam": gradcam_of, "hirescam": hirescam_of, "layercam": layercam_of}
