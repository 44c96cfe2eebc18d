"""Numbers per picture in, a comparison out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from usu import _checks as check
from usu.stats.comparison import Comparison, Report, Row
from usu.stats.effects import cohens_d, wins
from usu.stats.families import bonferroni, family_size, holm
from usu.stats.pairs import differences, numbers
from usu.stats.resampling import LEAST, Interval, checked_confidence, checked_draws, moments
from usu.stats.signed_rank import hodges_lehmann_interval, rank_biserial, wilcoxon
from usu.types import NDArray

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Better: TypeAlias = Literal["higher", "lower"]
_UNKNOWN = Interval(np.nan, np.nan, np.nan)
#: Times the largest finite improvement stands for infinity: beyond all ranks, and its square still leaves sums exact.
_FAR = 1e5


def compare(
    values: Mapping[str, ArrayLike],
    against: str = "bilinear",
    *,
    better: Better,
    metric: str = "value",
    family: int | None = None,
    tolerance: float = 0.0,
    resamples: int = 10_000,
    confidence: float = 0.95,
    seed: int = 0,
) -> Comparison:
    """Every upsampler against the reference on one metric, picture by picture; positive = better.

    Args:
        values: for every upsampler one number per picture, the same pictures in the same order. NaN: not measured; the
            pair is dropped and counted. Infinity is a number beyond all others.
        against: the reference, one of the upsamplers.
        better: whether ``"higher"`` or ``"lower"`` numbers are better.
        metric: its name, for the report.
        family: how many tests were declared; those made here if not given.
        tolerance: differences up to this size are ties, e.g. 1e-6 where the values were computed in float32.
        resamples: of the pictures, for the BCa intervals.
        confidence: of every interval; 1 - confidence is the family-wise level of the verdicts.
        seed: of the resamples.

    Guarantees:
        Bootstrapped (BCa) are the mean improvement, the win rate and the paired effect size. The Hodges-Lehmann shift
        has the distribution-free interval of the signed-rank test instead: on every resample it would cost n²/2
        averages. A row depends on no other row, except through the family.

    >>> usu, bilinear = [0.5, 0.7, 0.9, 0.8, 0.6, 0.9], [0.4, 0.5, 0.6, 0.4, 0.1, 0.3]
    >>> row = compare({"bilinear": bilinear, "usu": usu}, better="higher")["usu"]
    >>> row.n, row.win_rate.estimate, row.p, row.verdict
    (6, 1.0, 0.03125, 'better')
    """
    (found,) = report(
        {metric: (better, values)},
        against,
        family=family,
        tolerance=tolerance,
        resamples=resamples,
        confidence=confidence,
        seed=seed,
    ).comparisons
    return found


def report(
    table: Mapping[str, tuple[Better, Mapping[str, ArrayLike]]],
    against: str = "bilinear",
    *,
    family: int | None = None,
    tolerance: float = 0.0,
    resamples: int = 10_000,
    confidence: float = 0.95,
    seed: int = 0,
) -> Report:
    """`compare` for several metrics, with one family of tests over all of them.

    Args:
        table: metric -> (``"higher"`` or ``"lower"`` is better, upsampler -> numbers).
        against, family, tolerance, resamples, confidence, seed: see `compare`. Rows with fewer than 3 common pictures
            are shown but are no tests; ``family`` may count more tests than are shown here, never fewer.
    """
    if not table:
        raise ValueError("`table` must hold at least one metric; got none. Measure something first.")
    checked_draws(resamples, seed)
    level = 1 - checked_confidence(confidence)
    if check.real_number("tolerance", tolerance) < 0:
        raise ValueError(f"`tolerance` must be at least 0; got {tolerance}. 0 means: ties are equal numbers.")
    draws = {"resamples": resamples, "seed": seed}
    columns = {metric: _checked(metric, entry, against) for metric, entry in table.items()}
    rows = {
        metric: _rows(columns[metric], against, -1 if better == "lower" else 1, tolerance, confidence, **draws)
        for metric, (better, _) in table.items()
    }
    ps = [row.p for found in rows.values() for row in found if row.measured]
    declared = family_size(family, len(ps))
    adjusted = zip(bonferroni(ps, family=declared), holm(ps, family=declared), strict=True)
    comparisons = []
    for metric, (better, _) in table.items():
        final = []
        for row in rows[metric]:
            b, h = next(adjusted) if row.measured else (np.nan, np.nan)
            final.append(replace(row, bonferroni=float(b), holm=float(h), level=level))
        own = columns[metric][against]
        seen = own[~np.isnan(own)]
        mean, median = (float(np.mean(seen)), float(np.median(seen))) if len(seen) else (np.nan, np.nan)
        comparisons.append(
            Comparison(
                metric, better, against, len(own), len(seen), mean, median, tuple(final), declared, confidence, **draws
            )
        )
    return Report(tuple(comparisons))


def _checked(metric: str, entry: tuple[Better, Mapping[str, ArrayLike]], against: str) -> dict[str, NDArray]:
    if not (isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[1], Mapping)):
        raise TypeError(
            f"`table[{metric!r}]` must be a pair of 'higher' or 'lower' and upsampler -> numbers; "
            f"got {type(entry).__name__}. Say which direction is better."
        )
    better, values = entry
    check.choice("better", better, ("higher", "lower"))
    if against not in values or len(values) < 2:
        raise ValueError(
            f"`values` must hold the reference {against!r} and at least one other upsampler for {metric!r}; "
            f"got {', '.join(map(repr, values)) or 'nothing'}. Name another reference with `against`."
        )
    columns = {name: numbers(f"values[{name!r}]", column, least=1, gaps=True) for name, column in values.items()}
    for name, column in columns.items():
        if len(column) != len(columns[against]):
            raise ValueError(
                f"`values[{name!r}]` must hold the pictures of {against!r} ({len(columns[against])}); "
                f"got {len(column)} numbers. Use NaN where a picture was not measured."
            )
    return columns


def _rows(
    columns: dict[str, NDArray],
    against: str,
    sign: int,
    tolerance: float,
    confidence: float,
    *,
    resamples: int,
    seed: int,
) -> list[Row]:
    """Everything but the correction for the family; rows over the same number of pictures share their resamples."""
    reference = columns[against]
    rows: dict[str, Row] = {}
    largest: dict[str, float] = {}
    improvements: dict[int, dict[str, NDArray]] = {}
    for name, column in columns.items():
        if name == against:
            continue
        both = ~(np.isnan(column) | np.isnan(reference))
        own, other, n = column[both], reference[both], int(both.sum())
        if n < LEAST:
            unknown = (_UNKNOWN,) * 4
            rows[name] = Row(name, n, len(column) - n, np.nan, np.nan, *unknown, np.nan, np.nan, np.nan)
            continue
        d, largest[name] = _improved(own, other, sign, tolerance)
        nothing = np.zeros(n)
        improvements.setdefault(n, {})[name] = d
        rows[name] = Row(
            name,
            n,
            len(column) - n,
            mean=float(own.mean()),
            median=float(np.median(own)),
            gain=_UNKNOWN,
            shift=_unbounded(hodges_lehmann_interval(d, nothing, confidence=confidence), largest[name]),
            win_rate=_UNKNOWN,
            paired_d=_UNKNOWN,
            cohens_d=sign * cohens_d(own, other) if np.isfinite([own, other]).all() else np.nan,
            rank_biserial=rank_biserial(d, nothing),
            p=wilcoxon(d, nothing).p,
        )
    for found in improvements.values():
        d = np.stack(list(found.values()), axis=1)
        k = d.shape[1]
        means, ratios = moments(np.hstack([d, wins(d)]), resamples=resamples, confidence=confidence, seed=seed)
        for i, name in enumerate(found):
            gain = _mean_gain(means[i], found[name], largest[name])
            rows[name] = replace(rows[name], gain=gain, paired_d=ratios[i], win_rate=means[k + i])
    return list(rows.values())


def _improved(own: NDArray, other: NDArray, sign: int, tolerance: float) -> tuple[NDArray, float]:
    """Improvement per picture, and the largest one where some are infinite (infinity where none is).

    The infinite ones are finite here, but so large that ranks, wins and d_z are what they tend to. Two infinite numbers
    of one sign are a tie.
    """
    finite = np.isfinite(own) & np.isfinite(other)
    if finite.all():
        d = sign * differences(own, other)
        d[np.abs(d) <= tolerance] = 0
        return d, np.inf
    d = np.zeros(len(own))
    d[finite] = sign * (own[finite] - other[finite])
    d[np.abs(d) <= tolerance] = 0
    largest = float(np.abs(d).max()) or 1.0
    d[~finite] = sign * _FAR * largest * (1.0 * (own > other) - (own < other))[~finite]
    return d, largest


def _unbounded(interval: Interval, largest: float) -> Interval:
    """What an infinite improvement has a share in is infinite."""
    ends = (interval.low, interval.high, interval.estimate)
    low, high, middle = (float(np.copysign(np.inf, end)) if abs(end) > 2 * largest else end for end in ends)
    return replace(interval, low=low, high=high, estimate=middle)


def _mean_gain(interval: Interval, d: NDArray, largest: float) -> Interval:
    """Of improvements that are infinite both ways there is no mean."""
    if d.max() > 2 * largest and d.min() < -2 * largest:
        return replace(interval, low=np.nan, high=np.nan, estimate=np.nan)
    return _unbounded(interval, largest)
