"""The arguments of `usu.redistribute`, checked against each other."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from usu import _checks as check
from usu.operator.cells import Grid, Labels, Partition
from usu.operator.potentials import Potential, checked_potential, tensor
from usu.types import Array


def partition_of(coarse: Tensor, scores: Tensor, cells: Array | None) -> tuple[Partition, tuple[int, ...]]:
    """The cells, and the leading dimensions of ``coarse``."""
    if cells is None:
        if coarse.ndim < 2 or scores.ndim < 2:
            raise ValueError(
                f"`coarse` and `scores` must have at least two dimensions, (..., h, w) and (..., H, W); got "
                f"{check.shape(coarse)} and {check.shape(scores)}. For other lattices pass `cells`."
            )
        (h, w), (height, width) = coarse.shape[-2:], scores.shape[-2:]
        if height < h or width < w:
            raise ValueError(
                f"`scores` must be at least as large as the grid of `coarse` ({h} x {w}); got {height} x {width}. "
                "Every cell needs a pixel; pass the scores at pixel resolution."
            )
        batch = tuple(coarse.shape[:-2])
        _broadcastable(batch, tuple(scores.shape[:-2]), coarse, scores)
        return Grid((h, w), (height, width), coarse.device), batch

    labels = check.any_tensor("cells", cells, like=coarse)
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise TypeError(f"`cells` must hold integer labels; got {labels.dtype}. Convert it, e.g. to int64.")
    if coarse.ndim < 1 or scores.shape[scores.ndim - labels.ndim :] != labels.shape or scores.ndim < labels.ndim:
        raise ValueError(
            f"`cells` must have the shape of the lattice that `scores` ends with; got {check.shape(labels)} for scores "
            f"of {check.shape(scores)}. Give every pixel one label."
        )
    count = coarse.shape[-1]
    low, high = (int(v) for v in torch.aminmax(labels))
    if low < 0 or high >= count:
        raise ValueError(
            f"`cells` must cover the lattice with labels 0 to {count - 1}, one per value of `coarse`; got labels from "
            f"{low} to {high}. Relabel the cells, or pass a value for each."
        )
    batch = tuple(coarse.shape[:-1])
    _broadcastable(batch, tuple(scores.shape[: scores.ndim - labels.ndim]), coarse, scores)
    return Labels(labels.long(), count), batch


def _broadcastable(left: tuple[int, ...], right: tuple[int, ...], coarse: Tensor, scores: Tensor) -> None:
    try:
        torch.broadcast_shapes(left, right)
    except RuntimeError:
        raise ValueError(
            f"`scores` must have the leading dimensions of `coarse` ({check.shape(coarse)}); "
            f"got {check.shape(scores)}. Give each map its own score field, or one field for all."
        ) from None


def flat_field(name: str, field: Tensor, lattice: tuple[int, ...], lead: torch.Size, dtype: torch.dtype) -> Tensor:
    """(..., *lattice) -> (B, *lattice), a view where that is possible."""
    try:
        return field.to(dtype).expand(*lead, *lattice).reshape(prod(lead), *lattice)
    except RuntimeError:
        wanted = " x ".join(str(n) for n in (*lead, *lattice))
        raise ValueError(
            f"`{name}` must have the shape of `scores` ({wanted}); got {check.shape(field)}. Give every pixel a value."
        ) from None


def log_potential(
    given: Callable[[Any], Any] | None, temperature: float, *, like: Array
) -> tuple[Callable[[Tensor], Tensor], float | None]:
    """log φ, and its slope where it is a straight line."""
    if given is None:
        given = tensor(temperature)
    if isinstance(given, Potential):
        return given.log, given.slope
    checked_potential(given)
    phi = given

    def log(scores: Tensor) -> Tensor:
        # a function written for numpy gets numpy
        value = torch.as_tensor(phi(scores.detach().cpu().numpy())) if isinstance(like, np.ndarray) else phi(scores)
        if not isinstance(value, Tensor) or value.shape != scores.shape:
            got = check.shape(value) if isinstance(value, Tensor) else type(value).__name__
            raise ValueError(
                f"`potential` must return one value per score; got {got} for {check.shape(scores)}. "
                "Apply it element by element."
            )
        if not bool(((value > 0) & value.isfinite()).all()):
            raise ValueError(
                "`potential` must be positive and finite on [0, 1]; got zero, a negative number, infinity or NaN. "
                "Add a small constant, or keep the scores away from where it vanishes."
            )
        return value.to(scores).log()

    reference = torch.linspace(0, 1, 65, dtype=torch.float64)
    on_device = reference if isinstance(like, np.ndarray) else reference.to(like.device)
    if (log(on_device).diff() < 0).any():
        raise ValueError("`potential` must increase on [0, 1]; got one that falls. A higher score has to attract more.")
    return log, None
