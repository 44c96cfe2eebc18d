"""What a metric is given, checked: the map, the object, cells and segments; and the order of a map's pixels."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from usu import _checks as check
from usu.operator.cells import Grid, Labels
from usu.types import Array, ArrayT


def checked_map(pixel_map: Array, size: tuple[int, ...] | None = None) -> Tensor:
    """One map (H, W) in float64 on the CPU, finite, as large as the image."""
    field = check.as_tensor("pixel_map", pixel_map).detach().cpu().double()
    if field.ndim != 2:
        raise ValueError(f"`pixel_map` must be one map, H x W; got {check.shape(field)}.")
    if size is not None and tuple(field.shape) != tuple(size):
        wanted = " x ".join(map(str, size))
        raise ValueError(f"`pixel_map` must be as large as the image ({wanted}); got {check.shape(field)}.")
    check.finite("pixel_map", field)
    return field


def checked_truth(truth: Array, size: tuple[int, ...], *, needed: bool = True, like: str = "`pixel_map`") -> Tensor:
    """The object as booleans (H, W) on the CPU, True = inside; booleans, or the numbers 0 and 1.

    ``needed`` refuses a truth without a single pixel; ``like`` is what has that ``size``, for the error.
    """
    given = check.any_tensor("truth", truth).detach().cpu()
    if tuple(given.shape) != tuple(size):
        wanted = " x ".join(map(str, size))
        raise ValueError(f"`truth` must be as large as {like} ({wanted}); got {check.shape(given)}.")
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


def checked_grid(
    cells: tuple[int, int], size: tuple[int, ...], name: str = "cells", device: torch.device | None = None
) -> Grid:
    """The regular grid of a coarse map's shape (h, w) on ``size``."""
    height, width = size
    try:
        h, w = (check.whole_number(name, n, least=1, most=most) for n, most in zip(cells, size, strict=True))
    except (TypeError, ValueError):
        wanted = f"a label per pixel, or the shape (h, w) of a grid, from 1 x 1 to {height} x {width}"
        raise ValueError(f"`{name}` must be {wanted}; got {cells!r}.") from None
    return Grid((h, w), (height, width), device or torch.device("cpu"))


def checked_cells(cells: Array | tuple[int, int], size: tuple[int, ...], name: str = "cells") -> Tensor:
    """The cell of each pixel (H, W), on the CPU: of a regular grid where ``cells`` is a shape (h, w), else as given."""
    if isinstance(cells, (np.ndarray, Tensor)):
        return check.labels(name, cells, size=size, least=None).cpu()
    return checked_grid(cells, size, name).labels()


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
    values = check.as_tensor("like", like).detach().cpu()
    if values.shape != field.shape:
        raise ValueError(f"`like` must be as large as `pixel_map` ({check.shape(field)}); got {check.shape(values)}.")
    check.finite("like", values)
    if values.dtype == torch.bfloat16 and isinstance(pixel_map, np.ndarray):
        values = values.float()  # numpy has no bfloat16, and float32 has all its values
    matched = torch.empty(values.numel(), dtype=values.dtype)
    matched[ranking(field, generator)] = values.flatten().sort(descending=True).values
    matched = matched.reshape(field.shape)
    return matched.numpy() if isinstance(pixel_map, np.ndarray) else matched.to(pixel_map.device)
