"""Cells of a lattice, and the three things done with them: reduce, spread, share.

Everything here works on flat batches: fields are (batch, *lattice), cell values are (batch, cells).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from usu import _checks as check
from usu.types import Array

#: A band or chunk of about this many pixels stays in the processor's cache while it is worked on.
_CACHED_PIXELS = 1 << 21
#: exp(-64) is far from the smallest number of single precision, so up to here 1 will do as everybody's maximum.
_MILD_RATE = 64.0


class Partition(Protocol):
    """A lattice cut into cells."""

    @property
    def sizes(self) -> Tensor:
        """Pixels per cell, int64."""

    @property
    def lattice(self) -> tuple[int, ...]:
        """The shape of the lattice."""

    def spread(self, values: Tensor) -> Tensor:
        """Give every pixel its cell's value."""

    def total(self, field: Tensor) -> Tensor:
        """Sum of a field over each cell, in float64."""

    def peak(self, field: Tensor) -> Tensor:
        """Maximum of a field over each cell; -inf in a cell without pixels."""

    def share(self, field: Tensor, mass: Tensor, rate: Tensor, *, unit: bool = False) -> tuple[Tensor, Tensor]:
        """mass · exp(rate · field) / Σ_cell exp(rate · field), and the logarithm of that sum.

        ``unit`` says that the field lies in [0, 1]: then a mild rate needs no search for the maximum of each cell.
        """

    def labels(self) -> Tensor:
        """The cell of each pixel, as one integer per pixel."""


def interval_of(pixels: int, cells: int, device: torch.device) -> Tensor:
    """Which of ``cells`` equal intervals each pixel's centre lies in: floor((i + 0.5) · cells / pixels), exactly.

    >>> interval_of(5, 2, torch.device("cpu")).tolist()
    [0, 0, 1, 1, 1]
    """
    i = torch.arange(pixels, device=device)
    return (2 * i + 1) * cells // (2 * pixels)


class Grid:
    """Cells of a regular grid; sides need not divide."""

    def __init__(self, grid: tuple[int, int], lattice: tuple[int, int], device: torch.device) -> None:
        self.grid = grid
        self._lattice = lattice
        self._row = interval_of(lattice[0], grid[0], device)
        self._column = interval_of(lattice[1], grid[1], device)
        self._heights = torch.bincount(self._row, minlength=grid[0])
        self._widths = torch.bincount(self._column, minlength=grid[1])
        #: The width of all columns where it is one; then views do what indices do, faster.
        self._width = lattice[1] // grid[1] if lattice[1] % grid[1] == 0 else None

    @property
    def sizes(self) -> Tensor:
        """Pixels per cell."""
        return (self._heights[:, None] * self._widths).flatten()

    @property
    def lattice(self) -> tuple[int, ...]:
        """The shape of the lattice."""
        return self._lattice

    def labels(self) -> Tensor:
        """The cell of each pixel, row by row."""
        return self._row[:, None] * self.grid[1] + self._column

    def spread(self, values: Tensor) -> Tensor:
        """Give every pixel its cell's value."""
        cells = values.reshape(-1, *self.grid)
        return cells.index_select(1, self._row).index_select(2, self._column)

    def total(self, field: Tensor) -> Tensor:
        """Sum over each cell, in float64."""
        parts = [self._sums(_rows(field, band).double()) for band in self._bands(field)]
        return torch.cat(parts, 1).flatten(1)

    def peak(self, field: Tensor) -> Tensor:
        """Maximum over each cell."""
        parts = [self._max_columns(_rows(field, band).amax(2)) for band in self._bands(field)]
        return torch.cat(parts, 1).flatten(1)

    def share(self, field: Tensor, mass: Tensor, rate: Tensor, *, unit: bool = False) -> tuple[Tensor, Tensor]:
        """The softmax of each cell times its mass, a few coarse rows at a time so that the work stays in the cache."""
        out = torch.empty_like(field, memory_format=torch.contiguous_format)
        mass = mass.reshape(-1, *self.grid)
        one_rate = float(rate) if rate.ndim == 0 else None
        rates = rate.expand(mass.shape[0], -1).reshape(-1, *self.grid).to(field.dtype) if rate.ndim else rate
        logs = []
        for band in self._bands(field):
            rows = slice(band.coarse, band.coarse + band.count)
            source, result = _rows(field, band), _rows(out, band)
            if one_rate is not None and unit and 0 < one_rate <= _MILD_RATE:
                top = field.new_tensor(one_rate)
                torch.add(-top, source, alpha=one_rate, out=result).exp_()
            elif one_rate is not None:
                top = self._max_columns(source.amax(2)) * one_rate
                torch.add(self._across(-top), source, alpha=one_rate, out=result).exp_()
            else:
                top = self._max_columns(source.amax(2))
                slope = rates[:, rows]
                # where the rate is negative the largest of rate · field is where the field is smallest
                top = torch.maximum(slope * top, slope * -self._max_columns(-source.amin(2)))
                torch.addcmul(self._across(-top), source, self._across(slope), out=result).exp_()
            partition_sum = self._sums(result)
            result.mul_(self._across((mass[:, rows] / partition_sum).to(field.dtype)))
            logs.append(top + partition_sum.log())
        return out, torch.cat(logs, 1).flatten(1)

    def _bands(self, field: Tensor) -> Iterator[_Band]:
        """Runs of coarse rows of equal height."""
        heights = self._heights.tolist()
        per_row = field.shape[0] * field.shape[2]
        coarse = pixel = 0
        while coarse < len(heights):
            height = heights[coarse]
            most = max(1, _CACHED_PIXELS // (per_row * height))
            count = 1
            while count < most and coarse + count < len(heights) and heights[coarse + count] == height:
                count += 1
            yield _Band(coarse, count, pixel, height)
            coarse, pixel = coarse + count, pixel + count * height

    def _across(self, cells: Tensor) -> Tensor:
        """(batch, coarse rows, grid columns) -> (batch, coarse rows, 1, lattice columns)."""
        if self._width is not None:
            return cells[..., None].expand(*cells.shape, self._width).reshape(*cells.shape[:2], 1, -1)
        return cells.index_select(2, self._column).unsqueeze(2)

    def _sums(self, rows: Tensor) -> Tensor:
        """Sums over the cells of a band, (batch, coarse rows, grid columns), in float64."""
        if self._width is not None:
            # one pixel row of one cell is short and contiguous: added in the field's own precision, it is right to a
            # few roundings and several times as fast; everything beyond it is added in float64
            short = rows.view(*rows.shape[:3], -1, self._width).sum(4)
            return short.sum(2, dtype=torch.float64)
        columns = rows.sum(2, dtype=torch.float64)
        cells = columns.new_zeros(*columns.shape[:2], self.grid[1])
        return cells.scatter_add(2, self._column.expand(columns.shape), columns)

    def _max_columns(self, columns: Tensor) -> Tensor:
        if self._width is not None:
            return columns.view(*columns.shape[:2], -1, self._width).amax(3)
        cells = columns.new_full((*columns.shape[:2], self.grid[1]), -torch.inf)
        return cells.scatter_reduce(2, self._column.expand(columns.shape), columns, "amax")


class _Band:
    """``count`` coarse rows from ``coarse`` on, each ``height`` pixels high, starting at row ``pixel``."""

    __slots__ = ("coarse", "count", "height", "pixel")

    def __init__(self, coarse: int, count: int, pixel: int, height: int) -> None:
        self.coarse, self.count, self.pixel, self.height = coarse, count, pixel, height


def _rows(field: Tensor, band: _Band) -> Tensor:
    """The band as (batch, coarse rows, pixel rows of each, columns), a view."""
    rows = field[:, band.pixel : band.pixel + band.count * band.height]
    return rows.view(len(field), band.count, band.height, -1)


class Labels:
    """Cells of any shape, given by one integer per pixel; a label no pixel has is a cell without pixels."""

    def __init__(self, labels: Tensor, cells: int) -> None:
        self._labels = labels
        self._flat = labels.flatten()
        self._sizes = torch.bincount(self._flat, minlength=cells)

    @property
    def sizes(self) -> Tensor:
        """Pixels per cell."""
        return self._sizes

    @property
    def lattice(self) -> tuple[int, ...]:
        """The shape of the lattice."""
        return tuple(self._labels.shape)

    def labels(self) -> Tensor:
        """The cell of each pixel."""
        return self._labels

    def spread(self, values: Tensor) -> Tensor:
        """Give every pixel its cell's value."""
        return values.index_select(1, self._flat).reshape(-1, *self.lattice)

    def total(self, field: Tensor) -> Tensor:
        """Sum over each cell, in float64, a chunk of pixels at a time."""
        flat = field.flatten(1)
        result = flat.new_zeros(flat.shape[0], len(self._sizes), dtype=torch.float64)
        step = max(1, _CACHED_PIXELS // flat.shape[0])
        for start in range(0, flat.shape[1], step):
            values, where = flat[:, start : start + step], self._flat[start : start + step]
            result = result.scatter_add(1, where.expand(values.shape), values.double())
        return result

    def peak(self, field: Tensor) -> Tensor:
        """Maximum over each cell."""
        flat = field.flatten(1)
        lowest = flat.new_full((flat.shape[0], len(self._sizes)), -torch.inf)
        return lowest.scatter_reduce(1, self._flat.expand(flat.shape), flat, "amax")

    def share(self, field: Tensor, mass: Tensor, rate: Tensor, *, unit: bool = False) -> tuple[Tensor, Tensor]:
        """The softmax of each cell times its mass. The maximum is always searched: ``unit`` would save little here."""
        out = self.spread(rate.expand(mass.shape).to(field.dtype)).mul_(field)
        top = self.peak(out).where(self._sizes > 0, 0)
        out.sub_(self.spread(top)).exp_()
        partition_sum = self.total(out).where(self._sizes > 0, 1)
        out.mul_(self.spread((mass / partition_sum).to(field.dtype)))
        return out, top + partition_sum.log()


class _Share(torch.autograd.Function):
    """`Partition.share` with its derivative: with w the shares, dÃ = w dM + M w (d logit - Σ w d logit)."""

    @staticmethod
    def forward(ctx: Any, field: Tensor, mass: Tensor, rate: Tensor, cells: Partition, unit: bool) -> Tensor:
        out, log_sum = cells.share(field, mass, rate, unit=unit)
        ctx.save_for_backward(field, mass, rate, log_sum)
        ctx.cells = cells
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        field, mass, rate, log_sum = ctx.saved_tensors
        cells: Partition = ctx.cells
        slope = cells.spread(rate.expand_as(mass).to(field.dtype))
        weight = (field * slope - cells.spread(log_sum.to(field.dtype))).exp()
        pulled = cells.total(gradient * weight)
        to_field = (
            cells.spread(mass.to(field.dtype)) * slope * weight * (gradient - cells.spread(pulled.to(field.dtype)))
        )
        return to_field, pulled.to(mass.dtype), None, None, None


def share(field: Tensor, mass: Tensor, rate: Tensor, cells: Partition, *, unit: bool = False) -> Tensor:
    """`Partition.share`, through autograd where a gradient is asked for; the numbers are the same."""
    if torch.is_grad_enabled() and (field.requires_grad or mass.requires_grad):
        return _Share.apply(field, mass, rate, cells, unit)  # type: ignore[no-any-return, no-untyped-call]
    return cells.share(field.detach(), mass.detach(), rate, unit=unit)[0]


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
                f"`scores` must be at least as large as the grid of `coarse` ({h} x {w}); got {height} x {width}."
            )
        batch = tuple(coarse.shape[:-2])
        _broadcastable(batch, tuple(scores.shape[:-2]), coarse, scores)
        return Grid((h, w), (height, width), coarse.device), batch

    labels = check.labels("cells", cells, like=coarse)
    if coarse.ndim < 1 or scores.shape[scores.ndim - labels.ndim :] != labels.shape or scores.ndim < labels.ndim:
        raise ValueError(
            f"`cells` must have the shape of the lattice that `scores` ends with; got {check.shape(labels)} for scores "
            f"of {check.shape(scores)}."
        )
    count = coarse.shape[-1]
    if (high := int(labels.max())) >= count:
        raise ValueError(f"`cells` must be labels from 0 to {count - 1}, one per value of `coarse`; got {high}.")
    batch = tuple(coarse.shape[:-1])
    _broadcastable(batch, tuple(scores.shape[: scores.ndim - labels.ndim]), coarse, scores)
    return Labels(labels, count), batch


def _broadcastable(left: tuple[int, ...], right: tuple[int, ...], coarse: Tensor, scores: Tensor) -> None:
    try:
        torch.broadcast_shapes(left, right)
    except RuntimeError:
        raise ValueError(
            f"`scores` must have leading dimensions that broadcast with those of `coarse` ({check.shape(coarse)}); "
            f"got {check.shape(scores)}."
        ) from None
