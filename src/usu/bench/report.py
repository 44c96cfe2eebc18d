"""What a store says, for people: one HTML file that needs nothing else, and the same as Markdown."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from usu.bench.pages import Block, Frontier, Heading, Sheet, Text, html, markdown
from usu.bench.store import Store
from usu.bench.table import Row, Table, latex
from usu.bench.units import SEED_METRICS, metric_named
from usu.results.folder import written
from usu.stats import Comparison, report
from usu.stats.tables import cells, legend, title

#: What decides about a map: those of the protocol that no map can please by its units.
FAITHFUL = ("half-deletion", "insertion-deletion", "infidelity")
#: The paper's six, and the direction of ours where it is not the paper's.
PAPERS = ("infidelity-raw", "pixel-flipping", "road", "irof", "monotonicity", "sparseness")
#: What the paper calls ours.
_CALLED = {"paper": "USU", "paper-iwmr": "USU-IWMR", "paper-hybrid": "USU-Hybrid"}
_SETS = {"imagenet": "ImageNet", "cifar10": "CIFAR-10", "cub": "CUB-200"}


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
    for metric in (metric for metric in table.metrics if metric not in SEED_METRICS):
        values = {name: one for name, one in table.values(metric).items() if not np.isnan(one).all()}
        if against in values and len(values) > 1:
            found[metric] = (metric_better(metric), values)
    return found


def metric_better(name: str) -> str:
    """Which way is better; a user's own metric is taken to be better when it is higher."""
    try:
        return metric_named(name).better
    except ValueError:
        return "higher"


def write_report(store: Store, folder: str | Path, *, against: str | None = None) -> list[Path]:
    """The tables (`Table.save`), ``report.html``, ``report.md`` with its figures, ``report.tex``, ``fills.csv``."""
    home, facts = Path(folder), store.ingredients()
    tables = {name: Table(tuple(store.rows(name)), {}) for name in store.groups()}
    if not tables:
        return []
    paths = Table(tuple(row for table in tables.values() for row in table.rows), {}).save(home)
    groups = grouped(tables, against or facts.get("against", "bilinear"))
    failures = [f"{one.name}: {one.sentence}" for one in store.failures()]
    paths += drawn(home, "report", facts.get("title", "usu evaluate"), [*blocks_of(groups, facts, failures)])
    tex = "\n".join(latex(group.comparisons) for group in groups if group.comparisons)
    for name, text in (("report.tex", tex), ("fills.csv", groups[0].table.fill_matrices())):
        if text:
            paths.append(written(home / name, text.encode()))
    return paths


def drawn(home: Path, name: str, heading: str, blocks: Sequence[Block]) -> list[Path]:
    """As HTML, and as Markdown with its figures beside it."""
    text, figures = markdown(heading, blocks, prefix=f"{name}-")
    files = {f"{name}.html": html(heading, blocks), f"{name}.md": text, **figures}
    return [written(home / file, content.encode()) for file, content in files.items()]


def blocks_of(groups: Sequence[Group], facts: Mapping[str, str], failures: Sequence[str]) -> Iterator[Block]:
    """The whole report, what matters first."""
    compared = [group for group in groups if group.comparisons]
    different = [same[0] for same in _by("signature", groups).values()]
    yield Heading(2, "In one line each")
    if compared:
        against = compared[0].comparisons[0].against
        names = [name for name in _upsamplers(groups) if name != against]
        yield Text(
            f"How often better (+) and worse (-) than {against} after Bonferroni, of so many datasets, models and "
            "sources, and the median of the paired effect size d_z."
        )
        for name in names:
            told = "; ".join(f"{metric} {text}" for metric, text in _counts(different, name).items())
            spent = np.mean([row.evaluations for row in _rows(different, name)])
            yield Text(f"**{name}**: {told or 'not measured on what decides'}; {spent:.0f} evaluations.", item=True)
        if len(_by("model", groups)) > 1:
            yield Sheet("The same by network", *by_network(different, names))
    else:
        yield Text("Nothing was compared: the reference is not among the upsamplers, or the only one.")
    yield from twins(groups)
    yield _progress(groups, facts)
    if failures:
        yield Text(f"{len(failures)} measurements failed; the first: {failures[0]}")
    yield from _frontiers(groups)
    yield from _measured(groups)
    yield from _papers(groups)
    yield Heading(2, "Cost and stability")
    yield _costs(groups)
    yield Heading(2, "Statistics")
    if compared:
        yield Text(legend(compared[0].comparisons[0]))
    for group in compared:
        yield Heading(3, f"{group.name}: {group.pictures} pictures")
        for comparison in group.comparisons:
            heads, *body = cells(comparison, ("n", "mean", "shift", "win", "d_z", "d", "Bonf.", "Holm"))
            yield Sheet(title(comparison), heads, body, folded=True)


def _by(kind: str, groups: Iterable[Group]) -> dict[Any, list[Group]]:
    """Those that have the same model, or the same signature."""
    found: dict[Any, list[Group]] = {}
    for group in groups:
        found.setdefault(getattr(group, kind), []).append(group)
    return found


def _upsamplers(groups: Iterable[Group]) -> list[str]:
    return list(dict.fromkeys(name for group in groups for name in group.table.upsamplers))


def _rows(groups: Iterable[Group], upsampler: str) -> list[Row]:
    return [row for group in groups for row in group.table.rows if row.upsampler == upsampler]


def by_network(groups: Sequence[Group], names: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Heads and rows: an upsampler and a network each, with what `_counts` says of the metrics that decide."""
    found = []
    for name in names:
        for model, own in _by("model", groups).items():
            told = _counts(own, name)
            found.append([name, model, *(told.get(metric, "-") for metric in FAITHFUL)])
    return ["upsampler", "network", *FAITHFUL], found


def _counts(groups: Sequence[Group], name: str) -> dict[str, str]:
    """Metric that decides -> how often better and worse, and the median effect."""
    told = {}
    for metric in FAITHFUL:
        own = [group.comparison(metric) for group in groups if name in group.table.upsamplers]
        rows = [one[name] for one in own if one is not None and one[name].measured]
        if rows:
            better, worse = (sum(row.verdict == word for row in rows) for word in ("better", "worse"))
            middle = float(np.median([row.paired_d.estimate for row in rows]))
            told[metric] = f"+{better} -{worse} of {len(rows)}, d_z {middle:+.2f}"
    return told


def twins(groups: Sequence[Group]) -> Iterator[Block]:
    """Sources that cannot be told apart, which count once above."""
    for same in _by("signature", groups).values():
        if len(same) > 1:
            names = ", ".join(group.source for group in same)
            yield Text(f"On {same[0].dataset or 'these pictures'}, {same[0].model}, these give the same maps: {names}.")


def _progress(groups: Sequence[Group], facts: Mapping[str, str]) -> Sheet:
    planned = {name.partition(".")[2]: int(count) for name, count in facts.items() if name.startswith("planned.")}
    done: dict[tuple[str, str], int] = {}
    for group in groups:
        pair = (group.dataset, group.model)
        done[pair] = max(group.pictures, done.get(pair, 0))
    rows = [[*pair, str(count), str(planned.pop(".".join(pair), count))] for pair, count in done.items()]
    rows += [[*name.split(".", 1), "0", str(count)] for name, count in planned.items()]
    return Sheet("Pictures measured, and planned", ["dataset", "model", "measured", "planned"], rows)


def _frontiers(groups: Sequence[Group]) -> Iterator[Block]:
    """Upsamplers by their evaluations and the mean over all maps of the first metric that decides."""
    yield Heading(2, "Cost and faithfulness")
    yield Text(
        "Every upsampler at its number of model evaluations, which are counted as if nothing had been shared. The line "
        "joins those that nothing cheaper beats."
    )
    for model, own in _by("model", groups).items():
        metric = next((m for m in FAITHFUL if any(m in group.table.metrics for group in own)), None)
        if metric is None:
            continue
        points = []
        for name in _upsamplers(own):
            rows = [row for row in _rows(own, name) if row.metric == metric]
            values = [row.value for row in rows if np.isfinite(row.value)]
            if values:
                points.append((name, float(np.mean([row.evaluations for row in rows])), float(np.mean(values))))
        pictures = sum(group.pictures for group in own)
        caption = f"{model or 'the model'}: mean {metric} over {len(own)} datasets and sources, {pictures} maps each"
        yield Frontier(f"frontier-{model or 'all'}", caption, metric, metric_better(metric), tuple(points))


def _measured(groups: Sequence[Group]) -> Iterator[Block]:
    """Per metric and model: sources (or datasets) down, upsamplers across."""
    yield Heading(2, "Measured")
    yield Text("Mean (n pictures); + and - mark a difference from the reference at 5 % after Bonferroni.")
    for metric in dict.fromkeys(metric for group in groups for metric in group.table.metrics):
        yield Heading(3, f"{metric} ({metric_better(metric)} is better)")
        for model, own in _by("model", [group for group in groups if metric in group.table.metrics]).items():
            names = _upsamplers(own)
            heads = ["dataset", "source", *names]
            body = [[g.dataset, g.source, *(g.cell(metric, name) for name in names)] for g in own]
            if len(names) > 9:  # too wide for a page: the other way round
                heads = ["upsampler", *(", ".join(filter(None, line[:2])) for line in body)]
                body = [list(column) for column in zip(names, *(line[2:] for line in body), strict=True)]
            yield Sheet(f"measured, {model or 'the model'}", heads, body)


def paper() -> list[dict[str, str]]:
    """The numbers that the paper prints, one a line."""
    text = resources.files("usu.bench").joinpath("paper.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def _papers(groups: Sequence[Group]) -> Iterator[Block]:
    """What the paper printed, each table before ours of the same kind; never in one table."""
    printed = paper()
    raw = [group for group in groups if "infidelity-raw" in group.table.metrics]
    if not raw:
        return
    yield Heading(2, "The paper's tables and ours")
    yield Text(
        "Raw infidelity grows with the square of a map's units, and the paper does not say how maps were scaled: "
        "numbers of the two kinds of tables cannot be compared, only their order within a row."
    )
    several = len({group.source for group in raw}) > 1
    for dataset, label in _SETS.items():
        own = [group for group in raw if group.dataset.startswith(dataset)]
        if own and several:
            lines = [one for one in printed if one["table"] == "cross-method" and one["dataset"] == dataset]
            caption = f"paper: raw infidelity, {label}, mean of VGG16, ResNet50 and ViT-B-16"
            yield printed_table(caption, lines, "source")
            for same in _by("model", own).values():
                yield _ours(same, "infidelity-raw", "source")
        elif own:
            for metric in PAPERS:
                plain = metric.removesuffix("-raw")
                lines = [o for o in printed if (o["table"], o["dataset"], o["metric"]) == ("full", dataset, plain)]
                yield printed_table(f"paper: {plain}, {label}", lines, "model")
                stepped = next((m for m in own[0].table.metrics if m.partition("@")[0] == metric), metric)
                yield _ours(own, stepped, "model")


def printed_table(caption: str, lines: Sequence[Mapping[str, str]], down: str) -> Sheet:
    """Lines of `paper` with upsamplers across and ``down`` downwards."""
    names = list(dict.fromkeys(line["upsampler"] for line in lines))
    rows = list(dict.fromkeys(line[down] for line in lines))
    found = {(line[down], line["upsampler"]): line["value"] for line in lines}
    return Sheet(caption, [down, *names], [[row, *(found.get((row, name), "-") for name in names)] for row in rows])


def _ours(groups: Sequence[Group], metric: str, down: str) -> Sheet:
    known = groups[0].table.upsamplers
    names = [name for name in known if name in (*_CALLED, "nearest", "bilinear", "bicubic", "lanczos3")]
    names += [name for name in known if name in ("cell", "soft", "fast")]
    heads = [down, *(f"{name} ({_CALLED[name]})" if name in _CALLED else name for name in names)]
    body = [[getattr(group, down) or "-", *(group.cell(metric, name) for name in names)] for group in groups]
    where = f"{groups[0].dataset}, {groups[0].model}" if down == "source" else groups[0].dataset
    return Sheet(f"measured: {metric}, {where}", heads, body)


def _costs(groups: Sequence[Group]) -> Sheet:
    seeds = [name for name in SEED_METRICS if any(name in group.table.metrics for group in groups)]
    body = []
    for model, own in _by("model", groups).items():
        for name in _upsamplers(groups):
            rows = _rows(own, name)
            if not rows:
                continue
            seconds = [row.seconds for row in rows if not np.isnan(row.seconds)]
            line = [model, name, f"{np.mean([row.evaluations for row in rows]):.0f}"]
            line.append(f"{np.median(seconds):.2f}" if seconds else "-")
            for seed in seeds:
                values = [row.value for row in rows if row.metric == seed and not np.isnan(row.value)]
                line.append(f"{np.mean(values):.2f} ({len(values)})" if values else "-")
            body.append(line)
    heads = ["model", "upsampler", "evaluations", "seconds (median)", *(f"{seed} (n maps)" for seed in seeds)]
    return Sheet("What a map takes, and how much of it another seed keeps", heads, body)


def status(store: Store) -> list[str]:
    """How far a run is: a line for every dataset and model, and what failed."""
    asked = "SELECT dataset, model, count(DISTINCT picture) FROM rows GROUP BY dataset, model"
    count: dict[tuple[str, ...], int] = {found[:2]: found[2] for found in store.base.execute(asked)}
    facts, failures = store.ingredients(), store.failures()
    planned = {tuple(n.split(".", 2)[1:]): int(v) for n, v in facts.items() if n.startswith("planned.")}
    lines = []
    for pair in dict.fromkeys([*planned, *count]):
        name, done = ", ".join(filter(None, pair)) or "all pictures", count.get(pair, 0)
        lines.append(f"{name}: {done} of {planned.get(pair, done)} pictures")
    lines.append(f"{store.count()} rows, {len(failures)} failures")
    return lines + [f"{one.name}: {one.sentence}" for one in failures[:5]]
