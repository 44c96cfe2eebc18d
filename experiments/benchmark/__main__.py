"""The results of a plan as files of the documentation.

    python -m experiments.benchmark cross-method RUN   # RUN: the folder that usu evaluate wrote, or several
    python -m experiments.benchmark cross-method       # the same from the committed CSV

One line of the CSV is a picture under an upsampler; the report and every table of docs/benchmark.md are made of it.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from experiments.pages import filled, markdown, prose

from usu.bench import Row, Store, Table
from usu.bench.groups import Group, grouped
from usu.bench.report import FAITHFUL, blocks_of, by_network, drawn, paper, printed_table, twins

DOCS = Path(__file__).parents[2] / "docs"
RESULTS, PAGE = DOCS / "results" / "benchmark", DOCS / "benchmark.md"
FIRST = ("dataset", "model", "source", "picture", "target", "upsampler", "evaluations")
#: Upsamplers that a page has room for; the report has all.
SHOWN = (
    "bilinear",
    "bilinear-corrected",
    "guided",
    "paper",
    "paper-iwmr",
    "cell",
    "soft",
    "fast",
    "scores-alone",
    "kernel-shap",
)
Tables = dict[tuple[str, str, str], Table]


def keep(runs: list[Path], name: str) -> None:
    """Stores as one line per picture and upsampler, and what is known of the runs."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    facts: dict[str, str] = {}
    failures: list[str] = []
    for run in runs:
        with Store(run) as store:
            groups |= {group: store.rows(group) for group in store.groups()}
            facts |= store.ingredients()
            failures += [f"{one.name}: {one.sentence}" for one in store.failures()]
    metrics = list(dict.fromkeys(row.metric for rows in groups.values() for row in rows))
    RESULTS.mkdir(parents=True, exist_ok=True)
    with (RESULTS / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*FIRST, *metrics])
        for rows in groups.values():
            wide: dict[tuple[Any, ...], dict[str, float]] = defaultdict(dict)
            for row in rows:
                wide[tuple(getattr(row, key) for key in FIRST)][row.metric] = row.value
            for key, values in wide.items():
                cells = (values.get(metric, math.nan) for metric in metrics)
                writer.writerow([*key, *("" if math.isnan(cell) else format(cell, ".6g") for cell in cells)])
    known = {key: value for key, value in facts.items() if key.startswith(("planned.", "title", "against"))}
    (RESULTS / f"{name}.json").write_text(json.dumps({"facts": known, "failures": failures}, indent=1) + "\n")


def read(name: str) -> Tables:
    """Dataset, model and source -> the rows of the committed file; what was not measured has none."""
    found: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    with (RESULTS / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            for metric, value in line.items():
                if metric in FIRST or not value:
                    continue
                found[line["dataset"], line["model"], line["source"]].append(
                    Row(
                        line["picture"], int(line["target"]), line["upsampler"], metric, float(value),
                        int(line["evaluations"]), 0, **{key: line[key] for key in FIRST[:3]},
                    )
                )  # fmt: skip
    return {group: Table(tuple(rows), {}) for group, rows in found.items()}


def conclusion(groups: list[Group], names: list[str]) -> str:
    """What is better or worse than bilinear after correction, by network; and what becomes of raw infidelity."""
    lines = []
    for model in dict.fromkeys(group.model for group in groups):
        own, told = [group for group in groups if group.model == model], []
        for one in names[1:]:
            for metric in FAITHFUL:
                verdicts = [c[one].verdict for g in own if (c := g.comparison(metric)) is not None]
                for word in ("better", "worse"):
                    if count := verdicts.count(word):
                        told.append(f"`{one}` {word} on {metric} for {count} of {len(verdicts)}")
        sets = ", ".join(f"{group.dataset} {group.pictures}" for group in {g.dataset: g for g in own}.values())
        lines.append(f"- **{model}** ({sets} pictures): {'; '.join(told) or 'nothing is better or worse'}.")
    factors = [
        np.nanmean(values["bilinear"]) / np.nanmean(values["paper"])
        for values in (group.table.values("infidelity-raw") for group in groups)
    ]
    lines.append(
        f"- **Raw infidelity** of bilinear over that of `paper`: {min(factors):.2f} to {max(factors):.2f} "
        "(above 1: the paper's operator is better)."
    )
    return prose(*lines)


def parts(name: str, groups: list[Group]) -> dict[str, str]:
    """The tables of the page, by their names there."""
    different = [*{group.signature: group for group in reversed(groups)}.values()][::-1]
    shown = [one for one in SHOWN if one in groups[0].table.upsamplers]
    made = {f"{name} verdicts": markdown(*by_network(different, shown[1:]))}
    for metric in (*FAITHFUL, "infidelity-raw"):
        rows = [
            [group.model, group.dataset, group.source, *(group.cell(metric, one) for one in shown)] for group in groups
        ]
        made[f"{name} {metric}"] = markdown(["network", "pictures", "source", *shown], rows)
    made[f"{name} conclusion"] = conclusion(different, shown)
    if name == "cross-method":
        made[f"{name} twins"] = "\n".join(f"- {block.text}" for block in twins(groups))
        for dataset in ("imagenet", "cifar10"):
            lines = [one for one in paper() if (one["table"], one["dataset"]) == (name, dataset)]
            sheet = printed_table("", lines, "source")
            made[f"paper {dataset}"] = markdown(sheet.heads, sheet.rows)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=("main", "cross-method"))
    parser.add_argument("runs", type=Path, nargs="*")
    asked = parser.parse_args()
    if asked.runs:
        keep(asked.runs, asked.name)
    told = json.loads((RESULTS / f"{asked.name}.json").read_text())
    groups = grouped(read(asked.name), told["facts"].get("against", "bilinear"))
    drawn(RESULTS, asked.name, told["facts"]["title"], [*blocks_of(groups, told["facts"], told["failures"])])
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(filled(page, parts(asked.name, groups)), encoding="utf-8")


if __name__ == "__main__":
    main()
