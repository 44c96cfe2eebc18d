"""What README and pages say was measured, from committed rows: python -m experiments.readme docs/results PAGE..."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from statistics import mean

from experiments import costs, evidence, timings
from experiments.benchmark.__main__ import read
from experiments.benchmark.told import different, models, verdicts
from experiments.pages import filled, markdown, prose

from usu.bench.report import FAITHFUL, grouped

#: The name among the rows of evidence; evaluations; whether every cell keeps its mass.
METHODS = (
    ("bilinear", "0", "no"),
    ("guided", "0", "no"),
    ("layercam", "0", "no"),
    ("fast", "0", "no"),
    ("soft", "300", "no, the total"),
    ("cell", "300", "**yes**"),
)
#: Networks of the benchmark as a person calls them.
CALLED = {"embedded": "EfficientNet-Lite0", "resnet50": "ResNet-50", "vgg16": "VGG-16"}
HEADS = ("map", "faithfulness ↑", "stability ↑", "evaluations ↓", "cells exact")
METRIC = "insertion-deletion"


def tables(results: Path) -> dict[str, str]:
    """Every block by its name."""
    found = evidence.Evidence(results / "evidence.csv")
    return {
        **timings.parts(results),
        **costs.parts(results),
        **evidence.parts(found),
        "readme not reached": _readme_not_reached(found, results / "stability"),
        "readme": _readme(found, results / "stability"),
        "elsewhere": _elsewhere(),
    }


def _readme(found: evidence.Evidence, stability: Path) -> str:
    seeds = _rows(stability / "seeds-embedded.csv")
    table = []
    for name, evaluations, exact in METHODS:
        stable = f"{_mean(seeds, f'{name} iou'):.2f}" if name in ("soft", "cell") else "deterministic"
        table.append((evidence.CALLED[name], f"{found.mean(name, METRIC):.2f}", stable, evaluations, exact))
    return (
        f"On EfficientNet-Lite0 with Grad-CAM, yes: {len(found.pictures)} pictures that chose nothing "
        f"({len(seeds)} for the stability).\n\n{markdown(HEADS, table)}"
    )


def _readme_not_reached(found: evidence.Evidence, stability: Path) -> str:
    seeds, moved = (_rows(stability / f"{step}-embedded.csv") for step in ("seeds", "moved"))
    faithful, stable = found.mean("scores-alone", METRIC), _mean(seeds, "scores alone iou")
    # of two sets of one size with intersection over union j, the part 2j / (1 + j) is common
    shared = mean(2 * float(row["soft shift iou"]) / (1 + float(row["soft shift iou"])) for row in moved)
    return prose(
        f"**Not reached:** scores without any coarse map have a faithfulness of {faithful:.2f} and a stability of "
        f"{stable:.2f}: what the coarse map buys is stability. And a picture shifted by one pixel moves "
        f"{100 * (1 - shared):.0f} % of the hottest pixels of `soft`."
    )


def _elsewhere() -> str:
    """`soft` against bilinear on other networks and sources: how many comparisons it wins and loses."""
    every = grouped(read("cross-method"), "bilinear", resamples=50)
    told = []
    for model, own in models(different(every)).items():
        found = [verdict for metric in FAITHFUL for verdict in verdicts(own, "soft", metric)]
        lost = f", worse in {found.count('worse')}" if "worse" in found else ""
        told.append(f"{found.count('better')} of {len(found)} ({CALLED[model]}{lost})")
    return prose(
        f"With {len({group.source for group in every})} CAM methods, `soft` is better than bilinear in "
        f"{', '.join(told)} comparisons after correction."
    )


def _rows(path: Path) -> list[dict[str, str]]:
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _mean(rows: list[dict[str, str]], column: str) -> float:
    return mean(float(row[column]) for row in rows if row[column])


def placed(page: str, results: Path) -> str:
    """The page with every block of ours that it has a place for."""
    made = tables(results)
    return filled(page, {name: text for name, text in made.items() if f"<!-- measured: {name} -->" in page})


if __name__ == "__main__":
    for page in map(Path, sys.argv[2:]):
        page.write_text(placed(page.read_text(encoding="utf-8"), Path(sys.argv[1])), encoding="utf-8")
