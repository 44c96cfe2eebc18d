"""What every source takes and returns: images and targets in, a coarse map with its provenance out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from usu import _checks as check
from usu.forward import undisturbed
from usu.forward.calls import checked_target, convolution_dims, logits_of, read
from usu.types import Array

#: A class for all pictures, one class per picture, a function of the raw output giving (B,), or None: each top class.
Target: TypeAlias = int | Sequence[int] | Callable[[Any], Tensor] | None
#: The same with one class per picture.
Targets: TypeAlias = tuple[int, ...] | Callable[[Any], Tensor] | None


class Goal(NamedTuple):
    """A class that is explained in one picture."""

    number: int
    #: None where the model's output is no N x classes tensor.
    probability: float | None = None
    #: How many classes the model finds likelier.
    likelier: int = 0


@dataclass(frozen=True, eq=False)
class CoarseMap:
    """A coarse attribution with its provenance."""

    #: (B, h, w), at the layer's own resolution and in its own units; (B, l) of signals, (B, d, h, w) of volumes.
    values: Tensor
    layer: str
    #: Why this layer.
    reason: str
    #: The class explained in each picture; None where the target was a callable.
    targets: tuple[int, ...] | None
    #: Forward passes counted in pictures; each came with a backward pass.
    evaluations: int
    #: What a person should know before believing the map.
    notes: tuple[str, ...] = ()
    #: Maps of finer layers from the same pass, (B, h', w') each, the next finer first; empty unless asked for.
    finer: tuple[Tensor, ...] = ()
    #: (B, h, w), before negative evidence was cut off; None where the source has none, or the map came from elsewhere.
    signed: Tensor | None = None
    #: The class explained in each picture, as the same pass saw it; empty where the target was a callable.
    goals: tuple[Goal, ...] = ()

    @property
    def probabilities(self) -> tuple[float | None, ...]:
        """Of the class explained in each picture; None where the model's output is no N x classes tensor."""
        return tuple(goal.probability for goal in self.goals)

    @property
    def empty(self) -> tuple[bool, ...]:
        """For each picture, whether its map is zero everywhere."""
        return tuple((self.values.flatten(1) == 0).all(1).tolist())

    @property
    def only_negative(self) -> tuple[bool, ...]:
        """For each picture, whether there is evidence against the target and none for it."""
        flat = (self.values if self.signed is None else self.signed).flatten(1)
        return tuple(((flat <= 0).all(1) & (flat < 0).any(1)).tolist())


def finite(values: Tensor) -> Tensor:
    """The maps themselves, if all of their values are finite."""
    if not bool(values.isfinite().all()):
        raise ValueError(
            "`model` must have finite activations and gradients at the layer; got NaN or infinity. "
            "Check the scaling of `images` and the model's weights."
        )
    return values


def notes_on(found: CoarseMap, *, relu: bool, several: bool = False) -> tuple[str, ...]:
    """What is odd about the maps, one sentence per kind; ``several``: they are classes of one picture."""
    names = found.targets if several and found.targets else range(len(found.values))
    against = found.only_negative
    zero = [empty and not negative for empty, negative in zip(found.empty, against, strict=True)]
    shown = "so the rectified map is zero. See it in `signed`" if relu else "the map has no positive value"
    notes = []
    for flags, text in (
        (zero, "the map is zero everywhere: the target does not depend on this layer here. Try another layer."),
        (against, f"the layer holds only evidence against the target, {shown}."),
    ):
        if any(flags):
            which = ", ".join(str(name) for name, flag in zip(names, flags, strict=True) if flag)
            notes.append(
                f"{'Class' if several else 'Picture'} {which}: {text}" if len(flags) > 1 else text[0].upper() + text[1:]
            )
    return tuple(notes)


_BATCHES = ("signals, B x C x L", "pictures, B x C x H x W", "volumes, B x C x D x H x W")


def checked(
    method: str, model: object, images: Array, target: Target, chunk: int, *, several: bool = False
) -> tuple[Tensor, Targets]:
    """Images (B, C, *size) for a model that has gradients, and one class per picture; or several of a single one."""
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"`model` must be an nn.Module, because {method} needs gradients; got {type(model).__name__}. "
            "For other models bring a coarse map of your own."
        )
    batch = check.as_tensor("images", images)
    dims = convolution_dims(model)
    if not 3 <= batch.ndim <= 5 or batch.ndim - 1 == dims:
        form, more = _BATCHES[(dims or 2) - 1], " Add a dimension with [None]." if batch.ndim - 1 == dims else ""
        raise ValueError(f"`images` must be a batch of {form}; got {check.shape(batch)}.{more}")
    check.whole_number("chunk", chunk, least=1)
    targets = checked_target(target)
    if not isinstance(targets, tuple) or (several and len(batch) == 1):
        return batch, targets
    if len(targets) not in (1, len(batch)):
        raise ValueError(
            f"`target` must be one class, or one per picture ({len(batch)}); got {len(targets)}. "
            "For several targets of one picture hand in one picture at a time."
        )
    return batch, targets * len(batch) if len(targets) == 1 else targets


@contextmanager
def chunks(
    model: nn.Module, images: Tensor, targets: Targets, chunk: int
) -> Iterator[Iterator[tuple[Tensor, Targets]]]:
    """Leaves of the graph, at most ``chunk`` images each, with their targets; the model is undisturbed meanwhile.

    A caller's no_grad() or inference_mode() has no effect in here.
    """
    home = next((parameter.device for parameter in model.parameters()), images.device)

    def each() -> Iterator[tuple[Tensor, Targets]]:
        for start in range(0, len(images), chunk):
            part = slice(start, start + chunk)
            leaf = images[part].detach().to(home).clone().requires_grad_()
            yield leaf, targets[part] if isinstance(targets, tuple) else targets

    with undisturbed(model), torch.inference_mode(False), torch.enable_grad():
        yield each()


def score_of(output: object, targets: Targets, batch: int) -> tuple[Tensor, list[Goal]]:
    """The sum over pictures of the value explained in each, and the classes. The pictures do not affect each other."""
    goals: list[Goal] = []
    if callable(targets):
        values = read(output, targets, "logit", batch)
        if values.shape[1] != 1:
            raise ValueError(
                f"`target` must return one number per picture; got {check.shape(values)} for {batch} pictures."
            )
    else:
        classes = list(targets) if targets is not None else logits_of(output).argmax(1).tolist()
        values = read(output, tuple(classes), "logit", batch).diagonal()
        goals = _goals(logits_of(output), classes)
    if not values.requires_grad:
        raise ValueError(
            "`model` must be differentiable from input to target; got a value without a gradient. "
            "Remove no_grad() or detach() on the way, or bring a coarse map of your own."
        )
    return values.sum(), goals


def _goals(logits: Tensor, classes: list[int]) -> list[Goal]:
    """The classes with their probabilities, where there is more than one to choose from."""
    if logits.shape[1] < 2:
        return [Goal(index) for index in classes]
    rows = logits.detach().double()
    # some models end in a softmax of their own
    unit = bool((rows >= 0).all()) and bool(((rows.sum(1) - 1).abs() < 1e-2).all())
    own = rows.gather(1, torch.tensor(classes, device=rows.device)[:, None])
    chances = own if unit else (own - rows.logsumexp(1, keepdim=True)).exp()
    likelier = (rows > own).sum(1)
    return [Goal(*found) for found in zip(classes, chances.flatten().tolist(), likelier.tolist(), strict=True)]
