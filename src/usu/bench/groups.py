"""The rows of each dataset, model and source, compared with a reference in one family of tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from usu.bench.measures import SEED_METRICS, metric_named
from usu.bench.table import Table
from usu.stats import Comparison, report


@dataclass(frozen=True)
class Group:
    """The rows of a dataset, a model and a source, compared."""

    dataset: str
    model: str
    source: str
    table: Table
    comparisons: tuple[Comparison, ...] = ()

    @property
    def name(self) -> str:
        """For headings."""
        return ", ".join(filter(None, (self.dataset, self.model, self.source))) or "all pictures"

    @cached_property
    def pictures(self) -> int:
        """How many."""
        return len({row.picture for row in self.table.rows})

    def comparison(self, metric: str) -> Comparison | None:
        """Of a metric, where it was compared."""
        return next((one for one in self.comparisons if one.metric == metric), None)

    def cell(self, metric: str, upsampler: str) -> str:
        """The mean, + or - where it differs from the reference after Bonferroni, and n."""
        if metric not in self.table.metrics or upsampler not in self.table.upsamplers:
            return "-"
        values = self.table.values(metric)[upsampler]
        seen = values[~np.isnan(values)]
        if not len(seen):
            return "-"
        mark, against = "", self.comparison(metric)
        if against is not None and upsampler != against.against:
            mark = {"better": " +", "worse": " -", "undecided": ""}[against[upsampler].verdict]
        mean = float(np.mean(seen))
        return f"{mean:{'.3g' if abs(mean) < 1000 else '.2e'}} ({len(seen)}){mark}"

    @cached_property
    def signature(self) -> tuple[object, ...]:
        """The same for sources whose maps are the same: all numbers of the reference, to five digits."""
        first = self.table.upsamplers[0]
        own = [row for row in self.table.rows if row.upsampler == first]
        return (self.dataset, self.model, *((row.picture, row.metric, f"{row.value:.4e}") for row in own))


def grouped(tables: Mapping[tuple[str, str, str], Table], against: str, *, resamples: int = 10_000) -> list[Group]:
    """Every dataset, model and source, compared in one family of tests; sources that are the same count once."""
    groups = [Group(*name, table) for name, table in tables.items()]
    asked = [_asked(group.table, against) for group in groups]
    different = {group.signature: one for group, one in zip(groups, asked, strict=True)}
    family = max(1, sum(len(values) - 1 for one in different.values() for _, values in one.values()))
    return [
        replace(group, comparisons=report(one, against, family=family, resamples=resamples).comparisons if one else ())
        for group, one in zip(groups, asked, strict=True)
    ]


def _asked(table: Table, against: str) -> dict[str, tuple[Any, Mapping[str, Any]]]:
    """What is compared: metrics that two upsamplers or more have, the reference among them."""
    found: dict[str, tuple[Any, Mapping[str, Any]]] = {}
    for metric in table.metrics:
        values = {name: one for name, one in table.values(metric).items() if not np.isnan(one).all()}
        if against in values and len(values) > 1 and metric not in SEED_METRICS:
            found[metric] = (metric_better(metric), values)
    return found


def metric_better(name: str) -> str:
    """Which way is better; a user's own metric is taken to be better when it is higher."""
    try:
        return metric_named(name).better
    except ValueError:
        return "higher"
