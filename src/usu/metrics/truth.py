"""What a map is held against, checked at the door: the object's pixels, the cells, the segments."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from usu import _checks as check
from usu.operator.cells import Grid
from usu.types import Array


def checked_truth(truth: Array, size: tuple[int, ...], *, needed: bool = True, like: str = "`pixel_map`") -> Tensor:
    """The object as booleans (H, W) on the CPU, True = inside; booleans, or the numbers 0 and 1.

    Args:
        truth: (H, W).
        size: of the map it is compared with.
        needed: refuse a truth without a single pixel. Most metrics ask how much of the map is on the object, which
            has no answer where there is none. A truth of every pixel is welcome: everything is a hit.
        like: what has that size, for the sentence that refuses another.

    >>> checked_truth(np.array([[0, 1]]), (1, 2))
    tensor([[False,  True]])
    """
    given = check.any_tensor("truth", truth).detach().cpu()
    if tuple(given.shape) != tuple(size):
        wanted = " x ".join(map(str, size))
        raise ValueError(
            f"`truth` must be as large as {like} ({wanted}); got {check.shape(given)}. "
            "Resize it with nearest-neighbour, so that it stays 0 and 1."
        )
    inside = given != 0
    if not bool((given == inside).all()):
        raise ValueError(
            f"`truth` must be boolean, or hold 0 and 1; got values such as {given[given != inside][0].item():.4g}. "
            "Compare it with a threshold first."
        )
    if needed and not bool(inside.any()):
        raise ValueError("`truth` must mark the object; got not one pixel inside. Leave such pictures out.")
    return inside


def share_inside(weight: Tensor, inside: Tensor) -> float:
    """Σ_inside weight / Σ weight of non-negative weights; no weight at all gets what equal weights get: the area share.

    >>> share_inside(torch.tensor([2.0, 1.0, 1.0]), torch.tensor([False, True, True]))
    0.5
    """
    peak = weight.max()
    # of the peak's unit, so that neither tiny nor huge maps leave the range of float64
    even = weight / peak if peak > 0 else torch.ones_like(weight)
    within = float(even[inside].sum())
    return within / (within + float(even[~inside].sum()))  # never above 1, whatever the rounding


def checked_labels(name: str, labels: Array, size: tuple[int, ...]) -> Tensor:
    """One integer per pixel (H, W), on the CPU; any integers will do."""
    given = check.any_tensor(name, labels).detach().cpu()
    if given.is_floating_point() or given.is_complex() or given.dtype == torch.bool:
        raise TypeError(f"`{name}` must hold integer labels; got {given.dtype}. Convert it, e.g. to int64.")
    if tuple(given.shape) != tuple(size):
        wanted = " x ".join(map(str, size))
        raise ValueError(
            f"`{name}` must be as large as `pixel_map` ({wanted}); got {check.shape(given)}. "
            "Give every pixel one label."
        )
    return given.long()


def checked_cells(cells: Array | tuple[int, int], size: tuple[int, ...], name: str = "cells") -> Tensor:
    """The cell of each pixel (H, W): of a regular grid where ``cells`` is the coarse shape (h, w), else as given.

    >>> checked_cells((1, 2), (1, 5))
    tensor([[0, 0, 1, 1, 1]])
    """
    if isinstance(cells, (np.ndarray, Tensor)):
        return checked_labels(name, cells, size)
    height, width = size
    try:
        h, w = cells
        fits = 1 <= h <= height and 1 <= w <= width and int(h) == h and int(w) == w
    except (TypeError, ValueError):
        fits = False
    if not fits:
        raise ValueError(
            f"`{name}` must be a label per pixel, or the shape (h, w) of a grid, from 1 x 1 to {height} x {width}; got "
            f"{cells!r}. For cells, pass coarse.shape."
        )
    return Grid((int(h), int(w)), (height, width), torch.device("cpu")).labels()
