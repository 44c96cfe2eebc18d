"""One pass of a model for a source: pictures in, the score that is explained, and the layer that answers."""

from __future__ import annotations

import difflib
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from usu import _checks as check
from usu.forward import undisturbed
from usu.forward.calls import checked_target, convolution_dims, logits_of, read
from usu.sources.recording import LayerGrid, LayerOutput, Recording, recorded, tensors_of, upstream
from usu.types import Array

#: A class for all pictures, one class per picture, a function of the raw output giving (B,), or None: each top class.
Target: TypeAlias = int | Sequence[int] | Callable[[Any], Tensor] | None
#: The same with one class per picture.
Targets: TypeAlias = tuple[int, ...] | Callable[[Any], Tensor] | None
#: (activation, gradient), each (B, C, h, w), to signed maps (B, h, w).
Formula: TypeAlias = Callable[[Tensor, Tensor], Tensor]
#: Resolutions beyond the coarse map's own that are looked at. A second one makes the backward pass longer.
LEVELS = 1
#: Fewer layers of a kind are no stack of transformer blocks with a middle.
_BLOCKS = 4
_BATCHES = ("signals, B x C x L", "pictures, B x C x H x W", "volumes, B x C x D x H x W")
#: Nodes of the graph that leave an output what it is.
_COPIES = ("Clone", "Alias", "Upsample", "Sigmoid", "Softmax", "LogSoftmax", "Permute", "Transpose", "View", "ToCopy")
#: Those that work on each place by itself: what is behind them is the output again, before its last linear map.
_POINTWISE = (
    *_COPIES, "Relu", "Gelu", "Silu", "Hardswish", "Hardtanh", "LeakyRelu", "Elu", "Tanh", "NativeDropout",
    "NativeBatchNorm", "CudnnBatchNorm", "NativeGroupNorm", "NativeLayerNorm", "Addmm", "Mm", "UnsafeView", "T",
)  # fmt: skip


class Goal(NamedTuple):
    """A class that is explained in one picture."""

    number: int
    #: None where the model's output is no N x classes tensor.
    probability: float | None = None
    #: How many classes the model finds likelier.
    likelier: int = 0


@dataclass(frozen=True, eq=False)
class Chosen:
    """A layer's activation and the target's gradient there, (B, C, h, w) each; None where there is no gradient."""

    layer: str
    grid: LayerGrid
    activation: Tensor
    gradient: Tensor | None
    reason: str = ""

    def map(self, formula: Formula) -> Tensor:
        """(B, h, w); zero everywhere where there is no gradient."""
        if self.gradient is None:
            return self.activation.new_zeros(self.activation[:, 0].shape)
        return formula(self.activation, self.gradient)


def checked(
    method: str, model: object, images: Array, target: Target, chunk: int, *, several: bool = False
) -> tuple[Tensor, Targets]:
    """Images (B, C, *size) for a model that has gradients, and one class per picture; or several of a single one."""
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"`model` must be an nn.Module, because {method} needs gradients; got {type(model).__name__}. "
            "For other models bring a coarse map of your own."
        )
    dims = convolution_dims(model)
    batch = check.as_tensor("images", images)
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
        logits = logits_of(output)
        classes = logits.argmax(1).tolist() if targets is None else list(targets)
        values = read(output, tuple(classes), "logit", batch).diagonal()
        goals = _goals(logits, classes)
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


def finite(values: Tensor) -> Tensor:
    """The maps themselves, if all of their values are finite."""
    if not bool(values.isfinite().all()):
        raise ValueError(
            "`model` must have finite activations and gradients at the layer; got NaN or infinity. "
            "Check the scaling of `images` and the model's weights."
        )
    return values


def find_layer(model: nn.Module, layer: str | nn.Module) -> str:
    """The dotted name of a layer given by that name, or as the module itself."""
    modules: dict[str, nn.Module] = dict(model.named_modules())
    if isinstance(layer, nn.Module):
        for name, module in modules.items():
            if module is layer:
                return name
        raise ValueError(f"`layer` must be part of the model; got a {type(layer).__name__} that is not in it.")
    if not isinstance(layer, str):
        raise TypeError(f"`layer` must be a name or a module; got {type(layer).__name__}.")
    names = [name for name in modules if name]
    if layer in names:
        return layer
    close = difflib.get_close_matches(layer, names, n=5, cutoff=0.4) or names[-5:]
    raise ValueError(f"`layer` must name a layer of the model; got {layer!r}. Close are: {', '.join(close)}.")


def one_pass(
    model: nn.Module, leaf: Tensor, targets: Targets, top: int | None, layer: str | None, finer: bool
) -> Iterator[tuple[Chosen, list[Goal], list[Chosen], int]]:
    """The layer, the classes, finer layers, and the forward passes counted in pictures.

    All pictures together, or one class of a single picture after the other: further classes need no forward pass.
    """

    def run(images: Tensor, name: str | None = None, *, trace: bool = True) -> tuple[Recording, object]:
        with recorded(model, images, name, shapes=finer, trace=trace) as seen:
            return seen, model(seen.entry)

    def scores_of(output: object) -> list[tuple[Tensor, list[Goal]]]:
        classes = targets
        if top is not None:
            logits = logits_of(output)
            check.whole_number("top", top, least=1, most=logits.shape[1])
            classes = tuple(logits[0].topk(top).indices.tolist())
        if isinstance(classes, tuple) and len(classes) > len(leaf):
            return [score_of(output, (index,), len(leaf)) for index in classes]
        return [score_of(output, classes, len(leaf))]

    seen, output = run(leaf, layer)
    scores, passes = scores_of(output), len(leaf)
    if layer is None and not seen.depends(scores[0][0]):
        # something cuts the graph, such as no_grad() around a backbone: a changed picture shows what depends on it
        seen, output = run(leaf, trace=False)
        scores, passes = scores_of(output), 3 * len(leaf)
        noise = torch.randn(leaf.shape, generator=torch.Generator().manual_seed(0)).to(leaf)
        other, _ = run(leaf + noise, trace=False)
        pairs = zip(seen.outputs, other.outputs, strict=True)
        seen.outputs = deque(one for one, two in pairs if not torch.equal(one.output, two.output))
        for shape, one in list(seen.by_shape.items()):
            if torch.equal(one.output, other.by_shape[shape].output):
                del seen.by_shape[shape]
    spent, nearly = _output_nodes(output, scores[0][0]) if callable(targets) else (set(), set())
    found: Chosen | None = None
    for score, goals in scores:
        if layer is not None:
            found = _named_layer(seen, score, layer, again=finer or score is not scores[-1][0])
        elif found is None:
            found = _last_layer(seen, score, spent, nearly)
        else:  # every class at the layer of the first
            same = [one for one in seen.outputs if one.name == found.layer]
            (found,) = _at(score, same[-1:])
        yield found, goals, finer_layers(seen, score, found.grid.places, nearly) if finer else [], passes
        passes = 0


def _output_nodes(output: object, score: Tensor) -> tuple[set[Any], set[Any]]:
    """Nodes that make an output over the picture which the score reads, and of what that is a copy of (upsampled).

    A layer that ends there explains nothing: it is what the target is made of. Nor does one from which only pointwise
    steps lead there, the second set: its map is the output's own.
    """
    tensors = tensors_of(output)
    spatial = {one.grad_fn for one in tensors if one.ndim > 2 and one[0, 0].numel() > 1}
    read_of = spatial & upstream([score.grad_fn], {one.grad_fn for one in tensors})
    return upstream(read_of, only=_COPIES), upstream(read_of, only=_POINTWISE)


def _named_layer(seen: Recording, score: Tensor, layer: str, *, again: bool) -> Chosen:
    """The layer asked for, as it ran last: its grid as found, else a plain (B, C, h, w)."""
    if seen.asked is None:
        raise ValueError(
            f"`layer` must take part in the forward pass; got {layer!r}, which did not run, or returned no tensor "
            "with a gradient."
        )
    shape = tuple(seen.asked.shape)
    grid = seen.grid(shape, guess=True)
    if grid is None and len(shape) == seen.images.ndim and shape[0] == len(seen.images) and prod(shape[2:]) > 1:
        grid = LayerGrid(shape[2:], "channels first")
    if grid is None:
        raise ValueError(
            f"`layer` must have an output that lies over the picture; got {layer!r} with {check.shape(seen.asked)} for "
            f"pictures of {check.shape(seen.images)}. Choose an earlier layer, or leave it None to have one chosen."
        )
    return replace(_at(score, [LayerOutput(layer, seen.asked, grid)], again=again)[0], reason="asked for")


def _last_layer(seen: Recording, score: Tensor, spent: set[Any], nearly: set[Any]) -> Chosen:
    """The last layer over the picture through which the score can be changed, and that is not the model's output.

    Of a model whose output lies over the picture, it is one whose places still see each other before the output. Of a
    ViT whose head reads the class token alone it is usually the first norm of the last block: the patches of what
    follows have no gradient.
    """
    layers = [one for one in seen.outputs if one.output.grad_fn not in spent]
    read_by_target = ", ".join(one.name for one in seen.outputs if one.output.grad_fn in spent)
    if not layers or (seen.unplaced and _is_embedding(layers[-1].output)):
        lost = ", ".join(f"{name} ({shape})" for name, shape in seen.unplaced.items())
        raise ValueError(
            "`model` must have a layer behind its input embedding and before its output that depends on the picture "
            f"and lies over it (B x C x h x w, or tokens of its patches); got {lost or read_by_target or 'none'}. "
            "Name one with `layer`, or bring a coarse map of your own."
        )
    aside = f"; not {read_by_target}, which the target reads" if read_by_target else ""
    near = [one for one in layers if one.output.grad_fn in nearly]
    deeper = [one for one in layers if one.output.grad_fn not in nearly]
    if near and (not deeper or _is_embedding(deeper[-1].output)):
        # nothing but the input embedding is left: the first of the others is the furthest from the output
        deeper.append(near.pop(0))
    if near:
        aside += f", nor {', '.join(one.name for one in near)}, from which only pointwise steps lead there"
    # nearly always it is the very last one, and a backward pass through the head is all that is needed
    (last,) = _at(score, deeper[-1:])
    if _nonzero(last.gradient):
        return replace(last, reason=f"the last spatial layer ({last.grid}{aside})")
    for passed, found in enumerate(reversed(_at(score, deeper))):
        if _nonzero(found.gradient):
            later = f"{passed} later one has" if passed == 1 else f"{passed} later ones have"
            reason = f"the last spatial layer with a gradient ({found.grid}; {later} none there{aside})"
            return replace(found, reason=reason)
    return replace(last, reason=f"the last spatial layer ({last.grid}{aside}); none has a gradient")


def finer_layers(seen: Recording, score: Tensor, cells: int, nearly: Collection[Any] = ()) -> list[Chosen]:
    """The last layer of each of the next ``LEVELS`` resolutions above ``cells`` places, those in ``nearly`` left out.

    The tokens of a transformer keep their resolution. There the middle one of its blocks is heard instead: what it
    knows of a place has not yet been shared with all the others.
    """
    above = [one for one in seen.by_shape.values() if one.grid.places > cells and one.output.grad_fn not in nearly]
    last = {one.grid.size: one for one in above}
    found = [last[size] for size in sorted(last, key=prod)[:LEVELS]]
    blocks = max(seen.blocks.values(), key=len, default=[])
    if not found and len(blocks) >= _BLOCKS:
        middle = blocks[(len(blocks) - 1) // 2]
        found = [middle] if middle.grid.places >= cells else []
    return _at(score, found) if found and score.requires_grad else []


def _at(score: Tensor, layers: Sequence[LayerOutput], *, again: bool = True) -> list[Chosen]:
    """Each layer with d(score) / d(output); the parameters' .grad stays as it is. ``again``: the graph is kept."""
    slopes = torch.autograd.grad(score, [one.output for one in layers], retain_graph=again, allow_unused=True)
    return [
        Chosen(name, grid, grid.arrange(output.detach()), None if slope is None else grid.arrange(slope))
        for (name, output, grid), slope in zip(layers, slopes, strict=True)
    ]


def _nonzero(gradient: Tensor | None) -> bool:
    return gradient is not None and bool(gradient.count_nonzero())


def _is_embedding(tensor: Tensor) -> bool:
    """Whether the picture went through one layer at most."""
    nodes = upstream([tensor.grad_fn])
    return len([node for node in nodes if node.name().startswith(("Convolution", "Addmm", "Mm", "Bmm"))]) <= 1
