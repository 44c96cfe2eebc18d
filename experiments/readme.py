"""The README's table, from committed rows: python -m experiments.readme docs/results README.md

Rows of the stability experiment's rivals are taken where all methods are among them, and those of the presets'
confirmation otherwise, where `soft` and `cell` are the presets of that time.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from statistics import mean

from experiments.pages import filled, markdown

#: The name shown, in the confirmation, and among the rivals; evaluations; whether every cell keeps its mass.
METHODS = (
    ("bilinear", "bilinear", "bilinear", "0", "no"),
    ("guided filter", "guided", "guided", "0", "no"),
    ("LayerCAM", "layercam", "LayerCAM", "0", "no"),
    ("`fast`", "fast", "fast", "0", "no"),
    ("`soft`", "soft", "soft", "300", "no, the total"),
    ("`cell`", "cell", "cell", "300", "**yes**"),
)
HEADS = ("map", "faithfulness ↑", "stability ↑", "evaluations ↓", "cells exact")
METRIC = "insertion-deletion"


def tables(results: Path) -> dict[str, str]:
    """The block of the README."""
    seeds = _rows(results / "stability" / "seeds-embedded.csv")
    rivals = _rows(results / "stability" / "rivals-embedded.csv")
    own = [f"{name} {METRIC} mean" for _, _, name, _, _ in METHODS]
    if rivals and all(column in rivals[0] for column in own):
        faithful = [_mean(rivals, column) for column in own]
    else:
        confirmed = _rows(results / "presets-confirmed.csv")
        faithful = [
            _mean([row for row in confirmed if row["upsampler"] == name], METRIC) for _, name, _, _, _ in METHODS
        ]
    table = []
    for (shown, _, name, evaluations, exact), value in zip(METHODS, faithful, strict=True):
        sampled = name in ("soft", "cell")
        stable = (f"{_mean(seeds, f'{name} iou'):.2f}" if seeds else "each result's own") if sampled else "no chance in it"
        table.append((shown, f"{value:.2f}", stable, evaluations, exact))
    return {"readme": markdown(HEADS, table)}


def _rows(path: Path) -> list[dict[str, str]]:
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _mean(rows: list[dict[str, str]], column: str) -> float:
    return mean(float(row[column]) for row in rows if row[column])


if __name__ == "__main__":
    folder, page = map(Path, sys.argv[1:])
    page.write_text(filled(page.read_text(encoding="utf-8"), tables(folder)), encoding="utf-8")
