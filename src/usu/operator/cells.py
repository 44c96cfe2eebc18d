"""Cells of a lattice, and the three things done with them: reduce, spread, share.

Everything here works on flat batches: fields are (batch, *lattice), cell values are (batch, cells).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache, reduce
from itertools import pairwise
from math import prod
from typing import Protocol

import torch
from torch import Tensor

from usu import _checks as check
from usu.types import Array

#: A band or chunk of about this many pixels stays in the processor's cache while it is worked on.
CACHED_PIXELS = 1 << 21


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
        """Maximum of a field over each cell; -inf in a cell without pixels. No gradient."""

    def share(self, field: Tensor, mass: Tensor, rate: float | Tensor, *, mild: bool = False) -> Tensor:
        """mass · exp(rate · field) / Σ_cell exp(rate · field); a pixel of -inf gets nothing.

        ``mild`` says that the field lies in [0, 1] and nothing can overflow if 1 is taken for its maximum in each cell.
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


@lru_cache(maxsize=64)
def _lengths(pixels: int, cells: int) -> tuple[int, ...]:
    """Pixels of each cell of `interval_of`: cell k starts at the first i with (2i + 1) · cells >= 2 · pixels · k."""
    starts = [-((cells - 2 * pixels * k) // (2 * cells)) for k in range(cells + 1)]
    return tuple(after - first for first, after in pairwise(starts))


class Grid:
    """Cells of a regular grid; sides need not divide."""

    def __init__(self, grid: tuple[int, int], lattice: tuple[int, int], device: torch.device) -> None:
        self.grid = grid
        self.lattice = lattice
        self._device = device
        #: The width of all columns where it is one; then views do what indices do, faster.
        self._width = lattice[1] // grid[1] if lattice[1] % grid[1] == 0 else None

    @cached_property
    def _row(self) -> Tensor:
        return interval_of(self.lattice[0], self.grid[0], self._device)

    @cached_property
    def _column(self) -> Tensor:
        return interval_of(self.lattice[1], self.grid[1], self._device)

    @cached_property
    def sizes(self) -> Tensor:
        """Pixels per cell."""
        heights, widths = (
            torch.tensor(_lengths(n, k), device=self._device) for n, k in zip(self.lattice, self.grid, strict=True)
        )
        return (heights[:, None] * widths).flatten()

    def labels(self) -> Tensor:
        """The cell of each pixel, row by row."""
        return self._row[:, None] * self.grid[1] + self._column

    def spread(self, values: Tensor) -> Tensor:
        """Give every pixel its cell's value."""
        cells = values.reshape(-1, *self.grid)
        if self.grid == (1, 1):  # a view: nothing is written for each pixel
            return cells.expand(-1, *self.lattice)
        return cells.index_select(1, self._row).index_select(2, self._column)

    def total(self, field: Tensor) -> Tensor:
        """Sum over each cell, in float64."""
        counts = field.dtype == torch.bool
        parts = [
            reduce(torch.add, [self._sums(some if counts else some.double()) for (some,) in _few_rows(rows)])
            for _, (rows,) in self._bands(field)
        ]
        return torch.cat(parts, 1).reshape(len(field), -1)

    def peak(self, field: Tensor) -> Tensor:
        """Maximum over each cell."""
        field = field.detach()
        parts = [self._max_columns(rows.amax(2)) for _, (rows,) in self._bands(field)]
        return torch.cat(parts, 1).reshape(len(field), -1)

    def share(self, field: Tensor, mass: Tensor, rate: float | Tensor, *, mild: bool = False) -> Tensor:
        """The softmax of each cell times its mass, a few coarse rows at a time so that the work stays in the cache."""
        out = torch.empty_like(field, memory_format=torch.contiguous_format)
        mass = mass.reshape(-1, *self.grid)
        rates = rate.reshape(-1, *self.grid).to(field.dtype) if isinstance(rate, Tensor) else None
        one = field.new_tensor(-rate) if mild else field
        steep = rate if mild and isinstance(rate, float) else None
        for rows, (source, result) in self._bands(field, out):
            if steep is None:
                top = self._max_columns(source.amax(2))
                if rates is not None:  # where the rate is negative the largest of rate · field is at the smallest field
                    top = top.where(rates[:, rows] > 0, -self._max_columns(-source.amin(2)))
                slope = rate if rates is None else self._across(rates[:, rows])
                high = self._across(finite_or_zero(top))
            parts = []
            for some, made in _few_rows(source, result):
                if steep is not None:
                    torch.add(one, some, alpha=steep, out=made)
                else:  # the field's own differences are exact; those of rate · field would not be
                    torch.sub(some, high, out=made).mul_(slope)
                parts.append(self._sums(made.exp_()))
            sums = reduce(torch.add, parts)
            sums = sums.where(sums > 0, 1) if steep is None else sums
            result.mul_(self._across((mass[:, rows] / sums).to(field.dtype)))
        return out

    def _bands(self, *fields: Tensor) -> Iterator[tuple[slice, list[Tensor]]]:
        """Runs of coarse rows of equal height, with views (batch, coarse rows, pixel rows of each, columns) of them."""
        heights = _lengths(self.lattice[0], self.grid[0])
        batch, _, columns = fields[0].shape
        coarse = pixel = 0
        while coarse < len(heights):
            height, count = heights[coarse], 1
            most = CACHED_PIXELS // (batch * columns * height)
            while count < most and coarse + count < len(heights) and heights[coarse + count] == height:
                count += 1
            bands = [field.narrow(1, pixel, count * height).view(batch, count, height, columns) for field in fields]
            yield slice(coarse, coarse + count), bands
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


def _few_rows(*bands: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Bands of cells too tall for the cache, a few of their pixel rows at a time."""
    step = CACHED_PIXELS * bands[0].shape[2] // max(1, bands[0].numel())
    if step >= bands[0].shape[2]:
        return iter((bands,))
    return zip(*(band.split(max(1, step), 2) for band in bands), strict=True)


def finite_or_zero(top: Tensor) -> Tensor:
    """Zero for the maximum of a cell that has none."""
    return top.where(top.isfinite(), 0)


class Labels:
    """Cells of any shape, given by one integer per pixel; a label no pixel has is a cell without pixels.

    ``grid``: the shape of the coarse map, where the cells are those of a grid (`boxes`).
    """

    def __init__(self, labels: Tensor, cells: int, grid: tuple[int, ...] | None = None) -> None:
        self.grid = grid
        self._labels = labels
        self._flat = labels.flatten()
        self.lattice = tuple(labels.shape)
        self.sizes = torch.bincount(self._flat, minlength=cells)

    @property
    def ndim(self) -> int:
        """Dimensions of the lattice."""
        return len(self.lattice)

    def labels(self) -> Tensor:
        """The cell of each pixel."""
        return self._labels

    def spread(self, values: Tensor) -> Tensor:
        """Give every pixel its cell's value."""
        return values.index_select(1, self._flat).reshape(-1, *self.lattice)

    def total(self, field: Tensor) -> Tensor:
        """Sum over each cell, in float64, a chunk of pixels at a time."""
        flat = field.reshape(len(field), -1)
        result = flat.new_zeros(flat.shape[0], len(self.sizes), dtype=torch.float64)
        step = max(1, CACHED_PIXELS // flat.shape[0])
        for start in range(0, flat.shape[1], step):
            where = self._flat[start : start + step]
            values = flat.narrow(1, start, len(where))
            result = result.scatter_add(1, where.expand(values.shape), values.double())
        return result

    def peak(self, field: Tensor) -> Tensor:
        """Maximum over each cell."""
        flat = field.detach().flatten(1)
        lowest = flat.new_full((flat.shape[0], len(self.sizes)), -torch.inf)
        return lowest.scatter_reduce(1, self._flat.expand(flat.shape), flat, "amax")

    def share(self, field: Tensor, mass: Tensor, rate: float | Tensor, *, mild: bool = False) -> Tensor:
        """The softmax of each cell times its mass. The maximum is always searched: ``mild`` would save little here."""
        return plain_share(field, mass, rate, self)


def grid_size(scores: Tensor, cells: Array | Labels | None) -> tuple[int, ...] | None:
    """The lattice of a grid of cells: a picture, unless ``cells`` say otherwise; None where they are no grid."""
    if cells is None:
        return tuple(scores.shape[-2:])
    return cells.lattice if isinstance(cells, Labels) and cells.grid is not None else None


def inner_dims(cells: Array | Labels | None) -> int:
    """How many dimensions of a coarse map are one map's: those of its grid, or the one that counts cells."""
    return 2 if cells is None else len(cells.grid) if isinstance(cells, Labels) and cells.grid else 1


def side_of(size: Sequence[int]) -> int:
    """What lengths are measured by: the shorter side of a picture, a signal's length, a volume's second side.

    >>> side_of((500,)), side_of((480, 640)), side_of((16, 112, 128))
    (500, 480, 112)
    """
    return sorted(size)[-2:][0]


def boxes(grid: Sequence[int], lattice: Sequence[int], device: torch.device | None = None) -> Labels:
    """Cells of a regular grid in any number of dimensions, for `usu.redistribute` of signals and volumes.

    >>> boxes((2, 1, 2), (2, 1, 3)).labels().tolist()
    [[[0, 1, 1]], [[2, 3, 3]]]
    """
    labels = torch.zeros((), dtype=torch.int64, device=device)
    for cells, pixels in zip(grid, lattice, strict=True):
        labels = labels[..., None] * cells + interval_of(pixels, cells, labels.device)
    return Labels(labels, prod(grid), tuple(grid))


def plain_share(field: Tensor, mass: Tensor, rate: float | Tensor, cells: Partition) -> Tensor:
    """`Partition.share` in steps that torch can differentiate and transform as often as it likes."""
    weight = centred(field, rate, cells).exp()
    sums = cells.total(weight)
    return weight * cells.spread((mass / sums.where(sums > 0, 1)).to(field.dtype))


def centred(field: Tensor, rate: float | Tensor, cells: Partition) -> Tensor:
    """rate · (field - its maximum in the cell, or minimum where the rate is negative): logits, the largest of them 0.

    The field's own differences are taken first, because they are exact and those of rate · field are not.
    """
    top = cells.peak(field)
    if isinstance(rate, Tensor):
        top = top.where(rate > 0, -cells.peak(-field))
        rate = cells.spread(rate.to(field.dtype))
    return (field - cells.spread(finite_or_zero(top))) * rate


def rank_within(cells: Partition, order: Tensor) -> Tensor:
    """The place of each pixel (..., *lattice) among those of its cell, for pixel indices in ``order`` (..., pixels).

    >>> rank_within(Labels(torch.tensor([0, 1, 0, 1]), 2), torch.tensor([3, 2, 1, 0]))
    tensor([1, 1, 0, 0])
    """
    labels, sizes = cells.labels().flatten(), cells.sizes
    order = order.gather(-1, labels[order].argsort(dim=-1, stable=True))  # cell by cell
    place = torch.arange(len(labels), device=order.device) - (sizes.cumsum(0) - sizes)[labels[order]]
    return torch.zeros_like(order).scatter(-1, order, place).reshape(*order.shape[:-1], *cells.lattice)


def partition_of(
    coarse: Tensor, field: Tensor, cells: Array | Labels | None, name: str = "scores"
) -> tuple[Partition, tuple[int, ...]]:
    """The cells of ``coarse`` on the lattice of ``field``, whose argument is ``name``; and its leading dimensions."""
    if isinstance(cells, Labels):
        grid = cells.grid or (len(cells.sizes),)
        if coarse.shape[-len(grid) :] != grid or field.shape[-len(cells.lattice) :] != cells.lattice:
            form, size = (" x ".join(map(str, shape)) for shape in (grid, cells.lattice))
            raise ValueError(
                f"`cells` must be those of `coarse` and `{name}`, which end with {form} and {size}; got "
                f"{check.shape(coarse)} and {check.shape(field)}."
            )
        return cells, tuple(coarse.shape[: -len(grid)])
    if cells is None:
        if coarse.ndim < 2 or field.ndim < 2:
            raise ValueError(
                f"`coarse` and `{name}` must have at least two dimensions, (..., h, w) and (..., H, W); got "
                f"{check.shape(coarse)} and {check.shape(field)}. For other lattices pass `cells`."
            )
        return grid_on(name, field.shape[-2:], coarse), tuple(coarse.shape[:-2])
    labels = check.labels("cells", cells, like=coarse)
    if coarse.ndim < 1 or field.shape[field.ndim - labels.ndim :] != labels.shape or field.ndim < labels.ndim:
        raise ValueError(
            f"`cells` must have the shape of the lattice that `{name}` ends with; got {check.shape(labels)} for "
            f"{check.shape(field)}."
        )
    count = coarse.shape[-1]
    if (high := int(labels.max())) >= count:
        raise ValueError(f"`cells` must be labels from 0 to {count - 1}, one per value of `coarse`; got {high}.")
    return Labels(labels, count), tuple(coarse.shape[:-1])


def grid_on(name: str, size: Sequence[int], coarse: Tensor) -> Grid:
    """The grid of ``coarse`` (..., h, w) on the pixels of the argument ``name``; every cell needs one."""
    (h, w), (height, width) = coarse.shape[-2:], size
    if height < h or width < w:
        wanted = f"at least as large as the grid of `coarse` ({h} x {w})"
        raise ValueError(f"`{name}` must be {wanted}; got {height} x {width}.")
    return Grid((h, w), (height, width), coarse.device)
