"""Cells of a lattice, and the three things done with them: reduce, spread, share.

Everything here works on flat batches: fields are (batch, *lattice), cell values are (batch, cells).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache, reduce
from itertools import pairwise
from math import prod
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.autograd import forward_ad

from usu import _checks as check
from usu.types import Array

#: A band or chunk of about this many pixels stays in the processor's cache while it is worked on.
CACHED_PIXELS = 1 << 21


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
    """Cells of a regular grid over a picture; sides need not divide."""

    def __init__(self, grid: tuple[int, int], lattice: tuple[int, int], device: torch.device) -> None:
        self.grid, self.lattice, self._device = grid, lattice, device
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
        """Pixels per cell, int64."""
        heights, widths = (torch.tensor(n, device=self._device) for n in map(_lengths, self.lattice, self.grid))
        return torch.outer(heights, widths).flatten()

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
        """Sum of a field over each cell, in float64."""
        counts = field.dtype == torch.bool
        parts = [
            reduce(torch.add, [self._sums(some if counts else some.double()) for (some,) in _few_rows(rows)])
            for _, (rows,) in self._bands(field)
        ]
        return torch.cat(parts, 1).reshape(len(field), -1)

    def peak(self, field: Tensor) -> Tensor:
        """Maximum of a field over each cell; -inf in a cell without pixels. No gradient."""
        parts = [self._max_columns(rows.amax(2)) for _, (rows,) in self._bands(field.detach())]
        return torch.cat(parts, 1).reshape(len(field), -1)

    def share(self, field: Tensor, mass: Tensor, rate: float | Tensor, *, mild: bool = False) -> Tensor:
        """mass · exp(rate · field) / Σ_cell exp(rate · field), a few rows at a time; a pixel of -inf gets nothing.

        ``mild`` says that the field lies in [0, 1] and nothing can overflow if 1 is taken for its maximum in each cell.
        """
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


class Labels:
    """Cells of any shape, given by one integer per pixel; a label no pixel has is a cell without pixels.

    It does what `Grid` does. ``grid``: the shape of the coarse map, where the cells are those of a grid (`boxes`).
    """

    def __init__(self, labels: Tensor, cells: int, grid: tuple[int, ...] | None = None) -> None:
        self.grid, self.lattice, self.ndim = grid, tuple(labels.shape), labels.ndim
        self._flat = labels.flatten()
        self.sizes = torch.bincount(self._flat, minlength=cells)

    def labels(self) -> Tensor:
        """The cell of each pixel."""
        return self._flat.reshape(self.lattice)

    def spread(self, values: Tensor) -> Tensor:
        """Give every pixel its cell's value."""
        return values.index_select(1, self._flat).reshape(-1, *self.lattice)

    def total(self, field: Tensor) -> Tensor:
        """Sum over each cell, in float64, a chunk of pixels at a time."""
        flat = field.reshape(len(field), -1)
        result = flat.new_zeros(flat.shape[0], len(self.sizes), dtype=torch.float64)
        step = max(1, CACHED_PIXELS // flat.shape[0])
        for where, values in zip(self._flat.split(step), flat.split(step, 1), strict=True):
            result = result.scatter_add(1, where.expand(values.shape), values.double())
        return result

    def peak(self, field: Tensor) -> Tensor:
        """Maximum over each cell."""
        flat = field.detach().flatten(1)
        lowest = flat.new_full((flat.shape[0], len(self.sizes)), -torch.inf)
        return lowest.scatter_reduce(1, self._flat.expand(flat.shape), flat, "amax")

    def share(self, field: Tensor, mass: Tensor, rate: float | Tensor, *, mild: bool = False) -> Tensor:
        """The softmax of each cell times its mass. The maximum is always searched: ``mild`` would save little here."""
        return _plain_share(field, mass, rate, self)


#: A lattice cut into cells.
Partition: TypeAlias = Grid | Labels


def boxes(grid: Sequence[int], lattice: Sequence[int], device: torch.device | None = None) -> Labels:
    """Cells of a regular grid in any number of dimensions, for `usu.redistribute` of signals and volumes.

    >>> boxes((2, 1, 2), (2, 1, 3)).labels().tolist()
    [[[0, 1, 1]], [[2, 3, 3]]]
    """
    labels = torch.zeros((), dtype=torch.int64, device=device)
    for cells, pixels in zip(grid, lattice, strict=True):
        labels = labels[..., None] * cells + interval_of(pixels, cells, labels.device)
    return Labels(labels, prod(grid), tuple(grid))


def partition_of(
    coarse: Tensor, field: Tensor, cells: Array | Labels | None, name: str = "scores"
) -> tuple[Partition, tuple[int, ...]]:
    """The cells of ``coarse`` on the lattice of ``field``, whose argument is ``name``; and its leading dimensions."""
    if cells is None:
        if coarse.ndim < 2 or field.ndim < 2:
            raise ValueError(
                f"`coarse` and `{name}` must have at least two dimensions, (..., h, w) and (..., H, W); got "
                f"{check.shape(coarse)} and {check.shape(field)}. For other lattices pass `cells`."
            )
        return grid_on(name, field.shape[-2:], coarse), tuple(coarse.shape[:-2])
    if not isinstance(cells, Labels):
        labels, count = check.labels("cells", cells, like=coarse), coarse.shape[-1] if coarse.ndim else 1
        if (high := int(labels.max())) >= count:
            raise ValueError(f"`cells` must be labels from 0 to {count - 1}, one per value of `coarse`; got {high}.")
        cells = Labels(labels, count)
    grid, lattice = cells.grid or (len(cells.sizes),), cells.lattice
    form, size = (" x ".join(map(str, shape)) for shape in (grid, lattice))
    if field.shape[field.ndim - len(lattice) :] != lattice:
        wanted = f"the shape of the lattice that `{name}` ({check.shape(field)}) ends with"
        raise ValueError(f"`cells` must have {wanted}; got {size}.")
    if coarse.shape[-len(grid) :] != grid:
        raise ValueError(
            f"`cells` must be those of `coarse` ({check.shape(coarse)}); got the cells of a map of {form}."
        )
    return cells, tuple(coarse.shape[: -len(grid)])


def grid_on(name: str, size: Sequence[int], coarse: Tensor) -> Grid:
    """The grid of ``coarse`` (..., h, w) on the pixels of the argument ``name``; every cell needs one."""
    (h, w), (height, width) = coarse.shape[-2:], size
    if height < h or width < w:
        wanted = f"at least as large as the grid of `coarse` ({h} x {w})"
        raise ValueError(f"`{name}` must be {wanted}; got {height} x {width}.")
    return Grid((h, w), (height, width), coarse.device)


def share(field: Tensor, mass: Tensor, rate: float | Tensor, cells: Partition, *, mild: bool = False) -> Tensor:
    """`Grid.share`, with the derivatives that are asked for.

    `torch.func` and forward mode nest to any depth, which a Function of its own does not bear: they get plain steps.
    """
    if _transformed(field) or _transformed(mass):
        return _plain_share(field, mass, rate, cells)
    if torch.is_grad_enabled() and (field.requires_grad or mass.requires_grad):
        return _Share.apply(field, mass, rate, cells, mild)  # type: ignore[no-any-return, no-untyped-call]
    return cells.share(field.detach(), mass.detach(), rate, mild=mild)


class _Share(torch.autograd.Function):
    """`Grid.share` with its gradient: with w the shares, dÃ = w dM + M w rate (dF - Σ w dF).

    It is made of differentiable steps, one of them the function itself, so there are gradients of any order.
    """

    @staticmethod
    def forward(ctx: Any, field: Tensor, mass: Tensor, rate: float | Tensor, cells: Partition, mild: bool) -> Tensor:
        ctx.save_for_backward(field, mass)
        ctx.rest = rate, cells, mild
        return cells.share(field, mass, rate, mild=mild)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        field, mass = ctx.saved_tensors
        rate, cells, mild = ctx.rest
        weight = share(field, torch.ones_like(mass), rate, cells, mild=mild)
        pulled = cells.total(gradient * weight)
        slope = cells.spread(rate.to(field.dtype)) if isinstance(rate, Tensor) else rate
        to_field = weight * (gradient - cells.spread(pulled.to(weight.dtype))) * slope
        return to_field * cells.spread(mass.to(field.dtype)), pulled, None, None, None


def _plain_share(field: Tensor, mass: Tensor, rate: float | Tensor, cells: Partition) -> Tensor:
    """`Grid.share` in steps that torch can differentiate and transform as often as it likes."""
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


def finite_or_zero(top: Tensor) -> Tensor:
    """Zero for the maximum of a cell that has none."""
    return top.where(top.isfinite(), 0)


def in_bands(work: Callable[..., Tensor], *fields: Tensor) -> Tensor:
    """What ``work`` makes of each pixel of fields (B, *lattice), a few rows at a time, so that they stay in the cache.

    All at once where derivatives are asked for, which remember what was on the way.
    """
    rows = fields[0].shape[1]
    step = max(1, CACHED_PIXELS * rows // max(1, fields[0].numel()))
    tracked = torch.is_grad_enabled() and any(field.requires_grad for field in fields)
    if step >= rows or tracked or any(map(_transformed, fields)):
        return work(*fields)
    out = torch.empty_like(fields[0], memory_format=torch.contiguous_format)
    for start in range(0, rows, step):
        some = slice(start, start + step)
        out[:, some] = work(*(field[:, some] for field in fields))
    return out


def _transformed(tensor: Tensor) -> bool:
    """Whether `torch.func` or forward-mode differentiation is at work on it."""
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    return wrapped or forward_ad.unpack_dual(tensor).tangent is not None
