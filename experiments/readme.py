"""What README and pages say was measured, from committed rows: python -m experiments.readme docs/results PAGE...

Rows of the stability experiment's rivals are taken where all methods are among them, and those of the presets'
confirmation otherwise, where `soft` and `cell` are the presets of that time.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from statistics import mean

from experiments import costs, timings
from experiments.pages import filled, markdown, prose

#: The name shown, in the confirmation, and among the rivals; evaluations; whether every cell keeps its mass.
METHODS = (
    ("bilinear", "bilinear", "bilinear", "0", "no"),
    ("guided filter", "guided", "guided filter", "0", "no"),
    ("LayerCAM", "layercam", "LayerCAM", "0", "no"),
    ("`fast`", "fast", "fast", "0", "no"),
    ("`soft`", "soft", "soft", "300", "no, the total"),
    ("`cell`", "cell", "cell", "300", "**yes**"),
)
HEADS = ("map", "faithfulness ↑", "stability ↑", "evaluations ↓", "cells exact")
METRIC = "insertion-deletion"
#: Pictures of the confirmation.
CONFIRMED = 100
#: What the page of evidence shows of the confirmation: the head and the metric.
SHOWN = (
    ("insertion minus deletion ↑", METRIC),
    ("half deletion, mean ↑", "half-deletion"),
    ("half deletion, noise ↑", "half-deletion:noise"),
    ("infidelity ↓", "infidelity"),
    ("outline, AUROC ↑", "cell-auroc"),
    ("outline, area IoU ↑", "area-iou"),
)
RIVALS = (
    "bilinear", "bilinear-corrected", "guided", "layercam", "refinecam", "rise", "kernel-shap", "scores-alone",
    "cell-permuted-scores", "paper", "fast", "soft", "cell",
)  # fmt: skip


def tables(results: Path) -> dict[str, str]:
    """Every block by its name."""
    confirmed = _rows(results / "presets-confirmed.csv")
    means = {
        (name, metric): _mean([row for row in confirmed if row["upsampler"] == name], metric)
        for name in RIVALS
        for metric in ("evaluations", *(metric for _, metric in SHOWN))
    }
    return {
        **timings.parts(results),
        **costs.parts(results),
        "readme not reached": _readme_not_reached(results / "stability"),
        "readme": _readme(results, [means[name, METRIC] for _, name, _, _, _ in METHODS]),
        "answer": _answer(means),
        "not reached": _not_reached(means),
        "evidence": markdown(
            ("map", "evaluations", *(head for head, _ in SHOWN)),
            (
                (name, f"{means[name, 'evaluations']:.0f}", *(f"{means[name, metric]:.3f}" for _, metric in SHOWN))
                for name in RIVALS
            ),
        ),
    }


def _readme(results: Path, confirmed: list[float]) -> str:
    seeds = _rows(results / "stability" / "seeds-embedded.csv")
    rivals = _rows(results / "stability" / "rivals-embedded.csv")
    own = [f"{name} {METRIC} mean" for _, _, name, _, _ in METHODS]
    whole = bool(rivals) and all(column in rivals[0] for column in own)
    faithful = [_mean(rivals, column) for column in own] if whole else confirmed
    pictures = sum(bool(row[own[0]]) for row in rivals) if whole else CONFIRMED
    table = []
    for (shown, _, name, evaluations, exact), value in zip(METHODS, faithful, strict=True):
        stable = "deterministic"
        if name in ("soft", "cell"):
            stable = f"{_mean(seeds, f'{name} iou'):.2f}" if seeds else "in every result"
        table.append((shown, f"{value:.2f}", stable, evaluations, exact))
    former = "" if whole else "`soft` and `cell` as they were before their scores had a posterior.\n"
    return (
        f"Yes, where it was measured: {pictures} pictures on which nothing was chosen, EfficientNet-Lite0, Grad-CAM.\n"
        f"{former}\n{markdown(HEADS, table)}"
    )


def _readme_not_reached(stability: Path) -> str:
    seeds, moved = (_rows(stability / f"{step}-embedded.csv") for step in ("seeds", "moved"))
    if not (seeds and moved):
        return ""
    faithful, stable = (_mean(seeds, f"scores alone {what}") for what in (f"{METRIC} mean", "iou"))
    # of two sets of one size with intersection over union j, the part 2j / (1 + j) is common
    shared = mean(2 * float(row["soft shift iou"]) / (1 + float(row["soft shift iou"])) for row in moved)
    return prose(
        f"**Not reached:** scores without any coarse map have a faithfulness of {faithful:.2f} and a stability of "
        f"{stable:.2f}: what the coarse map buys is stability. And a picture shifted by one pixel moves "
        f"{100 * (1 - shared):.0f} % of the hottest pixels of `soft`."
    )


def _answer(means: dict[tuple[str, str], float]) -> str:
    def times(name: str, metric: str) -> str:
        return f"{means[name, metric] / means['bilinear', metric]:.1f}"

    halves = [
        sum(means[name, metric] for metric in ("half-deletion", "half-deletion:noise")) for name in ("cell", "bilinear")
    ]
    return prose(
        f"**`soft` is more faithful than resizing**: it has {times('soft', METRIC)} times bilinear's insertion minus "
        "deletion, and more than LayerCAM, kernel SHAP and RISE with "
        f"{means['rise', 'evaluations']:,.0f} evaluations. "
        f"**`cell` keeps every cell's mass and ranks pixels inside the cells**: {halves[0] / halves[1]:.1f} times "
        f"bilinear's half deletion. **`fast` costs one more backward pass** and has {times('fast', METRIC)} times "
        "bilinear's insertion minus deletion."
    )


def _not_reached(means: dict[tuple[str, str], float]) -> str:
    def pair(metric: str, ours: str, rival: str) -> str:
        return f"{means[ours, metric]:.3f} against {means[rival, metric]:.3f}"

    return prose(
        "- `cell` does not outline objects better than the guided filter, which never asks the model: AUROC inside "
        f"its cells {pair('cell-auroc', 'cell', 'guided')}.",
        "- `soft` is ahead of its own scores without any coarse map in the mean, "
        f"{pair(METRIC, 'soft', 'scores-alone')}, but {CONFIRMED} pictures do not decide it.",
        "- With the mean fill, scores alone are ahead of `cell` on half deletion: "
        f"{pair('half-deletion', 'scores-alone', 'cell')}.",
        f"- The recipe as printed is below bilinear: insertion minus deletion {pair(METRIC, 'paper', 'bilinear')}.",
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
