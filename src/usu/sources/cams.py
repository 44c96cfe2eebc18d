"""Class activation maps at the resolution of their layer, without any normalisation.

One pass serves them all: the layer's activation A and the target's gradient G there, both (B, C, h, w). A method is
its formula of the two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor, nn

from usu.sources.asking import Goals, Target, checked_pictures, in_chunks, one_each, score_of, with_gradients
from usu.sources.coarse_map import CoarseMap, finite, notes_on
from usu.sources.layers import candidates, choose, find_layer, gradients_at, grid_of, listen
from usu.types import Array

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
    return _cam("Grad-CAM", gradcam_of, model, images, target, layer, relu, chunk)


def hirescam(
    model: nn.Module,
    images: Array,
    target: Target = None,
    *,
    layer: str | nn.Module | None = None,
    relu: bool = True,
    chunk: int = 16,
) -> CoarseMap:
    """HiResCAM: relu(sum over channels c of G_c · A_c), G_c = d(target) / d(A_c) at every place.

    Arguments and guarantees are those of `gradcam`. Where a layer is followed by a linear head alone, the signed map
    (``relu=False``) adds up to the target up to the head's bias.

    >>> model = nn.Sequential(nn.Conv2d(1, 1, 1, bias=False), nn.Flatten(), nn.Linear(4, 1, bias=False))
    >>> with torch.no_grad(): _ = model[0].weight.fill_(2.0), model[2].weight.copy_(torch.tensor([[1.0, 0, 0, -1]]))
    >>> picture = torch.tensor([[[[1.0, 0.0], [0.0, 3.0]]]])
    >>> hirescam(model, picture, relu=False).values.tolist()  # A = 2 x; Grad-CAM's weight would be their mean, 0
    [[[2.0, 0.0], [0.0, -6.0]]]
    """
    return _cam("HiResCAM", hirescam_of, model, images, target, layer, relu, chunk)


def layercam(
    model: nn.Module,
    images: Array,
    target: Target = None,
    *,
    layer: str | nn.Module | None = None,
    relu: bool = True,
    chunk: int = 16,
) -> CoarseMap:
    """LayerCAM: relu(sum over channels c of relu(G_c) · A_c), G_c = d(target) / d(A_c) at every place.

    Arguments and guarantees are those of `gradcam`. Made for earlier, finer layers: name one with ``layer``.

    >>> model = nn.Sequential(nn.Conv2d(1, 1, 1, bias=False), nn.Flatten(), nn.Linear(4, 1, bias=False))
    >>> with torch.no_grad(): _ = model[0].weight.fill_(2.0), model[2].weight.copy_(torch.tensor([[1.0, 0, 0, -1]]))
    >>> picture = torch.tensor([[[[1.0, 0.0], [0.0, 3.0]]]])
    >>> layercam(model, picture, relu=False).values.tolist()  # what speaks against the target is left out
    [[[2.0, 0.0], [0.0, 0.0]]]
    """
    return _cam("LayerCAM", layercam_of, model, images, target, layer, relu, chunk)


def _cam(
    method: str,
    formula: Formula,
    model: nn.Module,
    images: Array,
    target: Target,
    layer: str | nn.Module | None,
    relu: bool,
    chunk: int,
) -> CoarseMap:
    pictures = checked_pictures(method, model, images, chunk)
    goals = one_each(target, len(pictures))
    asked = None if layer is None else find_layer(model, layer)
    reason = "asked for"
    maps: list[Tensor] = []
    classes: list[int] = []
    with with_gradients(model, pictures) as home:
        for leaf, wanted in in_chunks(pictures, goals, chunk, home):
            done = _one_pass(formula, model, leaf, wanted, asked)
            if asked is None:  # the other chunks take the same layer
                asked, reason = find_layer(model, done.layer), done.reason
            maps.append(done.map)
            classes += done.classes
    values = finite(torch.cat(maps))
    return CoarseMap(
        values=values.relu() if relu else values,
        layer=asked[0] if asked else "",
        reason=reason,
        targets=None if callable(goals) else tuple(classes),
        evaluations=len(pictures),
        notes=notes_on(values, relu=relu),
    )


@dataclass(frozen=True, eq=False)
class _Pass:
    map: Tensor
    layer: str
    reason: str
    classes: list[int]


def _one_pass(
    formula: Formula, model: nn.Module, leaf: Tensor, goals: Goals, asked: tuple[str, nn.Module] | None
) -> _Pass:
    """Signed maps (B, h, w) of one batch: a forward pass that is listened to, a backward pass to the layer."""
    with listen(model, dict([asked]) if asked else candidates(model), leaf, only_grids=asked is None) as heard:
        # a copy goes in, because a first layer that works in place may not touch a leaf
        output = model(leaf.clone())
    score, classes = score_of(output, goals, len(leaf))
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
    return _Pass(formula(activation, grid.arrange(gradient)), layer.name, reason, classes)
