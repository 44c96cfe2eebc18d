"""The bootstrap: pictures are drawn with replacement, both sides of a pair together; BCa intervals (Efron 1987)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from usu.stats.pairs import numbers, pairs
from usu.types import NDArray

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

#: Numbers drawn at a time; keeps any size of problem within some tens of megabytes.
_CHUNK = 2**21
#: The jackknife leaves one out, and a standard deviation needs two.
LEAST = 3


@dataclass(frozen=True)
class Interval:
    """An estimate between two ends."""

    low: float
    high: float
    estimate: float
    confidence: float = 0.95


def bootstrap(
    statistic: Callable[..., Any],
    a: ArrayLike,
    b: ArrayLike | None = None,
    *,
    resamples: int = 10_000,
    confidence: float = 0.95,
    seed: int = 0,
) -> Interval:
    """BCa interval of ``statistic(a)`` or ``statistic(a, b)``: quantiles of its values on resampled pictures.

    The quantiles are corrected for bias (z_0, from the share of values below the estimate) and for skewness
    (acceleration, from the jackknife): Φ(z_0 + (z_0 + z_α) / (1 - acc (z_0 + z_α))).

    Args:
        statistic: numbers in, a number out. One that takes ``axis`` (as numpy's do) is called on many resamples at
            once, any other once per resample.
        a, b: one number per picture; pairs stay together. At least 3 pictures.
        resamples: how many times the pictures are drawn.
        confidence: of the interval.
        seed: the same seed draws the same pictures, whatever the statistic.

    Guarantees:
        The numbers of scipy's BCa for the same draws. Where that is undefined: a statistic that is the same on every
        resample has the interval from itself to itself; an estimate outside all resampled values counts as half a
        resample inside; without a finite jackknife there is no acceleration; infinite values are largest.

    >>> bootstrap(np.mean, [5.0, 5.0, 5.0])
    Interval(low=5.0, high=5.0, estimate=5.0, confidence=0.95)
    """
    data = (numbers("a", a, least=LEAST),) if b is None else pairs(a, b, least=LEAST)
    n = len(data[0])
    checked_confidence(confidence)
    checked_draws(resamples, seed)
    estimate = float(_values(statistic, data, iter([np.arange(n)[None]]))[0])
    drawn = _values(statistic, data, _draws(n, resamples, seed))
    if np.isnan(estimate) or np.isnan(drawn).any():
        raise ValueError(
            f"`statistic` must be a number on every resample; got NaN ({np.isnan(drawn).sum()} of {resamples}). "
            "Say what it is where all drawn pictures are the same."
        )
    left_out = _values(statistic, data, _leave_one_out(n))
    low, high = bca(np.array([estimate]), drawn[None], left_out[None], confidence)
    return Interval(float(low[0]), float(high[0]), estimate, confidence)


def moments(columns: NDArray, *, resamples: int, confidence: float, seed: int) -> tuple[list[Interval], list[Interval]]:
    """`bootstrap` of the mean, and of the mean over the standard deviation, for every column (n, k) at once.

    Both follow from how often each picture was drawn, so all columns share one product with that matrix of counts:
    Σ c x and Σ c x².
    """
    n, width = columns.shape
    largest = np.abs(columns).max(0)
    unit = np.where(largest > 0, largest, 1.0)  # so that no square under- or overflows
    center = (columns / unit).mean(0)
    x = columns / unit - center
    both = np.concatenate([x, x**2], axis=1)
    sums = np.empty((2 * width, resamples))
    start = 0
    for index in _draws(n, resamples, seed):
        rows = len(index)
        index += n * np.arange(rows)[:, None]
        counts = np.bincount(index.ravel(), minlength=rows * n).reshape(rows, n).astype(np.float64)
        sums[:, start : start + rows] = (counts @ both).T
        start += rows
    means, ratios = _mean_and_ratio(center, sums[:width] / n, sums[width:] / n, n)
    square = (x**2).sum(0)
    left_mean, left_ratio = _mean_and_ratio(center, (-x / (n - 1)).T, ((square - x**2) / (n - 1)).T, n - 1)
    whole_mean, whole_ratio = (v[:, 0] for v in _mean_and_ratio(center, np.zeros((width, 1)), square[:, None] / n, n))
    results = []
    for scale, estimate, drawn, left in ((unit, whole_mean, means, left_mean), (1, whole_ratio, ratios, left_ratio)):
        ends = zip(*(scale * end for end in (*bca(estimate, drawn, left, confidence), estimate)), strict=True)
        results.append([Interval(float(low), float(high), float(middle), confidence) for low, high, middle in ends])
    return results[0], results[1]


def _mean_and_ratio(center: NDArray, first: NDArray, second: NDArray, n: int) -> tuple[NDArray, NDArray]:
    """Mean and mean / standard deviation (n - 1) from the first two moments (k, ...) around ``center``."""
    mean = center[:, None] + first
    # a resample of one value repeated: what is left of mean and variance is rounding
    mean[np.abs(mean) <= 1e-13 * (np.abs(center)[:, None] + np.abs(first))] = 0
    variance = second - first**2
    variance[variance <= 1e-13 * second] = 0
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = mean / np.sqrt(variance * n / (n - 1))
    return mean, np.where((mean == 0) & (variance == 0), 0.0, ratio)


def bca(estimate: NDArray, drawn: NDArray, left_out: NDArray, confidence: float) -> tuple[NDArray, NDArray]:
    """Ends (k,) from estimates (k,), values on resamples (k, R) and with one picture left out (k, n)."""
    from scipy.special import ndtr, ndtri

    resamples = drawn.shape[1]
    ordered = np.sort(drawn, axis=1)
    usual = np.abs(np.stack([estimate, ordered[:, resamples // 4], ordered[:, 3 * resamples // 4]]))
    # sums of the same numbers in another order are equal, though not to the last bit
    close = 1e-12 * np.where(np.isfinite(usual), usual, 0).max(0)
    with np.errstate(invalid="ignore"):
        same = (drawn == estimate[:, None]) | (np.abs(drawn - estimate[:, None]) <= close[:, None])
    below = ((drawn < estimate[:, None]) & ~same).mean(1) + same.mean(1) / 2
    bias = ndtri(np.clip(below, 0.5 / resamples, 1 - 0.5 / resamples))
    acceleration = _acceleration(left_out)
    ends = []
    for side in (-1, 1):
        reach = bias + side * ndtri((1 + confidence) / 2)
        brake = 1 - acceleration * reach
        with np.errstate(divide="ignore", invalid="ignore"):
            z = np.where(brake > 0, bias + reach / brake, np.copysign(np.inf, reach))
        ends.append(_quantile(ordered, ndtr(z), side))
    return ends[0], ends[1]


def _acceleration(left_out: NDArray) -> NDArray:
    """Σ u³ / (6 (Σ u²)^1.5) with u = mean - value; 0 where nothing moves or a value is infinite."""
    values = np.where(np.isfinite(left_out).all(1, keepdims=True), left_out, 0)
    u = values.mean(1, keepdims=True) - values
    largest = np.abs(u).max(1, keepdims=True)
    u = np.where(largest > 0, u / np.where(largest > 0, largest, 1), 0)
    return np.asarray((u**3).sum(1) / (6 * np.maximum((u**2).sum(1), 1) ** 1.5))


def _quantile(ordered: NDArray, level: NDArray, side: int) -> NDArray:
    """Linear between the sorted values (k, R); beside an infinite one, the outer of the two."""
    place = level * (ordered.shape[1] - 1)
    lower = np.floor(place).astype(int)
    rows = np.arange(len(ordered))
    one, two = ordered[rows, lower], ordered[rows, np.minimum(lower + 1, ordered.shape[1] - 1)]
    share = place - lower
    with np.errstate(invalid="ignore"):
        between = one + share * (two - one)
    outer = np.where(share == 0, one, one if side < 0 else two)
    return np.asarray(np.where(np.isfinite(one) & np.isfinite(two), between, outer))


def _draws(n: int, resamples: int, seed: int) -> Iterator[NDArray]:
    """Rows of n indices, ``resamples`` in all, a chunk at a time; the chunks are one stream of random numbers."""
    generator = np.random.default_rng(seed)
    step = max(1, _CHUNK // n)
    for start in range(0, resamples, step):
        yield generator.integers(0, n, (min(step, resamples - start), n))


def _leave_one_out(n: int) -> Iterator[NDArray]:
    """Row i holds every index but i."""
    step, others = max(1, _CHUNK // n), np.arange(n - 1)
    for start in range(0, n, step):
        gone = np.arange(start, min(start + step, n))[:, None]
        yield others + (others >= gone)


def _values(statistic: Callable[..., Any], data: tuple[NDArray, ...], chunks: Iterator[NDArray]) -> NDArray:
    try:
        vectorised = "axis" in inspect.signature(statistic).parameters
    except ValueError:  # a function written in C that does not say
        vectorised = False
    found: list[NDArray] = []
    for index in chunks:
        drawn = [side[index] for side in data]
        values = statistic(*drawn, axis=-1) if vectorised else [statistic(*rows) for rows in zip(*drawn, strict=True)]
        found.append(np.asarray(values, dtype=np.float64))
        if found[-1].shape != (len(index),):
            raise ValueError(
                f"`statistic` must give one number per resample; got shape {found[-1].shape} for {len(index)} of "
                "them. Let it reduce the axis it is given."
            )
    return np.concatenate(found)


def checked_confidence(confidence: float) -> float:
    """Strictly between 0 and 1."""
    if isinstance(confidence, bool) or not isinstance(confidence, (float, np.floating)) or not 0 < confidence < 1:
        raise ValueError(f"`confidence` must be a number between 0 and 1; got {confidence!r}. 0.95 is usual.")
    return float(confidence)


def checked_draws(resamples: int, seed: int) -> None:
    """Whole numbers: at least one resample, a seed that is not negative."""
    for name, value, least, advice in (
        ("resamples", resamples, 1, "10,000 is usual."),
        ("seed", seed, 0, "0 is the default."),
    ):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
            raise ValueError(f"`{name}` must be a whole number of at least {least}; got {value!r}. {advice}")
