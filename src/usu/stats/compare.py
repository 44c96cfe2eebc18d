"""Who is better than the reference, by how much, and how sure that is: numbers per picture in, a report out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from usu import _checks as check
from usu.stats import tables
from usu.stats.effects import bonferroni, cohens_d, differences, holm, numbers, wins
from usu.stats.resampling import LEAST, Interval, checked_confidence, moments
from usu.stats.signed_rank import hodges_lehmann_interval, rank_biserial, wilcoxon
from usu.types import NDArray

Value = TypeVar("Value")
Better: TypeAlias = Literal["higher", "lower"]
_UNKNOWN = Interval(np.nan, np.nan, np.nan)
#: Times the largest finite improvement stands for infinity: beyond all ranks, and its square still leaves sums exact.
_FAR = 1e5


@dataclass(frozen=True)
class Difference:
    """One upsampler against the reference on one metric; positive differences are improvements.

    Measured on fewer than 3 common pictures, all but the counts is NaN.
    """

    upsampler: str
    #: Pictures measured for both.
    n: int
    #: Pictures where one of the two is missing.
    dropped: int
    #: The upsampler's own values on those n pictures.
    mean: float = np.nan
    median: float = np.nan
    #: Mean improvement, BCa interval; NaN where some are infinitely better and others infinitely worse.
    gain: Interval = _UNKNOWN
    #: Hodges-Lehmann shift, distribution-free interval of the signed-rank test.
    shift: Interval = _UNKNOWN
    #: Share of pictures on which it is better, ties half, BCa interval.
    win_rate: Interval = _UNKNOWN
    #: Mean improvement in standard deviations of the improvement (d_z), BCa interval.
    paired_d: Interval = _UNKNOWN
    #: Mean improvement in pooled standard deviations of the values, the paper's effect size; NaN where one is infinite.
    cohens_d: float = np.nan
    rank_biserial: float = np.nan
    #: Wilcoxon signed-rank, Pratt, two-sided; then adjusted for the family.
    p: float = np.nan
    bonferroni: float = np.nan
    holm: float = np.nan
    #: The family-wise level of `verdict`.
    level: float = 0.05

    @property
    def measured(self) -> bool:
        """Whether there were enough pictures."""
        return not np.isnan(self.p)

    @property
    def verdict(self) -> Literal["better", "worse", "undecided"]:
        """What the signed-rank test says after Bonferroni."""
        if not self.bonferroni < self.level:
            return "undecided"
        return "better" if self.rank_biserial > 0 else "worse"


@dataclass(frozen=True)
class Comparison:
    """One metric: every other upsampler against the reference, in the order they were given."""

    metric: str
    better: Better
    against: str
    #: Pictures in the table, and those the reference was measured on, with its values there.
    pictures: int
    reference_n: int
    reference_mean: float
    reference_median: float
    rows: tuple[Difference, ...]
    #: Tests over which Bonferroni and Holm were taken.
    family: int
    confidence: float
    resamples: int
    seed: int

    def ranked(self) -> tuple[Difference, ...]:
        """Rows by paired effect size, the best first; those that were not measured last."""
        return tuple(sorted(self.rows, key=lambda row: -row.paired_d.estimate if row.measured else np.inf))

    def __getitem__(self, upsampler: str) -> Difference:
        return _found("upsampler", upsampler, {row.upsampler: row for row in self.rows})

    def __str__(self) -> str:
        return tables.text((self,))


@dataclass(frozen=True)
class Report:
    """Several metrics under one family of tests."""

    comparisons: tuple[Comparison, ...]

    @property
    def family(self) -> int:
        """Tests over which Bonferroni and Holm were taken, all metrics together."""
        return self.comparisons[0].family

    def __getitem__(self, metric: str) -> Comparison:
        return _found("metric", metric, {comparison.metric: comparison for comparison in self.comparisons})

    def records(self) -> list[dict[str, str | float]]:
        """One flat dictionary per metric and upsampler, every number of the report: ready for CSV or a data frame."""
        return [_flat(comparison, row) for comparison in self.comparisons for row in comparison.rows]

    def text(self) -> str:
        """For a terminal of 120 columns."""
        return tables.text(self.comparisons)

    def markdown(self) -> str:
        """One table per metric, with every column."""
        return tables.markdown(self.comparisons)

    def figure(self) -> Any:
        """One panel per metric: d_z with its interval, the best on top (needs the extra ``plot``)."""
        from usu.plot import effects

        return effects(self.comparisons)

    def __str__(self) -> str:
        return self.text()


def compare(
    values: Mapping[str, ArrayLike], against: str = "bilinear", *, better: Better, metric: str = "value",
    family: int | None = None, tolerance: float = 0.0, resamples: int = 10_000, confidence: float = 0.95, seed: int = 0,
) -> Comparison:  # fmt: skip
    """Every upsampler against the reference on one metric, picture by picture; positive = better.

    Args:
        values: for every upsampler one number per picture, the same pictures in the same order. NaN: not measured; the
            pair is dropped and counted. Infinity is a number beyond all others.
        family: how many tests were declared; those made here if not given.
        tolerance: differences up to this size are ties, e.g. 1e-6 where the values were computed in float32.
        resamples: of the pictures, for the BCa intervals; ``seed`` draws them.
        confidence: of every interval; 1 - confidence is the family-wise level of the verdicts.

    Guarantees:
        Bootstrapped (BCa) are the mean improvement, the win rate and the paired effect size. The Hodges-Lehmann shift
        has the distribution-free interval of the signed-rank test instead: on every resample it would cost n²/2
        averages. A row depends on no other row, except through the family.

    >>> usu, bilinear = [0.5, 0.7, 0.9, 0.8, 0.6, 0.9], [0.4, 0.5, 0.6, 0.4, 0.1, 0.3]
    >>> row = compare({"bilinear": bilinear, "usu": usu}, better="higher")["usu"]
    >>> row.n, row.win_rate.estimate, row.p, row.verdict
    (6, 1.0, 0.03125, 'better')
    """
    table = {metric: (better, values)}
    return report(
        table, against, family=family, tolerance=tolerance, resamples=resamples, confidence=confidence, seed=seed
    ).comparisons[0]


def report(
    table: Mapping[str, tuple[Better, Mapping[str, ArrayLike]]], against: str = "bilinear", *,
    family: int | None = None, tolerance: float = 0.0, resamples: int = 10_000, confidence: float = 0.95, seed: int = 0,
) -> Report:  # fmt: skip
    """`compare` for metrics, metric -> (``"higher"`` or ``"lower"``, upsampler -> numbers), in one family of tests.

    Rows with fewer than 3 common pictures are shown but are no tests; ``family`` may count more tests than are shown
    here, never fewer.
    """
    if not table:
        raise ValueError("`table` must hold at least one metric; got none.")
    check.whole_number("resamples", resamples, least=1)
    check.whole_number("seed", seed)
    checked_confidence(confidence)
    check.real_number("tolerance", tolerance, least=0)
    found = []
    for metric, entry in table.items():
        better, columns = _checked(metric, entry, against)
        rows = _rows(columns, against, -1 if better == "lower" else 1, tolerance, resamples, confidence, seed)
        seen = columns[against][~np.isnan(columns[against])]
        mean, median = (float(of(seen)) if len(seen) else np.nan for of in (np.mean, np.median))
        counts = len(columns[against]), len(seen)
        found.append(Comparison(metric, better, against, *counts, mean, median, rows, 0, confidence, resamples, seed))
    ps = [row.p for comparison in found for row in comparison.rows if row.measured]
    declared = len(ps) if family is None else check.whole_number("family", family, least=len(ps))
    adjusted = zip(bonferroni(ps, family=declared).tolist(), holm(ps, family=declared).tolist(), strict=True)

    def corrected(row: Difference) -> Difference:
        b, h = next(adjusted) if row.measured else (np.nan, np.nan)
        return replace(row, bonferroni=b, holm=h, level=1 - confidence)

    return Report(tuple(replace(c, rows=tuple(map(corrected, c.rows)), family=declared) for c in found))


def _checked(metric: str, entry: Any, against: str) -> tuple[Better, dict[str, NDArray]]:
    if not (isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[1], Mapping)):
        wanted = "a pair of 'higher' or 'lower' and upsampler -> numbers"
        raise TypeError(f"`table[{metric!r}]` must be {wanted}; got {type(entry).__name__}.")
    better, values = entry
    check.choice("better", better, ("higher", "lower"))
    if against not in values or len(values) < 2:
        got, wanted = ", ".join(map(repr, values)) or "nothing", f"{against!r} (`against`) and at least one other"
        raise ValueError(f"`values` must hold the reference {wanted} for {metric!r}; got {got}.")
    columns = {name: numbers(f"values[{name!r}]", column, least=1, gaps=True) for name, column in values.items()}
    pictures = len(columns[against])
    for name, column in columns.items():
        if len(column) != pictures:
            wanted = f"the pictures of {against!r}, with NaN where one was not measured ({pictures})"
            raise ValueError(f"`values[{name!r}]` must hold {wanted}; got {len(column)}.")
    return better, columns


def _rows(
    columns: dict[str, NDArray], against: str, sign: int, tolerance: float, resamples: int, confidence: float, seed: int
) -> tuple[Difference, ...]:
    """Everything but the correction for the family; rows over the same number of pictures share their resamples."""
    rows: dict[str, Difference] = {}
    alike: dict[int, dict[str, tuple[NDArray, float]]] = {}
    for name, column in columns.items():
        if name == against:
            continue
        both = ~(np.isnan(column) | np.isnan(columns[against]))
        own, other = column[both], columns[against][both]
        n, nothing = len(own), np.zeros(len(own))
        rows[name] = Difference(name, n, len(column) - n)
        if n < LEAST:
            continue
        d, largest = _improved(own, other, sign, tolerance)
        alike.setdefault(n, {})[name] = d, largest
        shift = _unbounded(hodges_lehmann_interval(d, nothing, confidence=confidence), largest)
        pooled = sign * cohens_d(own, other) if np.isfinite([own, other]).all() else np.nan
        rows[name] = replace(
            rows[name], mean=float(own.mean()), median=float(np.median(own)), shift=shift, cohens_d=pooled,
            rank_biserial=rank_biserial(d, nothing), p=wilcoxon(d, nothing).p,
        )  # fmt: skip
    for found in alike.values():
        improved = np.stack([d for d, _ in found.values()], axis=1)
        both_ways = np.hstack([improved, wins(improved)])
        means, ratios = moments(both_ways, resamples=resamples, confidence=confidence, seed=seed)
        for i, (name, (d, largest)) in enumerate(found.items()):
            # of improvements that are infinite both ways there is no mean
            torn = d.max() > 2 * largest and d.min() < -2 * largest
            gain = replace(_UNKNOWN, confidence=confidence) if torn else _unbounded(means[i], largest)
            rows[name] = replace(rows[name], gain=gain, paired_d=ratios[i], win_rate=means[len(found) + i])
    return tuple(rows.values())


def _improved(own: NDArray, other: NDArray, sign: int, tolerance: float) -> tuple[NDArray, float]:
    """Improvement per picture, and the largest one where some are infinite (infinity where none is).

    The infinite ones are finite here, but so large that ranks, wins and d_z are what they tend to. Two infinite numbers
    of one sign are a tie.
    """
    finite = np.isfinite(own) & np.isfinite(other)
    d = np.zeros(len(own))
    d[finite] = sign * (differences(own, other) if finite.all() else own[finite] - other[finite])
    d[np.abs(d) <= tolerance] = 0
    if finite.all():
        return d, np.inf
    largest = float(np.abs(d).max()) or 1.0
    d[~finite] = sign * _FAR * largest * (1.0 * (own > other) - (own < other))[~finite]
    return d, largest


def _unbounded(interval: Interval, largest: float) -> Interval:
    """What an infinite improvement has a share in is infinite."""
    ends = (interval.low, interval.high, interval.estimate)
    low, high, middle = (float(np.copysign(np.inf, end)) if abs(end) > 2 * largest else end for end in ends)
    return Interval(low, high, middle, interval.confidence)


def _found(argument: str, name: str, known: Mapping[str, Value]) -> Value:
    if name not in known:
        raise KeyError(f"`{argument}` must be one of {', '.join(known)}; got {name!r}.")
    return known[name]


def _flat(comparison: Comparison, row: Difference) -> dict[str, str | float]:
    flat: dict[str, Any] = {name: getattr(comparison, name) for name in ("metric", "better", "against")}
    for name, value in vars(row).items():
        if isinstance(value, Interval):
            flat |= {name: value.estimate, f"{name}_low": value.low, f"{name}_high": value.high}
        else:
            flat[name] = value
    return flat | {"family": comparison.family, "verdict": row.verdict}
