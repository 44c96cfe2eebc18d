"""What every way of scoring takes and returns."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from usu import _checks as check
from usu.forward import Engine
from usu.forward.fills import Fill, apply, filled, keep_shown
from usu.types import Array


@dataclass(frozen=True)
class Scores:
    """Raw effects (T, P) in float64 on the CPU: one row per target, one column per segment; higher = more important.

    NaN marks a segment that was left out with ``which``. A label without pixels has effect 0.
    """

    values: Tensor
    #: Standard errors of ``values``, where the way of scoring has any.
    stderr: Tensor | None
    #: Pictures passed through the model, reference passes included.
    evaluations: int


@dataclass(frozen=True)
class Scene:
    """A picture, its fill and its segments, ready to be shown in parts."""

    image: Tensor
    filled: Tensor
    segments: Tensor
    #: P: labels are 0 to P - 1.
    count: int

    def show(self, shown: Tensor) -> Tensor:
        """Pictures (n, C, H, W) in which only the segments ``shown`` (n, P) survive."""
        return apply(self.image, self.filled, keep_shown(shown.to(self.segments.device), self.segments))


def scene(engine: Engine, image: Array, segments: Array, fill: Fill) -> Scene:
    """Everything checked, on the model's device."""
    picture = engine.place(image)
    labels, count = label_map(segments)
    if labels.shape != picture.shape[-2:]:
        raise ValueError(
            f"`segments` must have the picture's height and width ({check.shape(picture[0])}); got "
            f"{check.shape(labels)}. Give every pixel one label."
        )
    return Scene(picture, filled(picture, fill), labels.to(picture.device), count)


def label_map(segments: Array, name: str = "segments") -> tuple[Tensor, int]:
    """Labels as int64, and how many there are: the largest plus one."""
    labels = check.any_tensor(name, segments)
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise TypeError(f"`{name}` must hold integer labels; got {labels.dtype}. Convert it, e.g. to int64.")
    labels = labels.long()
    if int(labels.min()) < 0:
        raise ValueError(f"`{name}` must be labelled from 0; got {int(labels.min())}. Relabel them 0, 1, 2, ....")
    return labels, int(labels.max()) + 1


def chosen(which: Array | None, segments: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Indices of the segments to evaluate (asked for and not empty), and (P,) values to start from: NaN or 0."""
    present = torch.bincount(segments.flatten(), minlength=count).cpu() > 0
    if which is None:
        wanted = torch.ones(count, dtype=torch.bool)
    else:
        given = torch.as_tensor(which).cpu().flatten()
        if given.dtype == torch.bool and len(given) == count:
            wanted = given
        elif given.numel() and (given.is_floating_point() or given.dtype == torch.bool):
            raise ValueError(
                f"`which` must be segment labels or {count} booleans; got {len(given)} of {given.dtype}. "
                "List the labels to evaluate."
            )
        elif given.numel() and not 0 <= int(given.min()) <= int(given.max()) < count:
            raise ValueError(
                f"`which` must hold labels from 0 to {count - 1}; got {int(given.min())} to {int(given.max())}. "
                "List labels of the segments passed."
            )
        else:
            wanted = torch.zeros(count, dtype=torch.bool)
            wanted[given.long()] = True
    start = torch.zeros(count, dtype=torch.float64).masked_fill(~wanted, torch.nan)
    return (wanted & present).nonzero().flatten(), start
