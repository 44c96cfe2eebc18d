"""What the presets were meant to reach, tested on the confirmation's table: one family, declared before it was run.

    python -m experiments.presets.verdicts docs/results/presets-confirmed.csv docs/appendix/presets-search.md

The CSV is that of the confirmation's ``RUN``: ``python -m experiments.first_table keep RUN ...``.

One-sided Wilcoxon signed-rank tests (Pratt) of "the preset is better than the rival", Bonferroni over all of them.
"""

from __future__ import annotations

import argparse
import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from experiments import timings
from experiments.first_table import OUTLINES, compared, means, narrow
from experiments.pages import filled, markdown, prose
from experiments.presets.confirm import CONTROLS

from usu import stats
from usu.bench import Table
from usu.metrics import by_name

RIVALS = (
    "nearest", "bilinear", "bicubic", "lanczos3", "bilinear-corrected", "guided", "guided-corrected", "joint-bilateral",
    "segment-pooled", "paper", "scores-alone", "kernel-shap", "layercam", "refinecam", "rise",
)  # fmt: skip
#: (preset, metric, rivals)
CLAIMS = (
    ("cell", "half-deletion", (*RIVALS, *CONTROLS)),
    ("cell", "half-deletion:noise", (*RIVALS, *CONTROLS)),
    ("cell", "cell-auroc", ("bilinear", "guided", "paper")),
    ("cell", "insertion-deletion", ("nearest",)),
    ("cell", "infidelity", ("bilinear",)),
    ("soft", "insertion-deletion", ("bilinear", "scores-alone", "kernel-shap", "layercam", "rise")),
    ("soft", "energy-in-mask", ("bilinear", "scores-alone", "kernel-shap", "layercam", "rise")),
    ("fast", "half-deletion", ("bilinear", "refinecam")),
    ("fast", "half-deletion:noise", ("bilinear", "refinecam")),
    ("fast", "insertion-deletion", ("bilinear", "refinecam")),
)
#: The tables that fit a screen; the other metrics are in the CSV files.
RANKED = (
    "half-deletion",
    "half-deletion:noise",
    "insertion-deletion",
    "infidelity",
    "infidelity-matched",
    "seam-energy",
)
SEARCHED = ("parts", "ingredients", "unscored", "budgets", "candidates")
SEARCHED_METRICS = (
    "half-deletion",
    "half-deletion:noise",
    "insertion-deletion",
    "infidelity",
    "seam-energy",
    "cell-auroc",
)
FAMILY = sum(len(rivals) for _, _, rivals in CLAIMS)


@dataclass(frozen=True)
class Verdict:
    """One claim against one rival: means, the Hodges-Lehmann shift in the better direction, p after Bonferroni."""

    preset: str
    metric: str
    rival: str
    ours: float
    theirs: float
    shift: float
    p: float


def verdicts(table: Table) -> list[Verdict]:
    """Every claim and rival."""
    found = []
    for preset, metric, rivals in CLAIMS:
        values, sign = table.values(metric), 1 if by_name(metric).better == "higher" else -1
        for rival in rivals:
            there = ~np.isnan(values[preset]) & ~np.isnan(values[rival])
            ours, theirs = values[preset][there], values[rival][there]
            p = stats.wilcoxon(sign * ours, sign * theirs, alternative="greater").p
            shift = stats.hodges_lehmann(sign * ours, sign * theirs)
            means = float(ours.mean()), float(theirs.mean())
            found.append(Verdict(preset, metric, rival, *means, float(shift), min(1.0, p * FAMILY)))
    return found


def _inside(found: list[Verdict]) -> str:
    """Half deletion of `cell`, both fills side by side."""
    fills = {metric: {one.rival: one for one in found if (one.preset, one.metric) == ("cell", metric)}
             for metric in ("half-deletion", "half-deletion:noise")}  # fmt: skip
    heads = ["rival", *(f"{fill}: {of}" for fill in ("mean", "noise") for of in ("rival", "shift", "p"))]
    rows = (
        [rival, *(cell for own in fills.values() for cell in _numbers(own[rival]))] for rival in fills["half-deletion"]
    )
    return markdown(heads, rows)


def _numbers(one: Verdict) -> tuple[str, str, str]:
    return f"{one.theirs:.3f}", f"{one.shift:+.3f}", f"{one.p:.1g}"


def _rest(found: list[Verdict]) -> str:
    rows = (
        [one.preset, one.metric, one.rival, f"{one.ours:.3f}", *_numbers(one)]
        for one in found
        if not (one.preset == "cell" and one.metric.startswith("half-deletion"))
    )
    return markdown(["preset", "metric", "rival", "preset's", "rival's", "shift", "p"], rows)


def _times(table: Table) -> str:
    """How many times bilinear's."""

    def ratio(name: str, *metrics: str) -> str:
        sums = [sum(float(np.nanmean(table.values(metric)[own])) for metric in metrics) for own in (name, "bilinear")]
        return f"{sums[0] / sums[1]:.2f}"

    halves = ("half-deletion", "half-deletion:noise")
    return prose(
        f"Times bilinear's: insertion minus deletion of `soft` {ratio('soft', 'insertion-deletion')}; half deletion of "
        f"`cell` {ratio('cell', halves[0])} with the mean fill, {ratio('cell', halves[1])} with noise, "
        f"{ratio('cell', *halves)} over both; of `fast` {ratio('fast', halves[0])} and {ratio('fast', halves[1])}."
    )


def parts(path: Path) -> dict[str, str]:
    """The tables of the page, by the name of their place."""
    table = narrow(path)
    # a map of other units than the coarse one's has an infinite mass error where that one is zero
    shown = Table(tuple(row for row in table.rows if row.metric != "mass-error"), {})
    found, claims = compared(shown), verdicts(table)
    searched = {}
    for part in SEARCHED:
        own = narrow(path.with_name(f"presets-search-{part}.csv"))
        searched[f"search {part}"] = means(own, compared(own), SEARCHED_METRICS)
    with path.with_name("presets-randomised.csv").open(encoding="utf-8", newline="") as file:
        heads, *lines = csv.reader(file)
    return {
        "randomised": markdown(heads, lines),
        "inside": _inside(claims), "other claims": _rest(claims), "times": _times(table),
        "confirmed": means(shown, found, RANKED), "confirmed outlines": means(shown, found, OUTLINES), **searched,
        **{name: timed for name, timed in timings.parts(path.parent).items() if name in ("seconds", "fast seconds")},
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.presets.verdicts")
    parser.add_argument("csv", type=Path)
    parser.add_argument("page", type=Path)
    asked = parser.parse_args()
    asked.page.write_text(filled(asked.page.read_text(encoding="utf-8"), parts(asked.csv)), encoding="utf-8")


if __name__ == "__main__":
    main()
