"""Class activation maps at the resolution of their layer, without any normalisation.

One pass serves them all: the layer's activation A and the target's gradient G there, both (B, C, h, w); (B, C, l) of
signals, (B, C, d, h, w) of volumes. A method is its formula of the two.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd

import torch
from torch import Tensor, nn

from usu import _checks as check
from usu.sources import LAYER_SOURCES, SOURCES
from usu.sources.layers import Chosen, Formula, Goal, Target, checked, chunks, find_layer, finite, one_pass
from usu.types import Array


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


def attention_rollout(model: nn.Module, images: Array, target: Target = None, *, chunk: int = 16) -> CoarseMap:
    """Attention rollout: Π over layers of (mean over heads of A_l + I) / 2, in the rows that the target reads.

    It shows where the model looked, not what spoke for a class: the map is the same for every target. The rows are
    those of the last layer through which the target can be changed: the class token's, also the distillation token's,
    or, where a model averages its patches, the mean of all of theirs.

    Args:
        model: an ``nn.Module`` with self-attention over all its patches (timm, transformers, torchvision or your own).
        target: as in `usu.gradcam`; recorded in the result, and used to find the tokens that are read. The rest is as
            there, too.

    Guarantees:
        Non-negative, and no more than 1 in all: what is missing is the share of class and register tokens. One forward
        pass per picture and a backward pass no further than the last attention.

    >>> import usu
    >>> class Tokens(nn.Module):  # patches of 2 x 2, attention by likeness, the last token is read
    ...     def forward(self, x):
    ...         tokens = nn.functional.avg_pool2d(x, 2).flatten(1)[..., None]
    ...         return (torch.softmax(1e3 * tokens @ tokens.mT, -1) @ tokens)[:, -1]
    >>> picture = torch.zeros(1, 1, 4, 4)
    >>> picture[..., 2:, :] = 1  # the lower patches are alike
    >>> usu.attention_rollout(Tokens(), picture, 0).values.tolist()
    [[[0.0, 0.0], [0.25, 0.75]]]
    """
    return _from_attention("Attention rollout", model, images, target, chunk, gradients=False)


def gradient_attention(model: nn.Module, images: Array, target: Target = None, *, chunk: int = 16) -> CoarseMap:
    """Gradient x attention, rolled out: R ← R + Ā·R, Ā = mean over heads of relu(d(target)/d(A_l) · A_l).

    The generic rule of Chefer, Gur and Wolf (2021), in the rows that the target reads. Unlike `attention_rollout` it
    depends on the target. Arguments are those of `attention_rollout`.

    Guarantees:
        Non-negative. One forward and one backward pass per picture. No scaling: the units are those of the target.

    >>> class Tokens(nn.Module):  # the samples of a signal, attention by likeness, the last one is read
    ...     def forward(self, x):
    ...         return (torch.softmax(1e3 * x.mT @ x, -1) @ x.mT)[:, -1]
    >>> gradient_attention(Tokens(), torch.tensor([[[0.0, 1.0, 1.0]]]), 0).values.tolist()  # A = 1/2, and so its effect
    [[0.0, 0.5, 0.5]]
    """
    return _from_attention("Gradient x attention", model, images, target, chunk, gradients=True)


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
    of_all = {"attention_rollout": attention_rollout, "gradient_attention": gradient_attention}
    return of_all[source](model, images, target)


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
            for found, own, finest, passes in one_pass(model, leaf, targets if several else wanted, top, name, finer):
                name, reason = found.layer, reason or found.reason
                maps.append(found.map(formula))
                details.append(finer_layercams(finest))
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
    return replace(made, notes=_notes_on(made, relu, several))


def _from_attention(
    method: str, model: nn.Module, images: Array, target: Target, chunk: int, *, gradients: bool
) -> CoarseMap:
    from usu.sources.attention import attention_pass

    batch, targets = checked(method, model, images, target, chunk)
    with chunks(model, batch, targets, chunk) as parts:
        maps, layers, reasons, found = zip(
            *(attention_pass(model, leaf, wanted, gradients=gradients) for leaf, wanted in parts), strict=True
        )
    goals = tuple(goal for some in found for goal in some)
    made = CoarseMap(
        values=finite(torch.cat(maps)),
        layer=f"{layers[0]} attention layers" if layers[0] > 1 else "1 attention layer",
        reason=reasons[0],
        targets=None if callable(targets) else tuple(goal.number for goal in goals),
        evaluations=len(batch),
        goals=goals,
    )
    which = ", ".join(str(i) for i, empty in enumerate(made.empty) if empty)
    note = f"Picture {which}: no attention speaks for the target, the map is zero everywhere."
    return replace(made, notes=(note,) if which else ())


def _notes_on(found: CoarseMap, relu: bool, several: bool) -> tuple[str, ...]:
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
        which = ", ".join(str(name) for name, flag in zip(names, flags, strict=True) if flag)
        if which and len(flags) > 1:
            notes.append(f"{'Class' if several else 'Picture'} {which}: {text}")
        elif which:
            notes.append(text[0].upper() + text[1:])
    return tuple(notes)


def finer_layercams(layers: list[Chosen]) -> list[Tensor]:
    """LayerCAM (B, h, w) of each, in float64 on the CPU; zero where the target does not depend on it."""
    known = [replace(one, gradient=everywhere(one.gradient)) for one in layers]
    return [finite(one.map(layercam_of)).relu().double().cpu() for one in known]


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
