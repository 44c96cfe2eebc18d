"""Random redistribution problems for the laws: shapes, dtypes, signs, partitions and temperatures."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st


@dataclass(frozen=True)
class Problem:
    """One coarse map, one score field and the cells between them."""

    coarse: np.ndarray  # (h, w) on a grid, (K,) with labels
    scores: np.ndarray
    labels: np.ndarray  # always given, so that a law can sum cells by itself
    on_grid: bool
    temperature: float

    @property
    def cells(self) -> np.ndarray | None:
        return None if self.on_grid else self.labels

    @property
    def values(self) -> np.ndarray:
        return self.coarse.reshape(-1)

    @property
    def sizes(self) -> np.ndarray:
        return np.bincount(self.labels.reshape(-1), minlength=self.values.size)

    @property
    def masses(self) -> np.ndarray:
        return self.values.astype(np.float64) * self.sizes

    def sums(self, field: np.ndarray) -> np.ndarray:
        """Sum of a field over each cell, by counting."""
        return np.bincount(self.labels.reshape(-1), field.reshape(-1).astype(np.float64), self.values.size)


def grid_labels(grid: tuple[int, int], size: tuple[int, int]) -> np.ndarray:
    """The reading's rule, floor((i + 0.5) h / H), in integers."""
    rows, columns = (np.array([(2 * i + 1) * k // (2 * n) for i in range(n)]) for k, n in zip(grid, size, strict=True))
    return rows[:, None] * grid[1] + columns


def values(rng: np.random.Generator, shape: tuple[int, ...], sign: str) -> np.ndarray:
    field = rng.normal(size=shape)
    match sign:
        case "positive":
            return np.abs(field) + 0.01
        case "rectified":
            return np.maximum(field, 0)
        case "negative":
            return -np.abs(field)
        case "zero":
            return np.zeros(shape)
    return field


def score_field(rng: np.random.Generator, shape: tuple[int, ...], kind: str) -> np.ndarray:
    match kind:
        case "constant":
            return np.full(shape, rng.random())
        case "binary":
            return rng.integers(0, 2, shape).astype(float)
        case "segments":
            return rng.random(5)[rng.integers(0, 5, shape)]
    return rng.random(shape)


SIGNS = ("positive", "rectified", "signed", "negative", "zero")
SCORES = ("continuous", "segments", "binary", "constant")


@st.composite
def problems(
    draw: st.DrawFn,
    *,
    signs: tuple[str, ...] = SIGNS,
    kinds: tuple[str, ...] = SCORES,
    dtypes: tuple[str, ...] = ("float64",),
    temperatures: tuple[float, float] = (1e-3, 1e3),
    on_grid: bool | None = None,
) -> Problem:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    low, high = np.log10(temperatures)
    temperature = 10 ** draw(st.floats(float(low), float(high)))
    sign, kind = draw(st.sampled_from(signs)), draw(st.sampled_from(kinds))
    dtype = draw(st.sampled_from(dtypes))
    if on_grid if on_grid is not None else draw(st.booleans()):
        grid = (draw(st.integers(1, 9)), draw(st.integers(1, 9)))
        size = (grid[0] + draw(st.integers(0, 40)), grid[1] + draw(st.integers(0, 40)))
        coarse, labels = values(rng, grid, sign), grid_labels(grid, size)
        gridded = True
    else:
        size = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=3)))  # a line, a picture, a volume
        count = draw(st.integers(1, 12))
        labels = rng.integers(0, count, size)
        coarse = values(rng, (count,), sign)
        gridded = False
    scores = score_field(rng, labels.shape, kind)
    return Problem(coarse.astype(dtype), scores.astype(dtype), labels, gridded, temperature)
