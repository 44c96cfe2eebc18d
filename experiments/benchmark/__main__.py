"""The results of a plan as files of the documentation.

    python -m experiments.benchmark cross-method RUN   # RUN: the folder that usu evaluate wrote, or several
    python -m experiments.benchmark cross-method RUN --over   # RUN has some of the upsamplers, measured again
    python -m experiments.benchmark cross-method       # the same from the committed CSV

One line of the CSV is a picture under an upsampler; the report and every table and sentence of docs/benchmark.md and
docs/appendix/benchmark.md are made of it.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

from experiments.benchmark.told import Groups, different, told
from experiments.benchmark.whole import whole
from experiments.pages import filled, markdown, prose
from experiments.renewed import renewed

from usu.bench import Row, Store, Table
from usu.bench.report import FAITHFUL, blocks_of, by_network, drawn, grouped, paper, printed_table, twins

DOCS = Path(__file__).parents[2] / "docs"
RESULTS, PAGES = DOCS / "results" / "benchmark", (DOCS / "benchmark.md", DOCS / "appendix" / "benchmark.md")
PLANS = Path(__file__).parent
WHOSE = ("dataset", "model", "source", "picture", "upsampler")
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


def keep(runs: list[Path], path: Path) -> None:
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
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
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
    path.with_suffix(".json").write_text(json.dumps({"facts": known, "failures": failures}, indent=1) + "\n")


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


def progress(name: str, groups: Groups) -> str:
    """Pictures that were measured, of those that were planned."""
    facts = json.loads((RESULTS / f"{name}.json").read_text())["facts"]
    done = {f"planned.{group.dataset}.{group.model}": group.pictures for group in groups}
    said = [
        f"{' on '.join(reversed(key.split('.')[1:]))} {done.get(key, 0)} of {n}"
        for key, n in facts.items()
        if key.startswith("planned.")
    ]
    return prose(f"Pictures measured, of those planned: {', '.join(said)}.")


def parts(name: str, groups: Groups) -> dict[str, str]:
    """Tables and sentences of the pages, by their names there."""
    shown = [one for one in SHOWN if one in groups[0].table.upsamplers]
    made = {f"{name} verdicts": markdown(*by_network(different(groups), shown[1:]))}
    for metric in (*FAITHFUL, "infidelity-raw"):
        rows = [
            [group.model, group.dataset, group.source, *(group.cell(metric, one) for one in shown)] for group in groups
        ]
        made[f"{name} {metric}"] = markdown(["network", "pictures", "source", *shown], rows)
    made |= {f"{name} {part}": text for part, text in told(groups, shown).items()}
    made[f"{name} progress"] = progress(name, groups)
    if name == "cross-method":
        made["whole"] = whole(PLANS / f"{name}.toml", DOCS / "results" / "store.csv")
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
    parser.add_argument("--over", action="store_true", help="upsamplers of RUN in the place of those committed")
    asked = parser.parse_args()
    if asked.runs and asked.over:
        keep(asked.runs, asked.runs[0] / f"{asked.name}.csv")
        renewed(RESULTS / f"{asked.name}.csv", asked.runs[0] / f"{asked.name}.csv", WHOSE)
    elif asked.runs:
        keep(asked.runs, RESULTS / f"{asked.name}.csv")
    known = json.loads((RESULTS / f"{asked.name}.json").read_text())
    groups = grouped(read(asked.name), known["facts"].get("against", "bilinear"))
    drawn(RESULTS, asked.name, known["facts"]["title"], [*blocks_of(groups, known["facts"], known["failures"])])
    made = parts(asked.name, groups)
    for page in PAGES:
        page.write_text(placed(page.read_text(encoding="utf-8"), made), encoding="utf-8")


def placed(page: str, made: dict[str, str]) -> str:
    """The page with every block that it has a place for."""
    return filled(page, {name: text for name, text in made.items() if f"<!-- measured: {name} -->" in page})


if __name__ == "__main__":
    main()
