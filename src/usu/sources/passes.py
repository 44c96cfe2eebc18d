"""What every source does with a model: pictures in, the explained value out, and the model as it was found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from usu import _checks as check
from usu.forward import undisturbed
from usu.forward.outputs import checked_target, logits_of
from usu.types import Array

#: A class for all pictures, one class per picture, a function of the raw output giving (B,), or None: each top class.
Target: TypeAlias = int | Sequence[int] | Callable[[Any], Tensor] | None
#: The same with one class per picture.
Goals: TypeAlias = tuple[int, ...] | Callable[[Any], Tensor] | None


def checked_pictures(method: str, model: object, images: Array, chunk: int) -> Tensor:
    """(B, C, H, W), asked of a model that has gradients."""
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"`model` must be an nn.Module, because {method} needs gradients; got {type(model).__name__}. "
            "For other models bring a coarse map of your own."
        )
    pictures = check.as_tensor("images", images)
    if pictures.ndim != 4:
        raise ValueError(
            f"`images` must be a batch, B x C x H x W; got {check.shape(pictures)}. Add a dimension with [None]."
        )
    if isinstance(chunk, bool) or not isinstance(chunk, int) or chunk < 1:
        raise ValueError(f"`chunk` must be a whole number of at least 1; got {chunk!r}. Leave it at 16 if in doubt.")
    return pictures


def one_each(target: Target, batch: int) -> Goals:
    """One class per picture."""
    goals = checked_target(target)
    if not isinstance(goals, tuple):
        return goals
    if len(goals) not in (1, batch):
        raise ValueError(
            f"`target` must be one class, or one per picture ({batch}); got {len(goals)}. "
            "For several targets of one picture call this once for each."
        )
    return goals * batch if len(goals) == 1 else goals


@contextmanager
def with_gradients(model: nn.Module, pictures: Tensor) -> Iterator[torch.device]:
    """Gradients on, the model undisturbed; tells where the pictures must go.

    A caller's no_grad() or inference_mode() must not reach in here.
    """
    home = next((parameter.device for parameter in model.parameters()), pictures.device)
    with undisturbed(model), torch.inference_mode(False), torch.enable_grad():
        yield home


def in_chunks(pictures: Tensor, goals: Goals, chunk: int, home: torch.device) -> Iterator[tuple[Tensor, Goals]]:
    """Leaves of the graph, at most ``chunk`` pictures each, with what is asked about them."""
    for start in range(0, len(pictures), chunk):
        part = slice(start, start + chunk)
        leaf = pictures[part].detach().to(home).clone().requires_grad_()
        yield leaf, goals[part] if isinstance(goals, tuple) else goals


def score_of(output: object, goals: Goals, batch: int) -> tuple[Tensor, list[int]]:
    """The sum over pictures of the value explained in each, and the classes. The pictures do not see each other."""
    classes: list[int] = []
    if callable(goals):
        values = goals(output)
        if not isinstance(values, Tensor) or values.numel() != batch or values.shape[:1] != (batch,):
            got = check.shape(values) if isinstance(values, Tensor) else type(values).__name__
            raise ValueError(
                f"`target` must return one number per picture; got {got} for {batch} pictures. "
                "Keep the first dimension of the batch."
            )
    else:
        logits = logits_of(output)
        classes = list(goals) if goals is not None else logits.argmax(1).tolist()
        if max(classes) >= logits.shape[1]:
            raise ValueError(
                f"`target` must be a class index from 0 to {logits.shape[1] - 1}, because the model has "
                f"{logits.shape[1]} classes; got {max(classes)}. Look the index up in the model's list of classes."
            )
        values = logits[range(batch), classes]
    if not values.requires_grad:
        raise ValueError(
            "`model` must be differentiable from input to target; got a value without a gradient. "
            "Remove no_grad() or detach() on the way, or bring a coarse map of your own."
        )
    return values.sum(), classes
