"""Class activation maps at the resolution of their layer, without any normalisation.

One pass serves them all: the layer's activation A and the target's gradient G there, both (B, C, h, w); (B, C, l) of
signals, (B, C, d, h, w) of volumes. A method is its formula of the two.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import gcd
from typing import TypeAlias

import torch
from torch import Tensor, nn

from usu import _checks as check
from usu.forward.calls import logits_of
from usu.sources import LAYER_SOURCES, SOURCES
from usu.sources.coarse import CoarseMap, Goal, Target, Targets, checked, chunks, finite, notes_on, score_of
from usu.sources.graph import output_nodes
from usu.sources.layers import Chosen, find_layer, finer_layers, last_layer, named_layer, recorded
from usu.types import Array

#: (activation, gradient), each (B, C, h, w), to signed maps (B, h, w).
Formula: TypeAlias = Callable[[Tensor, Tensor], Tensor]
#: Resolutions beyond the coarse map's own that are looked at. A second one makes the backward pass longer.
LEVELS = 1


def gradcam_of(activation: Tensor, gradient: Tensor) -> Tensor:
    """A channel counts by its mean gradient: Σ_c mean(G_c) · A_c."""
    return torch.einsum("bc,bc...->b...", gradient.flatten(2).mean(2), activation)


def hirescam_of(activation: Tensor, gradient: Tensor) -> Tensor:
    """Every place counts by its own gradient: Σ_c G_c · A_c."""
    return (gradient * activation).sum(1)


def layercam_of(activation: Tensor, gradient: Tensor) -> Tensor:
    """Every place counts by its own gradient, where that is positive: Σ_c relu(G_c) · A_c."""
    return (gradient.relu() * activation).sum(1)


def gradcam(
    model: nn.Module, images: Array, target: Target = None, *, top: int | None = None,
    layer: str | nn.Module | None = None, relu: bool = True, finer: bool = False, chunk: int = 16,
) -> CoarseMap:  # fmt: skip
    """Grad-CAM: relu(sum over channels c of w_c · A_c), w_c = mean over places of d(target) / d(A_c).

    Args:
        model: an ``nn.Module``; left exactly as it was found.
        images: (B, C, H, W), as the model takes them; signals are (B, C, L), volumes and videos (B, C, D, H, W).
        target: class index, one per picture, several of a single picture, a callable on the raw output giving one
            number per picture, or None for each picture's top class.
        top: the so many likeliest classes of a single picture instead. Several classes have a map each, from one
            forward pass.
        layer: dotted name or module; None takes the last one that depends on the picture, lies over it, has a gradient
            and is not the output that the target reads.
        relu: False keeps the negative evidence.
        finer: True also keeps maps of finer layers, from the same pass (`CoarseMap.finer`).
        chunk: pictures per pass; bounds the memory.

    Guarantees:
        One forward pass per picture, also when the layer is chosen automatically, and a backward pass no further than
        that layer (with ``finer``, than the finest of those). Two more, counted, for the first chunk where the graph
        is cut between picture and target. No scaling: a picture's map does not depend on others.

    >>> model = nn.Sequential(nn.Conv2d(1, 1, 1, bias=False), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    >>> with torch.no_grad(): _ = model[0].weight.fill_(2.0)
    >>> found = gradcam(model, torch.tensor([[[[1.0, 0.0], [0.0, 3.0]]]]))
    >>> found.values.tolist(), found.layer  # A = 2 x, w = 1/4
    ([[[0.5, 0.0], [0.0, 1.5]]], '0')
    """
    return _cam("Grad-CAM", gradcam_of, model, images, target, top, layer, relu, finer, chunk)


def hirescam(
    model: nn.Module, images: Array, target: Target = None, *, top: int | None = None,
    layer: str | nn.Module | None = None, relu: bool = True, finer: bool = False, chunk: int = 16,
) -> CoarseMap:  # fmt: skip
    """HiResCAM: relu(sum over channels c of G_c · A_c), G_c = d(target) / d(A_c) at every place.

    Arguments and guarantees are those of `gradcam`. Where a layer is followed by a linear head alone, the signed map
    (``relu=False``) adds up to the target up to the head's bias.

    >>> model = nn.Sequential(nn.Conv2d(1, 1, 1, bias=False), nn.Flatten(), nn.Linear(4, 1, bias=False))
    >>> with torch.no_grad(): _ = model[0].weight.fill_(2.0), model[2].weight.copy_(torch.tensor([[1.0, 0, 0, -1]]))
    >>> picture = torch.tensor([[[[1.0, 0.0], [0.0, 3.0]]]])
    >>> hirescam(model, picture, relu=False).values.tolist()  # A = 2 x; Grad-CAM's weight would be their mean, 0
    [[[2.0, 0.0], [0.0, -6.0]]]
    """
    return _cam("HiResCAM", hirescam_of, model, images, target, top, layer, relu, finer, chunk)


def layercam(
    model: nn.Module, images: Array, target: Target = None, *, top: int | None = None,
    layer: str | nn.Module | None = None, relu: bool = True, finer: bool = False, chunk: int = 16,
) -> CoarseMap:  # fmt: skip
    """LayerCAM: relu(sum over channels c of relu(G_c) · A_c), G_c = d(target) / d(A_c) at every place.

    Arguments and guarantees are those of `gradcam`. Made for earlier, finer layers: name one with ``layer``.

    >>> model = nn.Sequential(nn.Conv1d(1, 1, 1, bias=False), nn.Flatten(), nn.Linear(2, 1, bias=False))
    >>> with torch.no_grad(): _ = model[0].weight.fill_(2.0), model[2].weight.copy_(torch.tensor([[1.0, -1.0]]))
    >>> layercam(model, torch.tensor([[[1.0, 3.0]]]), relu=False).values.tolist()  # what speaks against is left out
    [[2.0, 0.0]]
    """
    return _cam("LayerCAM", layercam_of, model, images, target, top, layer, relu, finer, chunk)


def coarse_map(
    source: str, model: nn.Module, images: Array, target: Target = None, *, top: int | None = None,
    layer: str | nn.Module | None = None, finer: bool = False,
) -> CoarseMap:  # fmt: skip
    """The coarse map of the source with this name, one of ``SOURCES``; ``top`` and ``finer`` as in `usu.gradcam`."""
    if source in LAYER_SOURCES:
        of_a_layer = {"gradcam": gradcam, "hirescam": hirescam, "layercam": layercam}
        return of_a_layer[source](model, images, target, top=top, layer=layer, finer=finer)
    check.choice("source", source, SOURCES)
    if layer is not None:
        raise ValueError(f"`layer` must be None for {source}, which goes through all layers; got {layer!r}.")
    if top is not None:
        raise ValueError(f"`top` must be None for {source}; got {top}. Name the classes with `target`.")
    from usu.sources.attention import attention_rollout, gradient_attention

    return (attention_rollout if source == "attention_rollout" else gradient_attention)(model, images, target)


def _cam(
    method: str, formula: Formula, model: nn.Module, images: Array, target: Target, top: int | None,
    layer: str | nn.Module | None, relu: bool, finer: bool, chunk: int,
) -> CoarseMap:  # fmt: skip
    batch, targets = checked(method, model, images, target, chunk, several=True)
    if top is not None:
        check.whole_number("top", top, least=1)
        if target is not None or len(batch) != 1:
            raise ValueError("`top` must go with a single picture and without `target`; got more.")
    several = top is not None or (isinstance(targets, tuple) and len(targets) > len(batch))
    name = None if layer is None else find_layer(model, layer)
    reason, evaluations = "", 0
    maps: list[Tensor] = []
    details: list[list[Tensor]] = []
    goals: list[Goal] = []
    with chunks(model, batch, targets, chunk) as parts:
        for leaf, wanted in parts:
            # the classes of one picture together; all chunks take the same layer
            for found, own, finest, passes in _one_pass(model, leaf, targets if several else wanted, top, name, finer):
                name, reason = found.layer, reason or found.reason
                maps.append(_map(formula, found))
                details.append(finest)
                goals += own
                evaluations += passes
    signed = finite(torch.cat(maps))
    made = CoarseMap(
        values=signed.relu() if relu else signed,
        layer=name or "",
        reason=reason,
        targets=None if callable(targets) else tuple(goal.number for goal in goals),
        evaluations=evaluations,
        finer=tuple(torch.cat(level) for level in zip(*details, strict=True)),
        signed=signed,
        goals=tuple(goals),
    )
    return replace(made, notes=notes_on(made, relu=relu, several=several))


def _one_pass(
    model: nn.Module, leaf: Tensor, targets: Targets, top: int | None, layer: str | None, finer: bool
) -> Iterator[tuple[Chosen, list[Goal], list[Tensor], int]]:
    """The layer, the classes, LayerCAMs of finer layers, and the forward passes: one, as a rule, and none for further
    classes of the same picture."""
    with recorded(model, leaf, layer, shapes=finer) as seen:
        output = model(seen.entry)
    scores = _scores(output, targets, top, len(leaf))
    passes = 1
    if layer is None and not seen.depends(scores[0][0]):
        # something cuts the graph, such as no_grad() around a backbone: a changed picture shows what depends on it
        with recorded(model, leaf, shapes=finer, trace=False) as seen:
            output = model(seen.entry)
        scores = _scores(output, targets, top, len(leaf))
        noise = torch.randn(leaf.shape, generator=torch.Generator().manual_seed(0)).to(leaf)
        with recorded(model, leaf + noise, shapes=finer, trace=False) as other:
            model(other.entry)
        pairs = zip(seen.outputs, other.outputs, strict=True)
        seen.outputs = deque(one for one, two in pairs if not torch.equal(one.output, two.output))
        for shape, one in list(seen.by_shape.items()):
            if torch.equal(one.output, other.by_shape[shape].output):
                del seen.by_shape[shape]
        passes = 3
    if callable(targets):
        seen.spent, seen.nearly = output_nodes(output, scores[0][0])
    found: Chosen | None = None
    for number, (score, goals) in enumerate(scores):
        again = number + 1 < len(scores)
        if found is not None:  # every class at the layer of the first
            seen.outputs = deque(one for one in seen.outputs if one.name == found.layer)
            found = replace(named_layer(seen, score, found.layer, again=finer or again), grid=found.grid)
        elif layer is None:
            found = last_layer(seen, score, again=finer or again)
        else:
            found = named_layer(seen, score, layer, again=finer or again)
        details = finer_layercams(finer_layers(seen, score, found.grid.places, LEVELS, again=again)) if finer else []
        yield found, goals, details, 0 if number else passes * len(leaf)


def _scores(output: object, targets: Targets, top: int | None, batch: int) -> list[tuple[Tensor, list[Goal]]]:
    """The score of all pictures together, or of each class of a single one."""
    if top is not None:
        logits = logits_of(output)
        targets = tuple(logits[0].topk(check.whole_number("top", top, least=1, most=logits.shape[1])).indices.tolist())
    if isinstance(targets, tuple) and len(targets) > batch:
        return [score_of(output, (index,), batch) for index in targets]
    return [score_of(output, targets, batch)]


def finer_layercams(layers: list[Chosen]) -> list[Tensor]:
    """LayerCAM (B, h, w) of each, in float64 on the CPU; zero where the target does not depend on it."""
    known = [replace(one, gradient=everywhere(one.gradient)) for one in layers]
    return [finite(_map(layercam_of, one)).relu().double().cpu() for one in known]


def everywhere(gradient: Tensor | None) -> Tensor | None:
    """A gradient (B, C, h, w) that is also known where the next layer does not look.

    Where a stage begins with a 1 x 1 convolution of stride 2, as in He's ResNet, three of four places before it are
    never read: their gradient is exactly zero, and a map of it is a pattern of dots. With the picture half a cell aside
    they would be the ones that are read, so there the gradient is taken from between its neighbours.

    >>> everywhere(torch.tensor([[[2.0, 0.0, 4.0, 0.0]]])).tolist()
    [[[2.0, 3.0, 4.0, 4.0]]]
    """
    if gradient is None:
        return None
    filled = gradient
    for dim in range(2, gradient.ndim):
        others, n = tuple(d for d in range(gradient.ndim) if d != dim), gradient.shape[dim]
        read = gradient.ne(0).any(others).nonzero().flatten().tolist()
        step = gcd(*read)
        if step < 2 or read != list(range(0, n, step)):  # a lattice has all of its rows
            continue
        place = torch.arange(n, device=gradient.device)
        low = place - place % step
        high = (low + step).clamp(max=read[-1])
        part = (place % step / step).to(gradient.dtype).reshape(-1, *[1] * (gradient.ndim - 1 - dim))
        filled = filled.index_select(dim, low).lerp(filled.index_select(dim, high), part)
    return filled


def _map(formula: Formula, found: Chosen) -> Tensor:
    if found.gradient is None:
        return found.activation.new_zeros(found.activation[:, 0].shape)
    return formula(found.activation, found.gradient)
