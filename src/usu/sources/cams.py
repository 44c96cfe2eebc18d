"""Class activation maps at the resolution of their layer, without any normalisation.

One pass serves them all: the layer's activation A and the target's gradient G there, both (B, C, h, w). A method is
its formula of the two.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from usu.sources.coarse_map import CoarseMap, finite, notes_on
from usu.sources.finer import layercams, remember
from usu.sources.formulas import Formula, gradcam_of, hirescam_of, layercam_of
from usu.sources.layers import KEPT, Heard, candidates, choose, find_layer, gradients_at, grid_of, listen
from usu.sources.passes import Goals, Target, checked_pictures, in_chunks, one_each, score_of, with_gradients
from usu.types import Array


def gradcam(
    model: nn.Module,
    images: Array,
    target: Target = None,
    *,
    layer: str | nn.Module | None = None,
    relu: bool = True,
    finer: bool = False,
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
        finer: True also keeps what finer layers say, heard in the same pass (`CoarseMap.finer`).
        chunk: pictures per pass; bounds the memory.

    Guarantees:
        One forward pass per picture, also when the layer is chosen automatically, and a backward pass no further than
        that layer (with ``finer``, than the finest it hears). No scaling: a picture's map does not depend on others.

    >>> model = nn.Sequential(nn.Conv2d(1, 1, 1, bias=False), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    >>> with torch.no_grad(): _ = model[0].weight.fill_(2.0)
    >>> found = gradcam(model, torch.tensor([[[[1.0, 0.0], [0.0, 3.0]]]]))
    >>> found.values.tolist(), found.layer  # A = 2 x, w = 1/4
    ([[[0.5, 0.0], [0.0, 1.5]]], '0')
    """
    return _cam("Grad-CAM", gradcam_of, model, images, target, layer, relu, finer, chunk)


def hirescam(
    model: nn.Module,
    images: Array,
    target: Target = None,
    *,
    layer: str | nn.Module | None = None,
    relu: bool = True,
    finer: bool = False,
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
    return _cam("HiResCAM", hirescam_of, model, images, target, layer, relu, finer, chunk)


def layercam(
    model: nn.Module,
    images: Array,
    target: Target = None,
    *,
    layer: str | nn.Module | None = None,
    relu: bool = True,
    finer: bool = False,
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
    return _cam("LayerCAM", layercam_of, model, images, target, layer, relu, finer, chunk)


def _cam(
    method: str,
    formula: Formula,
    model: nn.Module,
    images: Array,
    target: Target,
    layer: str | nn.Module | None,
    relu: bool,
    finer: bool,
    chunk: int,
) -> CoarseMap:
    pictures = checked_pictures(method, model, images, chunk)
    goals = one_each(target, len(pictures))
    asked = None if layer is None else find_layer(model, layer)
    reason = "asked for"
    maps: list[Tensor] = []
    details: list[tuple[Tensor, ...]] = []
    classes: list[int] = []
    with with_gradients(model, pictures) as home:
        for leaf, wanted in in_chunks(pictures, goals, chunk, home):
            done = _one_pass(formula, model, leaf, wanted, asked, finer)
            if asked is None:  # the other chunks take the same layer
                asked, reason = find_layer(model, done.layer), done.reason
            maps.append(done.map)
            details.append(done.finer)
            classes += done.classes
    values = finite(torch.cat(maps))
    return CoarseMap(
        values=values.relu() if relu else values,
        layer=asked[0] if asked else "",
        reason=reason,
        targets=None if callable(goals) else tuple(classes),
        evaluations=len(pictures),
        notes=notes_on(values, relu=relu),
        finer=tuple(torch.cat(level) for level in zip(*details, strict=True)),
    )


@dataclass(frozen=True, eq=False)
class _Pass:
    map: Tensor
    layer: str
    reason: str
    classes: list[int]
    finer: tuple[Tensor, ...] = ()


def _one_pass(
    formula: Formula, model: nn.Module, leaf: Tensor, goals: Goals, asked: tuple[str, nn.Module] | None, finer: bool
) -> _Pass:
    """Signed maps (B, h, w) of one batch: a forward pass that is listened to, a backward pass to the layer."""
    heard: deque[Heard] = deque(maxlen=KEPT)
    last: dict[tuple[int, int], Heard] = {}

    def tell(one: Heard) -> None:
        if asked is None or one.name == asked[0]:
            heard.append(one)
        if finer:
            remember(one, last)

    modules = dict([asked]) if asked else {}
    modules |= candidates(model) if finer or not asked else {}
    with listen(model, modules, leaf, only_grids=asked is None, tell=tell):
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
        (layers[0], gradients_at(score, layers, again=finer)[0], "asked for")
        if asked
        else choose(layers, score, again=finer)
    )
    grid = grid_of(layer, leaf)
    details = layercams(score, last, grid.height * grid.width) if finer else ()
    activation = grid.arrange(layer.output.detach())
    if gradient is None:  # the target does not look at this layer
        blank = activation.new_zeros(activation.shape[0], *activation.shape[2:])
        return _Pass(blank, layer.name, reason, classes, details)
    return _Pass(formula(activation, grid.arrange(gradient)), layer.name, reason, classes, details)
