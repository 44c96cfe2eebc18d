"""Grad-CAM at the resolution of its layer, without any normalisation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from usu import _checks as check
from usu.forward import undisturbed
from usu.readout import checked_target, logits_of
from usu.sources.layers import candidates, choose, find_layer, gradients_at, grid_of, listen
from usu.types import Array

#: A class for all pictures, one class per picture, a function of the raw output giving (B,), or None: each top class.
Target: TypeAlias = int | Sequence[int] | Callable[[Any], Tensor] | None
_Goals: TypeAlias = tuple[int, ...] | Callable[[Any], Tensor] | None


@dataclass(frozen=True, eq=False)
class CoarseMap:
    """A coarse attribution with its provenance."""

    #: (B, h, w), at the layer's own resolution and in its own units.
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


def gradcam(
    model: nn.Module,
    images: Array,
    target: Target = None,
    *,
    layer: str | nn.Module | None = None,
    relu: bool = True,
    chunk: int = 16,
) -> CoarseMap:
    """Grad-CAM: relu(sum over channels c of w_c · A_c), w_c = mean over places of d(target) / d(A_c).

    Args:
        model: an ``nn.Module``; left exactly as it was found.
        images: (B, C, H, W), as the model takes them.
        target: class index, one per picture, a callable on the raw output giving one number per picture, or None for
            each picture's top class.
        layer: dotted name or module; None takes the last spatial layer with a gradient.
        relu: False keeps the negative evidence.
        chunk: pictures per pass; bounds the memory.

    Guarantees:
        One forward pass per picture, also when the layer is chosen automatically, and a backward pass no further than
        that layer. No scaling: the map of a picture does not depend on the others.

    >>> model = nn.Sequential(nn.Conv2d(1, 1, 1, bias=False), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    >>> with torch.no_grad(): _ = model[0].weight.fill_(2.0)
    >>> found = gradcam(model, torch.tensor([[[[1.0, 0.0], [0.0, 3.0]]]]))
    >>> found.values.tolist(), found.layer  # A = 2 x, w = 1/4
    ([[[0.5, 0.0], [0.0, 1.5]]], '0')
    """
    pictures = _checked(model, images, chunk)
    goals = _one_each(checked_target(target), len(pictures))
    asked = None if layer is None else find_layer(model, layer)
    reason = "asked for"
    home = next((parameter.device for parameter in model.parameters()), pictures.device)
    maps: list[Tensor] = []
    classes: list[int] = []
    # a caller's no_grad() or inference_mode() must not reach in here
    with undisturbed(model, home), torch.inference_mode(False), torch.enable_grad():
        for start in range(0, len(pictures), chunk):
            part = slice(start, start + chunk)
            leaf = pictures[part].detach().to(home).clone().requires_grad_()
            done = _one_pass(model, leaf, goals[part] if isinstance(goals, tuple) else goals, asked)
            if asked is None:
                asked, reason = find_layer(model, done.layer), done.reason
            maps.append(done.map)
            classes += done.classes
    values = torch.cat(maps)
    if not bool(values.isfinite().all()):
        raise ValueError(
            "`model` must have finite activations and gradients at the layer; got NaN or infinity. "
            "Check the scaling of `images` and the model's weights."
        )
    return CoarseMap(
        values=values.relu() if relu else values,
        layer=asked[0] if asked else "",
        reason=reason,
        targets=None if callable(goals) else tuple(classes),
        evaluations=len(pictures),
        notes=_notes(values, relu=relu),
    )


@dataclass(frozen=True, eq=False)
class _Pass:
    map: Tensor
    layer: str
    reason: str
    classes: list[int]


def _one_pass(model: nn.Module, leaf: Tensor, goals: _Goals, asked: tuple[str, nn.Module] | None) -> _Pass:
    """Signed maps (B, h, w) of one batch: a forward pass that is listened to, a backward pass to the layer."""
    with listen(model, dict([asked]) if asked else candidates(model), leaf, only_grids=asked is None) as heard:
        # a copy goes in, because a first layer that works in place may not touch a leaf
        output = model(leaf.clone())
    score, classes = _score(output, goals, len(leaf))
    if asked and not heard:
        raise ValueError(
            f"`layer` must take part in the forward pass; got {asked[0]!r}, which did not run, or returned no tensor "
            "with a gradient. Choose another one."
        )
    layers = [heard[-1]] if asked else list(heard)
    layer, gradient, reason = (
        (layers[0], gradients_at(score, layers)[0], "asked for") if asked else choose(layers, score)
    )
    grid = grid_of(layer, leaf)
    activation = grid.arrange(layer.output.detach())
    if gradient is None:  # the target does not look at this layer
        return _Pass(activation.new_zeros(activation.shape[0], *activation.shape[2:]), layer.name, reason, classes)
    weights = grid.arrange(gradient).mean((2, 3))
    return _Pass(torch.einsum("bc,bchw->bhw", weights, activation), layer.name, reason, classes)


def _score(output: object, goals: _Goals, batch: int) -> tuple[Tensor, list[int]]:
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


def _checked(model: object, images: Array, chunk: int) -> Tensor:
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"`model` must be an nn.Module, because Grad-CAM needs gradients; got {type(model).__name__}. "
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


def _one_each(goals: _Goals, batch: int) -> _Goals:
    """One class per picture."""
    if not isinstance(goals, tuple):
        return goals
    if len(goals) not in (1, batch):
        raise ValueError(
            f"`target` must be one class, or one per picture ({batch}); got {len(goals)}. "
            "For several targets of one picture call this once for each."
        )
    return goals * batch if len(goals) == 1 else goals


def _notes(signed: Tensor, *, relu: bool) -> tuple[str, ...]:
    """What is odd about the maps, one sentence per kind."""
    flat = signed.flatten(1)
    zero = (flat == 0).all(1)
    against = (flat <= 0).all(1) & ~zero
    shown = "so the rectified map is zero. See it with relu=False" if relu else "the map has no positive value"
    notes = []
    for found, text in (
        (zero, "the map is zero everywhere: the target does not depend on this layer here. Try another layer."),
        (against, f"the layer holds only evidence against the target, {shown}."),
    ):
        if bool(found.any()):
            which = ", ".join(str(i) for i in found.nonzero().flatten().tolist())
            notes.append(f"Picture {which}: {text}" if len(signed) > 1 else text[0].upper() + text[1:])
    return tuple(notes)
