"""The bootstrap: pictures are drawn with replacement, both sides of a pair together; BCa intervals (Efron 1987)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from usu import _checks as check
from usu.types import NDArray

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


def moments(columns: NDArray, *, resamples: int, confidence: float, seed: int) -> tuple[list[Interval], list[Interval]]:
    """BCa intervals of the mean, and of the mean over the standard deviation (n - 1), for every column (n, k) at once.

    Ends are quantiles of the values on resampled pictures, corrected for bias (z_0, from the share of values below the
    estimate) and for skewness (acceleration, from the jackknife): Φ(z_0 + (z_0 + z_α) / (1 - acc (z_0 + z_α))).
    Both statistics follow from how often each picture was drawn, so all columns share one product with that matrix of
    counts: Σ c x and Σ c x². The same seed draws the same pictures, whatever the columns.

    Guarantees:
        The numbers of `scipy.stats.bootstrap` for the same draws. Where that is undefined: a statistic that is the same
        on every resample has the interval from itself to itself; an estimate outside all resampled values counts as
        half a resample inside; without a finite jackknife there is no acceleration; infinite values are largest.
    """
    n, width = columns.shape
    largest = np.abs(columns).max(0)
    unit = np.where(largest > 0, largest, 1.0)  # so that no square under- or overflows
    center = (columns / unit).mean(0)
    x = columns / unit - center
    both = np.concatenate([x, x**2], axis=1)
    sums = np.empty((2 * width, resamples))
    generator, step = np.random.default_rng(seed), max(1, _CHUNK // n)
    for start in range(0, resamples, step):  # the chunks are one stream of random numbers
        rows = min(step, resamples - start)
        index = generator.integers(0, n, (rows, n)) + n * np.arange(rows)[:, None]
        counts = np.bincount(index.ravel(), minlength=rows * n).reshape(rows, n).astype(np.float64)
        sums[:, start : start + rows] = (counts @ both).T
    square = (x**2).sum(0)
    whole = _mean_and_ratio(center, np.zeros((width, 1)), square[:, None] / n, n)
    drawn = _mean_and_ratio(center, sums[:width] / n, sums[width:] / n, n)
    left_out = _mean_and_ratio(center, (-x / (n - 1)).T, ((square - x**2) / (n - 1)).T, n - 1)
    found = []
    for kind, scales in enumerate((unit, np.ones(width))):
        columns_of = zip(whole[kind][:, 0], drawn[kind], left_out[kind], scales, strict=True)
        found.append([_bca(*column, confidence) for column in columns_of])
    return found[0], found[1]


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


def _bca(estimate: float, drawn: NDArray, left_out: NDArray, scale: float, confidence: float) -> Interval:
    """The interval of one statistic, from its values on resamples (R,) and with one picture left out (n,)."""
    from scipy.special import ndtr, ndtri

    usual = np.abs([estimate, *np.quantile(drawn, (0.25, 0.75), method="lower")])
    # sums of the same numbers in another order are equal, though not to the last bit
    close = 1e-12 * usual.max(where=np.isfinite(usual), initial=0)
    with np.errstate(invalid="ignore"):
        same = (drawn == estimate) | (np.abs(drawn - estimate) <= close)
    below = ((drawn < estimate) & ~same).mean() + same.mean() / 2
    bias = ndtri(np.clip(below, 0.5 / len(drawn), 1 - 0.5 / len(drawn)))
    # Σ u³ / (6 (Σ u²)^1.5) with u = mean - value; 0 where nothing moves or a value is infinite
    u = left_out.mean() - left_out if np.isfinite(left_out).all() else np.zeros(1)
    u = u / (np.abs(u).max() or 1)
    acceleration = (u**3).sum() / (6 * max((u**2).sum(), 1) ** 1.5)
    ends = []
    for side in (-1, 1):
        reach = bias + side * ndtri((1 + confidence) / 2)
        brake = 1 - acceleration * reach
        level = ndtr(bias + reach / brake if brake > 0 else np.copysign(np.inf, reach))
        with np.errstate(invalid="ignore"):
            end = np.quantile(drawn, level)
        if not np.isfinite(end):  # beside an infinite value there is no line: the outer of the two
            end = np.quantile(drawn, level, method="lower" if side < 0 else "higher")
        ends.append(scale * float(end))
    return Interval(ends[0], ends[1], float(scale * estimate), confidence)


def checked_confidence(confidence: float) -> float:
    """Strictly between 0 and 1."""
    if not 0 < check.real_number("confidence", confidence) < 1:
        raise ValueError(f"`confidence` must lie between 0 and 1; got {confidence}.")
    return float(confidence)
