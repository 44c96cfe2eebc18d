"""What every source takes and returns: images and targets in, a coarse map with its provenance out; and the grids of
layers: where in the picture their numbers sit, channels first, channels last, or tokens in a row."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from usu import _checks as check
from usu.forward import undisturbed
from usu.forward.calls import checked_target, logits_of, read
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


def checked(
    method: str, model: object, images: Array, target: Target, chunk: int, *, several: bool = False
) -> tuple[Tensor, Targets]:
    """Images (B, C, H, W) for a model that has gradients, and one class per picture; or several of a single one."""
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"`model` must be an nn.Module, because {method} needs gradients; got {type(model).__name__}. "
            "For other models bring a coarse map of your own."
        )
    batch = check.as_tensor("images", images)
    if batch.ndim != 4:
        more = " Add a dimension with [None]." if batch.ndim == 3 else ""
        raise ValueError(f"`images` must be a batch of pictures, B x C x H x W; got {check.shape(batch)}.{more}")
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


#: Class, distillation and register tokens in front of the patches: at most so many where the patches were seen, and
#: at most one and four where the grid can only be guessed from their number.
_MOST_PREFIX_TOKENS, _MOST_GUESSED = 16, 5


@dataclass(frozen=True)
class LayerGrid:
    """How an output (B, C, h, w), (B, h, w, C) or (B, prefix + h·w + suffix, C) covers the picture."""

    height: int
    width: int
    layout: Literal["channels first", "channels last", "tokens"]
    #: Tokens in front of the patches (class, distillation, registers): they have no place in the picture.
    prefix: int = 0
    #: Tokens behind them (the detection tokens of YOLOS).
    suffix: int = 0

    def arrange(self, output: Tensor) -> Tensor:
        """The output as (B, C, h, w), without the tokens that have no place."""
        if self.layout == "channels first":
            return output
        if self.layout == "channels last":
            return output.movedim(-1, 1)
        places = output[:, self.prefix : self.prefix + self.height * self.width]
        return places.reshape(len(places), self.height, self.width, -1).movedim(-1, 1)

    def __str__(self) -> str:
        form = f"{self.height} x {self.width}" + " tokens" * (self.layout == "tokens")
        aside = [f"{side} {n}" for side, n in (("after", self.prefix), ("before", self.suffix)) if n]
        return f"{form} {' and '.join(aside)} without a place" if aside else form


def find_grid(
    shape: tuple[int, ...],
    batch: int,
    size: tuple[int, int],
    patches: Collection[tuple[int, int]] = (),
    *,
    guess: bool = True,
) -> LayerGrid | None:
    """The grid of a layer's output, or None if it does not lie over the picture.

    A grid must have the picture's aspect (to within rounding) and more than one place. Tokens are tried against
    ``patches``, the grids of convolutions seen before them (a ViT's patch embedding), then against these merged two by
    two (Swin) and, with ``guess``, every grid of square patches that fills the picture, each with as few prefix tokens
    as possible.

    >>> str(find_grid((1, 512, 7, 7), 1, (224, 224)))
    '7 x 7'
    >>> find_grid((1, 7, 7, 768), 1, (224, 224)).layout
    'channels last'
    >>> str(find_grid((1, 197, 768), 1, (224, 224)))
    '14 x 14 tokens after 1 without a place'
    >>> find_grid((1, 12, 197, 64), 1, (224, 224)) is None  # heads x tokens: no picture
    True
    """
    if not shape or shape[0] != batch:
        return None
    if len(shape) == 4:
        if _covers(shape[2], shape[3], size):
            return LayerGrid(shape[2], shape[3], "channels first")
        if _covers(shape[1], shape[2], size):
            return LayerGrid(shape[1], shape[2], "channels last")
    if len(shape) == 3:
        return _tokens(shape[1], size, patches, guess)
    return None


def _covers(h: int, w: int, size: tuple[int, int]) -> bool:
    H, W = size
    if h * w <= 1 or h > H or w > W:
        return False
    # padding and rounding may cost a row here and there at every stage; heads x tokens is off by far more
    return abs(h - w * H / W) <= 1 + 0.1 * h or abs(w - h * W / H) <= 1 + 0.1 * w


def _tokens(count: int, size: tuple[int, int], patches: Collection[tuple[int, int]], guess: bool) -> LayerGrid | None:
    H, W = size
    seen = [(count - h * w, h, w) for h, w in patches if _covers(h, w, size)]
    fitting = [found for found in seen if 0 <= found[0] <= _MOST_PREFIX_TOKENS]
    if not fitting:
        square = [
            (H // patch, W // patch)
            for patch in range(1, min(H, W) + 1)
            if guess and H % patch == 0 == W % patch and patch**2 < H * W
        ]
        # Swin merges patches two by two, and pads an odd row
        merged = [(-(-h // 2**stage), -(-w // 2**stage)) for h, w in patches for stage in range(1, 6)]
        guessed = [(h, w) for h, w in (*square, *merged) if _covers(h, w, size)]
        fitting = [(count - h * w, h, w) for h, w in guessed if 0 <= count - h * w <= _MOST_GUESSED]
    if not fitting:
        return None
    prefix, h, w = min(fitting)
    return LayerGrid(h, w, "tokens", prefix)


def trace_tokens(tokens: Tensor, sources: Sequence[Tensor]) -> tuple[bool, LayerGrid | None]:
    """The grid of tokens (B, N, C) that are each made of one patch of a source (B, c, h, w), seen in their gradients.

    The gradient of Σ_j k_j <r, T_j> at a place is k_j · d<r, T_j>: its ratio to that with all k_j = 1 says which token
    the place belongs to. The numbers of the tokens go in as digits from 0 to 3, which leave room for the rounding of
    bfloat16.

    Returns:
        Whether each place belongs to one token, and the grid, None if the tokens are not in the order of a picture.

    >>> picture = torch.randn(1, 3, 4, 8, requires_grad=True)
    >>> patches = torch.nn.functional.avg_pool2d(picture, 2).flatten(2).mT
    >>> _, grid = trace_tokens(torch.cat([torch.zeros(1, 1, 3), patches, torch.zeros(1, 5, 3)], 1), [picture])
    >>> str(grid)
    '2 x 4 tokens after 1 and before 5 without a place'
    """
    count, width = tokens.shape[1:]
    direction = torch.randn(width, generator=torch.Generator().manual_seed(0)).to(tokens)
    numbers = torch.arange(count, device=tokens.device)
    digits = max(1, -(-(count - 1).bit_length() // 2))
    codes = [torch.ones_like(numbers), *(numbers // 4**k % 4 for k in range(digits))]
    slopes = [
        torch.autograd.grad(
            tokens, sources, (code[:, None] * direction).expand_as(tokens), retain_graph=True, allow_unused=True
        )
        for code in codes
    ]
    for plain, *coded in zip(*slopes, strict=True):
        index = None if plain is None else _token_of_each_place(plain, coded)
        if index is not None:
            return True, _in_order(index, count)
    return False, None


def _token_of_each_place(plain: Tensor, coded: Sequence[Tensor]) -> Tensor | None:
    """(h, w), without a margin that no token sees; None where places are shared."""
    plain = plain.double()
    weight = plain.square().sum((0, 1))
    index = torch.zeros_like(weight)
    for k, slope in enumerate(coded):
        digit = ((slope.double() * plain).sum((0, 1)) / weight).nan_to_num().round()
        if bool(((slope.double() - digit * plain).square().sum((0, 1)) > 0.01 * weight).any()):
            return None
        index += digit * 4**k
    rows, columns = (weight > 0).any(1), (weight > 0).any(0)
    whole = bool((weight > 0)[rows][:, columns].all()) and bool(rows.any())
    return index[rows][:, columns].long() if whole else None


def _in_order(index: Tensor, count: int) -> LayerGrid | None:
    first = int(index[0, 0])
    columns = index[0] - first
    width = int(columns[-1]) + 1
    rows = (index[:, 0] - first) // max(width, 1)
    height = int(rows[-1]) + 1
    steps = torch.cat([rows.diff(), columns.diff()])
    straight = torch.equal(index, first + rows[:, None] * width + columns) and bool(((steps == 0) | (steps == 1)).all())
    if not straight or height * width <= 1:
        return None
    return LayerGrid(height, width, "tokens", first, count - first - height * width)
