"""Targets: pytorch-grad-cam's see one picture's output, ours see a batch's."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor

from usu import _checks as check


def one_each(targets: Any, count: int) -> list[Any] | None:
    """One callable per picture: the package stops silently at the shorter of targets and pictures."""
    if targets is None:
        return None
    if not isinstance(targets, (list, tuple)):
        raise TypeError(
            f"`targets` must be a list with one target per picture, or None; got {type(targets).__name__}. Put it "
            "in a list."
        )
    if len(targets) != count:
        raise ValueError(
            f"`targets` must have one entry per picture ({count}); got {len(targets)}. For one target of all pictures "
            "repeat it, [target] * len(input_tensor)."
        )
    of_class = import_module("pytorch_grad_cam.utils.model_targets").ClassifierOutputTarget
    made = [of_class(int(t)) if isinstance(t, (int, np.integer)) and not isinstance(t, bool) else t for t in targets]
    for target in made:
        if not callable(target):
            raise TypeError(
                f"`targets` must be callables on one picture's output, or class indices; got {type(target).__name__}. "
                "Use e.g. ClassifierOutputTarget(281)."
            )
    return made


def for_scoring(target: Any) -> int | Callable[[Any], Tensor]:
    """The package's target, which sees one picture's output, as one of ours, which sees a batch's."""
    model_targets = import_module("pytorch_grad_cam.utils.model_targets")
    category = target.category if type(target) is model_targets.ClassifierOutputTarget else None
    if isinstance(category, (int, np.integer)) and category >= 0:
        return int(category)

    def rows(output: Any) -> Tensor:
        values = [torch.as_tensor(target(row)) for row in output]
        for value in values:
            if value.numel() != 1:
                raise ValueError(
                    f"`targets` must each return one number for one picture; got {check.shape(value)} from "
                    f"{type(target).__name__}. Sum it up, or name a class."
                )
        return torch.stack([value.reshape(()) for value in values])

    rows.__name__ = getattr(target, "__name__", type(target).__name__)
    return rows
