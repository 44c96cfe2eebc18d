"""What metrics share: maps, objects and cells, checked; the order of a map's pixels; the model asked as they go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from usu import _checks as check
from usu.forward import Engine, Link, Model, Target, engine
from usu.forward.fills import apply
from usu.operator.cells import Labels, boxes
from usu.types import Array, ArrayT, NDArray


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


def same_size(name: str, given: Tensor, size: tuple[int, ...], like: str) -> Tensor:
    """A field as large as what it is compared with."""
    if tuple(given.shape) != tuple(size):
        wanted = " x ".join(map(str, size))
        raise ValueError(f"`{name}` must be as large as {like} ({wanted}); got {check.shape(given)}.")
    return given


def checked_map(pixel_map: Array, size: tuple[int, ...] | None = None) -> Tensor:
    """One map (H, W) in float64 on the CPU, finite, as large as the image."""
    field = check.as_tensor("pixel_map", pixel_map).detach().cpu().double()
    if field.ndim != 2:
        raise ValueError(f"`pixel_map` must be one map, H x W; got {check.shape(field)}.")
    check.finite("pixel_map", field)
    return field if size is None else same_size("pixel_map", field, size, "the image")


def checked_truth(truth: Array, size: tuple[int, ...], *, needed: bool = True, like: str = "`pixel_map`") -> Tensor:
    """The object as booleans (H, W) on the CPU, True = inside; booleans, or the numbers 0 and 1.

    ``needed`` refuses a truth without a single pixel; ``like`` is what has that ``size``, for the error.
    """
    given = same_size("truth", check.any_tensor("truth", truth).detach().cpu(), size, like)
    inside = given != 0
    if not bool((given == inside).all()):
        value = given[given != inside][0].item()
        raise ValueError(f"`truth` must be boolean, or hold 0 and 1; got values such as {value:.4g}.")
    if needed and not bool(inside.any()):
        raise ValueError("`truth` must mark the object; got not one pixel inside.")
    return inside


def share_inside(weight: Tensor, inside: Tensor) -> float:
    """Σ_inside weight / Σ weight of non-negative weights; no weight at all gets the area share, as equal weights do."""
    peak = weight.max()
    # in units of the peak, so that neither tiny nor huge maps leave the range of float64
    even = weight / peak if peak > 0 else torch.ones_like(weight)
    within = float(even[inside].sum())
    return within / (within + float(even[~inside].sum()))  # never above 1, whatever the rounding


def checked_cells(cells: Array | tuple[int, int], size: tuple[int, ...], name: str = "cells") -> Tensor:
    """The cell of each pixel (H, W), on the CPU: of a regular grid where ``cells`` is a shape (h, w), else as given."""
    if isinstance(cells, (np.ndarray, Tensor)):
        return check.labels(name, cells, size=size, least=None).cpu()
    height, width = size
    try:
        h, w = (check.whole_number(name, n, least=1, most=most) for n, most in zip(cells, size, strict=True))
    except (TypeError, ValueError):
        wanted = f"a label per pixel, or the shape (h, w) of a grid, from 1 x 1 to {height} x {width}"
        raise ValueError(f"`{name}` must be {wanted}; got {cells!r}.") from None
    return boxes((h, w), size).labels()


def dense_cells(cells: Array | tuple[int, int], size: tuple[int, ...], name: str = "cells") -> tuple[Tensor, int]:
    """`checked_cells` numbered from 0 without gaps, and how many there are."""
    known, dense = checked_cells(cells, size, name).unique(return_inverse=True)
    return dense, len(known)


def group_means(field: Tensor, labels: Tensor, count: int) -> Tensor:
    """The mean of a field over each label; exactly the common value where there is one, so that ties stay ties."""
    groups, fields = Labels(labels, count), field[None]
    means = groups.total(fields) / groups.sizes
    return means.clamp(-groups.peak(-fields), groups.peak(fields))[0]


def ranking(field: Tensor, generator: torch.Generator | int) -> Tensor:
    """Pixel indices (H·W,), the most relevant first; pixels of equal value come in a random order.

    Without the shuffle a constant map would be read from the top left, and score as if it meant something.
    """
    drawn = check.generator("generator", generator)
    shuffled = torch.randperm(field.numel(), generator=drawn, device=drawn.device).cpu()
    return shuffled[field.flatten()[shuffled].argsort(descending=True, stable=True)]


def quantile_match(pixel_map: ArrayT, like: Array, *, generator: torch.Generator | int = 0) -> ArrayT:
    """The map with its i-th highest pixel set to the i-th highest value of ``like``, (H, W).

    A metric that looks at magnitudes rewards a histogram as much as a ranking. Matched to one map, say bilinear's, all
    maps have its values and differ in where they put them.

    Guarantees:
        Exactly the values of ``like`` in its dtype, in the library and on the device of ``pixel_map``. A higher pixel
        never comes out lower. Matching twice is matching once. Any increasing function of the map changes nothing.

    >>> quantile_match(np.array([[0.1, 0.9, 0.4]]), np.array([[7.0, 5.0, 6.0]]))
    array([[5., 7., 6.]])
    """
    field = checked_map(pixel_map)
    values = same_size("like", check.as_tensor("like", like).detach().cpu(), tuple(field.shape), "`pixel_map`")
    check.finite("like", values)
    if values.dtype == torch.bfloat16 and isinstance(pixel_map, np.ndarray):
        values = values.float()  # numpy has no bfloat16, and float32 has all its values
    matched = torch.empty(values.numel(), dtype=values.dtype)
    matched[ranking(field, generator)] = values.flatten().sort(descending=True).values
    matched = matched.reshape(field.shape)
    return matched.numpy() if isinstance(pixel_map, np.ndarray) else matched.to(pixel_map.device)


def aimed(model: Model, target: Target, image: Array, link: Link) -> tuple[Engine, Tensor]:
    """The engine with its target fixed, and the image where the model is; the meter counts the evaluations."""
    asked = engine(model, target, link=link)
    placed = asked.place(image)
    if placed.ndim != 3:
        raise ValueError(f"`image` must be C x H x W for a metric; got {check.shape(placed)}.")
    if isinstance(asked.target, tuple) and len(asked.target) > 1:
        raise ValueError(f"`target` must be one class for a metric; got {len(asked.target)}.")
    return (asked if asked.target is not None else asked.aim(placed).engine), placed


def prepared(pixel_map: Array, image: Array, model: Model, target: Target, link: Link) -> tuple[Tensor, Engine, Tensor]:
    """The checked map, and what `aimed` gives."""
    asked, placed = aimed(model, target, image, link)
    return checked_map(pixel_map, tuple(placed.shape[-2:])), asked, placed


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
