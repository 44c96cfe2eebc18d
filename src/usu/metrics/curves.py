"""Walking along a ranking: a picture that loses (or gains) its pixels one group after the other, and the area below."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from usu import _checks as check
from usu.forward import Engine
from usu.forward.fills import apply
from usu.metrics.truth import checked_cells
from usu.operator.cells import Labels
from usu.types import Array, NDArray

#: Quantus' names of fills, beside "mean" and numbers.
QuantusFill: TypeAlias = Literal["black", "white", "uniform"]


def walk(engine: Engine, image: Tensor, filled: Tensor, order: Tensor, counts: Tensor, *, insert: bool) -> Tensor:
    """Values (n,) of the picture with the first counts[i] pixels of ``order`` filled: one evaluation per count.

    With ``insert`` it is the filled picture on which they are shown. An order of H·W entries ranks pixels, whose
    channels go together; one of C·H·W entries ranks every value of the picture by itself.

    >>> from usu.forward import engine
    >>> total = engine(lambda batch: batch.sum((1, 2, 3))[:, None], target=0)
    >>> picture, order = torch.tensor([[[1.0, 2.0, 4.0]]]), torch.tensor([2, 1, 0])
    >>> walk(total, picture, torch.zeros(1, 1, 3), order, torch.tensor([0, 1, 2]), insert=False).tolist()
    [7.0, 3.0, 1.0]
    """
    # where every value stands in the order, so that any row of the walk is one comparison
    rank = torch.empty(len(order), dtype=torch.int32, device=image.device)
    rank[order.to(image.device)] = torch.arange(len(order), dtype=torch.int32, device=image.device)
    layers = image.numel() // len(order), -1, image.shape[-1]
    rank, shown, hidden = rank.reshape(layers[1:]), image.reshape(layers), filled.reshape(layers)
    cuts = counts.to(rank)[:, None, None]

    def build(rows: slice) -> Tensor:
        keep = rank < cuts[rows] if insert else rank >= cuts[rows]
        return apply(shown, hidden, keep).reshape(-1, *image.shape)

    return one_target(engine.evaluate(image, len(counts), build))


def one_target(values: Tensor) -> Tensor:
    """(n, 1) -> (n,)."""
    if values.shape[1] != 1:
        raise ValueError(
            f"`target` must give one number per picture for a metric; got {values.shape[1]}. Measure them one by one."
        )
    return values[:, 0]


def area(values: Tensor, fractions: Tensor) -> float:
    """∫ values d(fractions) by the trapezoid rule.

    >>> area(torch.tensor([1.0, 0.0, 0.0]), torch.tensor([0.0, 0.5, 1.0]))
    0.25
    """
    return float((values[1:] + values[:-1]).double() @ fractions.diff().double() / 2)


def cuts(pixels: int, steps: int) -> Tensor:
    """How many pixels the fractions 0, 1/steps, ..., 1 are: whole numbers, the halves rounded up.

    >>> cuts(10, 4).tolist()
    [0, 3, 5, 8, 10]
    """
    return (torch.arange(steps + 1) * 2 * pixels + steps) // (2 * steps)


def checked_steps(steps: int, pixels: int, least: int = 1) -> int:
    """A whole number of steps, each of at least one pixel."""
    if isinstance(steps, bool) or not isinstance(steps, int) or not least <= steps <= pixels:
        raise ValueError(
            f"`steps` must be a whole number from {least} to the number of pixels ({pixels}); got {steps!r}. "
            "16 to 64 are usual."
        )
    return steps


def label_map(name: str, cells: Array | tuple[int, int], size: tuple[int, int]) -> tuple[Tensor, int]:
    """Labels (H, W) from 0 without gaps and how many there are, of a grid's shape (h, w) or of any integer label map.

    >>> label_map("cells", (1, 2), (1, 4))
    (tensor([[0, 0, 1, 1]]), 2)
    """
    known, dense = checked_cells(cells, size, name).unique(return_inverse=True)
    return dense, len(known)


def group_means(field: Tensor, labels: Tensor, count: int) -> Tensor:
    """The mean of a field over each label; exactly the common value where there is one, so that ties stay ties.

    >>> group_means(torch.tensor([0.1, 0.1, 0.1, 0.1]), torch.tensor([0, 0, 0, 1]), 2).unique().numel()
    1
    """
    groups, fields = Labels(labels, count), field[None]
    means = groups.total(fields) / groups.sizes
    return means.clamp(-groups.peak(-fields), groups.peak(fields))[0]


def values_as_quantus(pixel_map: Array, channels: int, steps: int) -> NDArray:
    """What Quantus makes of an (H, W) map: divided by its largest |value|, repeated for every channel, (C·H·W,).

    The type of the numbers is kept: how numpy orders equal ones depends on it.
    """
    raw = check.as_numpy(pixel_map)
    scaled = raw / np.abs(raw).max() if raw.any() else raw
    count = channels * raw.size
    if count % checked_steps(steps, count, least=2):
        raise ValueError(
            f"`steps` must divide the number of channels times pixels ({count}) with compat='quantus'; got {steps}. "
            "It is that number over Quantus' features_in_step."
        )
    return np.broadcast_to(scaled, (channels, *scaled.shape)).reshape(-1)


def level_as_quantus(image: Tensor, fill: object) -> float | None:
    """The number Quantus' name for a fill means in this picture; None for "uniform", which is drawn.

    >>> picture = torch.tensor([[[1.0, 3.0]], [[2.0, 6.0]]])
    >>> [level_as_quantus(picture, fill) for fill in ("black", "white", "mean", 0.5, "uniform")]
    [1.0, 6.0, 3.0, 0.5, None]
    """
    if isinstance(fill, (int, float)):
        return check.real_number("fill", fill)
    check.choice("fill", fill, ("black", "white", "mean", "uniform"))
    work = image.double()
    return {"black": float(work.min()), "white": float(work.max()), "mean": float(work.mean())}.get(str(fill))


def draws_as_quantus(count: int, generator: torch.Generator | int) -> Tensor:
    """``count`` numbers from [0, 1) as numpy's global generator gives them after this seed: Quantus draws from it."""
    if isinstance(generator, bool) or not isinstance(generator, int) or not 0 <= generator < 2**32:
        raise TypeError(
            f"`generator` must be a seed from 0 to 2**32 - 1 with compat='quantus'; got {generator!r}. Pass the number "
            "given to numpy.random.seed."
        )
    return torch.from_numpy(np.random.RandomState(generator).uniform(size=count))


def falling_means(pixels: Tensor, gone: Tensor, size: int) -> Tensor:
    """(n,): what Quantus' "mean" fills with, step by step: the mean of the picture whose earlier values are filled.

    ``gone``: the sum of the values that go in each step, ``size`` of them.

    >>> falling_means(torch.tensor([4.0, 0.0, 2.0]), torch.tensor([4.0, 0.0]), 1)  # 6 / 3, then 4 / 3
    tensor([2.0000, 1.3333], dtype=torch.float64)
    """
    total, levels = float(pixels.sum()), []
    for lost in gone.tolist():
        levels.append(total / pixels.numel())
        total += size * levels[-1] - lost
    return torch.tensor(levels, dtype=torch.float64)
