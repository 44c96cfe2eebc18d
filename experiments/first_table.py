"""The page of a big evaluation: one line per picture and upsampler as CSV, and the means with their verdicts.

    usu evaluate IMAGENET PETS --truth OUTLINES --forward net.onnx --upsamplers all --metrics ... --out RUN
    python -m experiments.first_table RUN docs/results/first-table.csv > means.md
    python -m experiments.first_table docs/results/first-table.csv --between soft scores-alone   # any two of them

``RUN`` is the folder that ``usu evaluate`` wrote. + and - mark a difference from bilinear at 5 % after Bonferroni over
every upsampler and metric of the table.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np

from usu.bench import Table, read_table
from usu.comparison import Report, report
from usu.metrics import by_name
from usu.stats import hodges_lehmann, wilcoxon

MARKS = {"better": "+", "worse": "-", "undecided": ""}


def wide(table: Table, path: Path) -> None:
    """One line per picture and upsampler, one column per metric; six digits are plenty for a reader."""
    lines: dict[tuple[str, str], dict[str, object]] = {}
    for row in table.rows:
        first = {"picture": row.picture, "target": row.target, "upsampler": row.upsampler}
        line = lines.setdefault((row.picture, row.upsampler), {**first, "evaluations": row.evaluations})
        line[row.metric] = "" if np.isnan(row.value) else f"{row.value:.6g}"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        columns = ["picture", "target", "upsampler", "evaluations", *table.metrics]
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines.values())


def spent(table: Table) -> dict[str, float]:
    """Evaluations of each upsampler, the mean over its pictures."""
    each = {(row.upsampler, row.picture): row.evaluations for row in table.rows}
    return {name: float(np.mean([n for (own, _), n in each.items() if own == name])) for name in table.upsamplers}


def means(table: Table, found: Report) -> str:
    """Upsamplers in rows, metrics in columns."""
    cost = spent(table)
    arrows = {"higher": "↑", "lower": "↓"}
    heads = [f"{name} {arrows[by_name(name).better]}" for name in table.metrics]
    text = [f"| upsampler | evaluations | {' | '.join(heads)} |", "|---" * (2 + len(heads)) + "|"]
    for name in table.upsamplers:
        cells = []
        for metric in table.metrics:
            mark = "" if name == "bilinear" else MARKS[found[metric][name].verdict]
            mean = np.nanmean(table.values(metric)[name])
            cells.append(f"{mean:.3f}{mark}" if 1e-3 <= abs(mean) < 1e3 or mean == 0 else f"{mean:.0e}{mark}")
        text.append(f"| {name} | {cost[name]:.0f} | {' | '.join(cells)} |")
    return "\n".join(text)


def between(path: Path, one: str, other: str) -> str:
    """Two upsamplers of the CSV on every metric: means, Hodges-Lehmann shift, and p of one Wilcoxon test each."""
    with path.open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    text = [f"| metric | {one} | {other} | shift | p, uncorrected |", "|---" * 5 + "|"]
    for metric in list(lines[0])[4:]:
        columns = {name: {line["picture"]: line[metric] for line in lines if line["upsampler"] == name}
                   for name in (one, other)}  # fmt: skip
        common = [name for name, value in columns[one].items() if value and columns[other].get(name)]
        left, right = (np.array([float(columns[name][picture]) for picture in common]) for name in (one, other))
        text.append(
            f"| {metric} | {left.mean():.3g} | {right.mean():.3g} | {hodges_lehmann(left, right):+.2g} "
            f"| {wilcoxon(left, right).p:.1g} |"
        )
    return "\n".join(text)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.first_table")
    parser.add_argument("of", type=Path, help="the folder of a run; or, with --between, the CSV made of it")
    parser.add_argument("out", type=Path, nargs="?", help="the CSV to write")
    parser.add_argument("--between", nargs=2, metavar="UPSAMPLER", help="compare two, metric by metric")
    asked = parser.parse_args()
    if asked.between:
        print(between(asked.of, *asked.between))
        return
    if asked.out is None:
        parser.error("name the CSV to write")
    table = read_table(asked.of / "table.csv")
    found = report({name: (by_name(name).better, table.values(name)) for name in table.metrics})
    wide(table, asked.out)
    pictures = {row.picture for row in table.rows}
    print(f"{len(pictures)} pictures, {len(table)} numbers; Bonferroni over {found.family} tests\n")
    print(means(table, found))


if __name__ == "__main__":
    main()
