"""What the presets were meant to reach, tested on the confirmation's table: one family, declared before it was run.

    python -m experiments.presets.verdicts docs/results/presets-confirmed.csv docs/appendix/presets-search.md

The CSV is that of the confirmation's ``RUN``: ``python -m experiments.first_table keep RUN ...``.

One-sided Wilcoxon signed-rank tests (Pratt) of "the preset is better than the rival", Bonferroni over all of them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from experiments.first_table import compared, means, narrow
from experiments.pages import filled, markdown
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
FAMILY = sum(len(rivals) for _, _, rivals in CLAIMS)


def verdicts(table: Table) -> str:
    """One line per claim and rival."""
    heads = ["preset", "metric", "rival", "preset's mean", "rival's mean", "shift (95 %)", "wins", "p, corrected"]
    rows = []
    for preset, metric, rivals in CLAIMS:
        values, better = table.values(metric), by_name(metric).better
        sign = 1 if better == "higher" else -1
        for rival in rivals:
            there = ~np.isnan(values[preset]) & ~np.isnan(values[rival])
            ours, theirs = values[preset][there], values[rival][there]
            p = stats.wilcoxon(sign * ours, sign * theirs, alternative="greater").p
            shift = stats.hodges_lehmann_interval(sign * ours, sign * theirs)
            wins = stats.win_rate(sign * ours, sign * theirs)
            interval = f"{shift.estimate:+.3f} ({shift.low:+.3f} to {shift.high:+.3f})"
            corrected = f"{min(1.0, p * FAMILY):.1g}"
            numbers = (f"{ours.mean():.3f}", f"{theirs.mean():.3f}", interval, f"{wins:.0%}", corrected)
            rows.append([preset, metric, rival, *numbers])
    return markdown(heads, rows)


def parts(path: Path) -> dict[str, str]:
    """The tables of the page, by the name of their place."""
    table = narrow(path)
    # a map of other units than the coarse one's has an infinite mass error where that one is zero
    shown = Table(tuple(row for row in table.rows if row.metric != "mass-error"), {})
    return {"verdicts": verdicts(table), "confirmed": means(shown, compared(shown))}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.presets.verdicts")
    parser.add_argument("csv", type=Path)
    parser.add_argument("page", type=Path)
    asked = parser.parse_args()
    asked.page.write_text(filled(asked.page.read_text(encoding="utf-8"), parts(asked.csv)), encoding="utf-8")


if __name__ == "__main__":
    main()
