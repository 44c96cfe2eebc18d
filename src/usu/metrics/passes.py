"""What the metrics that ask the model share: the target is fixed, pixels go along a ranking, a curve has an area."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from usu import _checks as check
from usu.forward import Engine, Model, engine
from usu.forward.calls import Link, Target
from usu.forward.fills import apply
from usu.metrics.maps import checked_map
from usu.types import Array, NDArray

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Measured:
    """A number, what it cost, and the curve it sums up."""

    value: float
    #: Images passed through the model.
    evaluations: int = 0
    #: The values behind the number, where a person may want to draw them.
    curve: NDArray | None = None

    def __float__(self) -> float:
        return self.value


class Memory:
    """Things by their key, each made on first demand; everybody's time is as if nothing was shared.

    >>> memory = Memory()
    >>> [memory.once("answer", lambda: 42), memory.once("answer", lambda: 43)]
    [42, 42]
    """

    def __init__(self) -> None:
        self._made: dict[Any, tuple[Any, float]] = {}
        #: Seconds that were saved so far, because something was there already.
        self.lent = 0.0

    def once(self, key: Any, make: Callable[[], T]) -> T:
        """What is remembered under ``key``; on first demand it is made."""
        if key in self._made:
            found: T = self._made[key][0]
            self.lent += self._made[key][1]
            return found
        start, lent = time.perf_counter(), self.lent
        made = make()
        # what it borrowed itself belongs to its own time
        self._made[key] = made, time.perf_counter() - start + self.lent - lent
        return made

    def seconds(self, key: Any) -> float:
        """How long it took to make; 0 for what was not made."""
        return self._made[key][1] if key in self._made else 0.0


def aimed(model: Model, target: Target, image: Array, link: Link) -> tuple[Engine, Tensor, int]:
    """The engine with its target fixed, the image where the model is, and the evaluations this took (0 or 1)."""
    asked = engine(model, target, link=link)
    placed = asked.place(image)
    if placed.ndim != 3:
        raise ValueError(f"`image` must be C x H x W for a metric; got {check.shape(placed)}.")
    if asked.target is None:
        return asked.aim(placed).engine, placed, 1
    if isinstance(asked.target, tuple) and len(asked.target) > 1:
        raise ValueError(f"`target` must be one class for a metric; got {len(asked.target)}.")
    return asked, placed, 0


def prepared(
    pixel_map: Array, image: Array, model: Model, target: Target, link: Link
) -> tuple[Tensor, Engine, Tensor, int]:
    """The checked map, and what `aimed` gives."""
    asked, placed, spent = aimed(model, target, image, link)
    return checked_map(pixel_map, tuple(placed.shape[-2:])), asked, placed, spent


def seeded(seed: int, purpose: str) -> torch.Generator:
    """A generator for one purpose, whatever was drawn for others before."""
    digest = hashlib.sha256(f"{seed}/{purpose}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))


def one_target(values: Tensor) -> Tensor:
    """(n, 1) -> (n,)."""
    if values.shape[1] != 1:
        raise ValueError(f"`target` must give one number per image for a metric; got {values.shape[1]}.")
    return values[:, 0]


def walk(
    engine: Engine, image: Tensor, filled: Tensor, order: Tensor, counts: Tensor, *, insert: bool = False
) -> Tensor:
    """Values (n,) of the image with the first counts[i] entries of ``order`` filled; with ``insert`` only they are not.

    An order of H·W entries ranks pixels, one of C·H·W entries every value of the image by itself: see `variants`.
    """
    # where every value stands in the order, so that any row of the walk is one comparison
    rank = torch.empty(len(order), dtype=torch.int32)
    rank[order] = torch.arange(len(order), dtype=torch.int32)
    return variants(engine, image, filled, rank, counts.to(rank), torch.lt if insert else torch.ge)


def variants(
    engine: Engine, image: Tensor, filled: Tensor, places: Tensor, numbers: Tensor,
    keep: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:  # fmt: skip
    """Values (n,) of the image where ``keep(places, number)`` and of the fill elsewhere: one evaluation per number.

    ``places`` has an entry per pixel (H·W,), whose channels go together, or one per value (C·H·W,); ``filled`` is an
    image, or a level (n,) for each variant.
    """
    layers = image.numel() // len(places), -1, image.shape[-1]
    shown, hidden = image.reshape(layers), filled if filled.ndim == 1 else filled.reshape(layers)
    places, numbers = places.reshape(layers[1:]).to(image.device), numbers.to(image.device)

    def build(rows: slice) -> Tensor:
        fill = hidden[rows, None, None, None] if hidden.ndim == 1 else hidden
        return apply(shown, fill, keep(places, numbers[rows, None, None])).reshape(-1, *image.shape)

    return one_target(engine.evaluate(image, len(numbers), build))


def cuts(pixels: int, steps: int, least: int = 1) -> Tensor:
    """How many pixels the fractions 0, 1/steps, ..., 1 are: whole numbers, the halves rounded up."""
    steps = check.whole_number("steps", steps, least=least, most=pixels)
    return (torch.arange(steps + 1) * 2 * pixels + steps) // (2 * steps)


def area(values: Tensor, fractions: Tensor) -> float:
    """∫ values d(fractions) by the trapezoid rule."""
    return float((values[1:] + values[:-1]).double() @ fractions.diff().double() / 2)
