"""The page of a big evaluation: one line per picture and upsampler as CSV, the means with their verdicts on the page.

    usu evaluate IMAGENET PETS --truth OUTLINES --forward net.onnx --upsamplers all --metrics ... --out RUN
    python -m experiments.first_table keep RUN docs/results/first-table.csv
    python -m experiments.first_table fill docs/results docs/appendix/first-table.md
    python -m experiments.first_table between docs/results/first-table.csv soft scores-alone   # any two of them

``RUN`` is the folder that ``usu evaluate`` wrote. + and - mark a difference from bilinear at 5 % after Bonferroni over
every upsampler and metric of the CSV file.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from experiments.pages import MARKS, filled, markdown

from usu.bench import Row, Table, read_table
from usu.metrics import by_name
from usu.stats import Report, hodges_lehmann, report, wilcoxon
from usu.types import NDArray

FIRST = ("picture", "target", "upsampler", "evaluations")
#: Tables that fit a screen. Of the controls only what they are for; the rest is in the CSV.
FAITHFUL = ("half-deletion", "half-deletion:noise", "insertion-deletion", "infidelity", "road")
SHAPE = ("infidelity-matched", "moved-mass", "seam-energy", "largest-gain", "sparseness")
OUTLINES = ("cell-auroc", "area-iou", "energy-in-mask", "energy-in-mask-matched", "pointing-game")
#: Compared two by two on the page, after the means had been seen.
PAIRS = (
    ("soft", "guided"), ("soft", "soft-permuted-scores"), ("soft", "kernel-shap"), ("soft", "scores-alone"),
    ("soft", "soft-uniform-coarse"), ("soft", "soft-shuffled-coarse"),
    ("cell", "nearest"), ("cell", "bilinear-corrected"), ("cell", "guided-corrected"), ("cell", "paper"),
    ("cell", "cell-permuted-scores"), ("cell", "cell-constant-scores"), ("cell", "scores-alone"),
    ("cell", "cell-uniform-coarse"), ("fast", "guided"),
)  # fmt: skip
OUTLINED = (
    ("fast", "guided"), ("cell", "guided"), ("soft", "guided"), ("cell", "cell-constant-scores"),
    ("soft", "soft-constant-scores"), ("soft", "soft-uniform-coarse"),
)  # fmt: skip
PAPERS = ("irof", "pixel-flipping", "road", "infidelity")
#: Shown on the two halves of the pictures: the presets, whom they are held against, and the metrics they are for.
HALVED = (
    "bilinear", "guided", "segment-pooled", "paper", "cell", "soft", "fast", "scores-alone",
    "cell-constant-scores", "cell-permuted-scores", "cell-uniform-coarse",
    "soft-constant-scores", "soft-permuted-scores", "soft-uniform-coarse",
)  # fmt: skip
HALVED_METRICS = (
    "half-deletion", "half-deletion:noise", "insertion-deletion", "infidelity", "road", "cell-auroc", "area-iou",
)  # fmt: skip
ARROWS = {"higher": "↑", "lower": "↓"}


def wide(table: Table, path: Path) -> None:
    """One line per picture and upsampler, one column per metric; six digits are plenty for a reader."""
    lines: dict[tuple[str, str], dict[str, object]] = {}
    for row in table.rows:
        first = {"picture": row.picture, "target": row.target, "upsampler": row.upsampler}
        line = lines.setdefault((row.picture, row.upsampler), {**first, "evaluations": row.evaluations})
        line[row.metric] = "" if np.isnan(row.value) else f"{row.value:.6g}"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*FIRST, *table.metrics], lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines.values())


def narrow(path: Path) -> Table:
    """What `wide` wrote, as a table again: as far as six digits go."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = tuple(
            Row(
                line["picture"], int(line["target"]), line["upsampler"], metric, float(value), int(line["evaluations"]),
                by_name(metric).evaluations,
            )
            for line in csv.DictReader(file)
            for metric, value in line.items()
            if metric not in FIRST and value
        )  # fmt: skip
    return Table(rows, {})


def compared(table: Table) -> Report:
    """Everybody against bilinear; the verdicts need no resamples."""
    return report({name: (by_name(name).better, table.values(name)) for name in table.metrics}, resamples=20)


def spent(table: Table) -> dict[str, float]:
    """Evaluations of each upsampler, the mean over its pictures."""
    each = {(row.upsampler, row.picture): row.evaluations for row in table.rows}
    return {name: float(np.mean([n for (own, _), n in each.items() if own == name])) for name in table.upsamplers}


def means(
    table: Table, found: Report, metrics: Sequence[str] | None = None, upsamplers: Sequence[str] | None = None
) -> str:
    """Upsamplers in rows, metrics in columns."""
    cost, shown = spent(table), table.metrics if metrics is None else metrics
    values = {metric: table.values(metric) for metric in shown}

    def cell(name: str, metric: str) -> str:
        mean = np.nanmean(values[metric][name])
        number = f"{mean:.3f}" if 1e-3 <= abs(mean) < 1e3 or mean == 0 else f"{mean:.0e}"
        return number + _mark(found, metric, name)

    names = table.upsamplers if upsamplers is None else upsamplers
    rows = ([name, f"{cost[name]:.0f}", *(cell(name, metric) for metric in shown)] for name in names)
    return markdown(["upsampler", "evaluations", *_headed(shown)], rows)


def _headed(metrics: Iterable[str]) -> list[str]:
    return [f"{name} {ARROWS[by_name(name).better]}" for name in metrics]


def _mark(found: Report, metric: str, name: str) -> str:
    return "" if name == "bilinear" else MARKS[found[metric][name].verdict]


def halves(table: Table) -> tuple[Table, Table]:
    """The pictures at even places, among which the presets were chosen, and those at odd places, where nothing was."""
    place = {name: number for number, name in enumerate(dict.fromkeys(row.picture for row in table.rows))}
    even, odd = (tuple(row for row in table.rows if place[row.picture] % 2 == half) for half in (0, 1))
    return Table(even, {}), Table(odd, {})


def unseen(table: Table) -> str:
    """Means at even and at odd places; the marks are those of the odd places alone."""
    both = halves(table)
    found = compared(both[1])
    values = {metric: [half.values(metric) for half in both] for metric in HALVED_METRICS}

    def cell(name: str, metric: str) -> str:
        return " / ".join(f"{np.nanmean(half[name]):.3f}" for half in values[metric]) + _mark(found, metric, name)

    rows = ([name, *(cell(name, metric) for metric in HALVED_METRICS)] for name in HALVED)
    return markdown(["upsampler", *_headed(HALVED_METRICS)], rows)


def fills(path: Path) -> str:
    """The matrices of ``fills.csv``; what was scored and judged with one fill is in brackets."""
    with path.open(newline="", encoding="utf-8") as file:
        heads, *lines = csv.reader(file)
    rows = []
    for upsampler, metric, scored, *numbers in lines:
        cells = [
            f"({float(number):.3f})" if scored and head.endswith(f" {scored}") else f"{float(number):.3f}"
            for head, number in zip(heads[3:], numbers, strict=True)
        ]
        rows.append([upsampler, metric, scored, *cells])
    return markdown(heads, rows)


def parts(results: Path) -> dict[str, str]:
    """The tables of the page, by the name of their place."""
    table, papers = (narrow(results / f"{name}.csv") for name in ("first-table", "first-table-papers-metrics"))
    found, odd = compared(table), halves(table)[1]
    controls = [name for name in table.upsamplers if name.startswith(("cell-", "soft-"))]
    others = [name for name in table.upsamplers if name not in controls]
    return {
        "family": f"{len({row.picture for row in table.rows})} pictures, {found.family} tests.",
        "faithful": means(table, found, FAITHFUL, others),
        "faithful controls": means(table, found, FAITHFUL, controls),
        "shape": means(table, found, SHAPE, others),
        "outlines": means(table, found, OUTLINES, others),
        "outlines controls": means(table, found, OUTLINES, controls),
        "unseen": unseen(table),
        "pairs": pairs(table, PAIRS, FAITHFUL),
        "pairs odd": pairs(odd, PAIRS, FAITHFUL),
        "pairs outlines": pairs(table, OUTLINED, OUTLINES[:4]),
        "pairs outlines odd": pairs(odd, OUTLINED, OUTLINES[:4]),
        "pairs papers": pairs(papers, (("soft", "scores-alone"), ("soft", "soft-permuted-scores")), PAPERS),
        "medians": medians(table),
        "fills": fills(results / "first-table-fills.csv"),
        "papers-metrics": means(papers, compared(papers)),
    }


def against(values: dict[str, NDArray], one: str, other: str) -> tuple[NDArray, NDArray, float, float]:
    """Both on the pictures on which both have a finite number, the Hodges-Lehmann shift and p of one Wilcoxon test."""
    both = np.isfinite(values[one]) & np.isfinite(values[other])
    left, right = values[one][both], values[other][both]
    return left, right, hodges_lehmann(left, right), wilcoxon(left, right).p


def pairs(table: Table, named: Sequence[tuple[str, str]], metrics: Sequence[str]) -> str:
    """Is the first ahead (+) or behind (-), and p of one test, not corrected."""
    values = {metric: table.values(metric) for metric in metrics}

    def cell(one: str, other: str, metric: str) -> str:
        _, _, shift, p = against(values[metric], one, other)
        ahead = shift > 0 if by_name(metric).better == "higher" else shift < 0
        return f"{'+' if ahead else '-'} {p:.1g}"

    rows = ([one, other, *(cell(one, other, metric) for metric in metrics)] for one, other in named)
    return markdown(["upsampler", "against", *_headed(metrics)], rows)


def medians(table: Table) -> str:
    """What the means hide."""
    found = table.values("half-deletion")
    numbers = ", ".join(f"{name} {np.nanmedian(found[name]):.3f}" for name in ("bilinear", "soft", "cell"))
    return f"Medians of half deletion: {numbers}."


def between(table: Table, one: str, other: str) -> str:
    """Two upsamplers on every metric: means, shift and p."""
    rows = []
    for metric in table.metrics:
        left, right, shift, p = against(table.values(metric), one, other)
        rows.append([metric, f"{left.mean():.3g}", f"{right.mean():.3g}", f"{shift:+.2g}", f"{p:.1g}"])
    return markdown(["metric", one, other, "shift", "p, uncorrected"], rows)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m experiments.first_table")
    what = parser.add_subparsers(dest="what", required=True)
    keep = what.add_parser("keep", help="the table of a run as CSV")
    keep.add_argument("run", type=Path)
    keep.add_argument("csv", type=Path)
    fill = what.add_parser("fill", help="write the tables of the page")
    fill.add_argument("results", type=Path)
    fill.add_argument("page", type=Path)
    two = what.add_parser("between", help="compare two, metric by metric")
    two.add_argument("csv", type=Path)
    two.add_argument("upsamplers", nargs=2)
    two.add_argument("--odd", action="store_true", help="on the pictures at odd places alone")
    return parser.parse_args()


def main() -> None:
    asked = arguments()
    if asked.what == "keep":
        wide(read_table(asked.run / "table.csv"), asked.csv)
    elif asked.what == "fill":
        page = asked.page.read_text(encoding="utf-8")
        asked.page.write_text(filled(page, parts(asked.results)), encoding="utf-8")
    else:
        table = narrow(asked.csv)
        print(between(halves(table)[1] if asked.odd else table, *asked.upsamplers))


if __name__ == "__main__":
    main()
