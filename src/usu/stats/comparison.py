"""What a comparison found, as values; `usu.stats.tables` writes them down, `usu.plot` draws them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np

from usu.stats.resampling import Interval


@dataclass(frozen=True)
class Row:
    """One upsampler against the reference on one metric; positive differences are improvements.

    Measured on fewer than 3 common pictures, all but the counts is NaN.
    """

    upsampler: str
    #: Pictures measured for both.
    n: int
    #: Pictures where one of the two is missing.
    dropped: int
    #: The upsampler's own values on those n pictures.
    mean: float
    median: float
    #: Mean improvement, BCa interval; NaN where some are infinitely better and others infinitely worse.
    gain: Interval
    #: Hodges-Lehmann shift, distribution-free interval of the signed-rank test.
    shift: Interval
    #: Share of pictures on which it is better, ties half, BCa interval.
    win_rate: Interval
    #: Mean improvement in standard deviations of the improvement (d_z), BCa interval.
    paired_d: Interval
    #: Mean improvement in pooled standard deviations of the values, the paper's effect size; NaN where one is infinite.
    cohens_d: float
    rank_biserial: float
    #: Wilcoxon signed-rank, Pratt, two-sided; then adjusted for the family.
    p: float
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
    better: Literal["higher", "lower"]
    against: str
    #: Pictures in the table, and those the reference was measured on, with its values there.
    pictures: int
    reference_n: int
    reference_mean: float
    reference_median: float
    rows: tuple[Row, ...]
    #: Tests over which Bonferroni and Holm were taken.
    family: int
    confidence: float
    resamples: int
    seed: int

    def ranked(self) -> tuple[Row, ...]:
        """Rows by paired effect size, the best first; those that were not measured last."""
        return tuple(sorted(self.rows, key=lambda row: -row.paired_d.estimate if row.measured else np.inf))

    def __getitem__(self, upsampler: str) -> Row:
        for row in self.rows:
            if row.upsampler == upsampler:
                return row
        names = ", ".join(row.upsampler for row in self.rows)
        raise KeyError(f"`upsampler` must be one of {names}; got {upsampler!r}. Check the spelling.")

    def __str__(self) -> str:
        from usu.stats import tables

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
        for comparison in self.comparisons:
            if comparison.metric == metric:
                return comparison
        names = ", ".join(comparison.metric for comparison in self.comparisons)
        raise KeyError(f"`metric` must be one of {names}; got {metric!r}. Check the spelling.")

    def records(self) -> list[dict[str, str | float]]:
        """One flat dictionary per metric and upsampler, every number of the report: ready for CSV or a data frame."""
        return [_flat(comparison, row) for comparison in self.comparisons for row in comparison.rows]

    def text(self) -> str:
        """For a terminal of 120 columns."""
        from usu.stats import tables

        return tables.text(self.comparisons)

    def markdown(self) -> str:
        """One table per metric, with every column."""
        from usu.stats import tables

        return tables.markdown(self.comparisons)

    def latex(self) -> str:
        """One table per metric; needs the package booktabs."""
        from usu.stats import tables

        return tables.latex(self.comparisons)

    def figure(self) -> Any:
        """One panel per metric: d_z with its interval, the best on top (needs the extra ``plot``)."""
        from usu.plot import effects

        return effects(self.comparisons)

    def __str__(self) -> str:
        return self.text()


def _flat(comparison: Comparison, row: Row) -> dict[str, str | float]:
    flat: dict[str, str | float] = {
        "metric": comparison.metric,
        "better": comparison.better,
        "against": comparison.against,
    }
    for name, value in _values(row):
        if isinstance(value, Interval):
            flat |= {name: value.estimate, f"{name}_low": value.low, f"{name}_high": value.high}
        else:
            flat[name] = value
    return flat | {"family": comparison.family, "verdict": row.verdict}


def _values(row: Row) -> Iterator[tuple[str, Any]]:
    return ((field.name, getattr(row, field.name)) for field in fields(row))
