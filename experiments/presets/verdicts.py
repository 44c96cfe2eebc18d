"""What the presets were meant to reach, tested on the confirmation's table: one family, declared before it was run.

    python -m experiments.presets.verdicts RUN docs/results/presets-confirmed.csv > verdicts.md

One-sided Wilcoxon signed-rank tests (Pratt) of "the preset is better than the rival", Bonferroni over all of them.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from experiments.first_table import means, wide
from experiments.presets.confirm import CONTROLS

from usu import stats
from usu.bench import Table, read_table
from usu.comparison import report
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
    text = [
        "| preset | metric | rival | preset's mean | rival's mean | shift (95 %) | wins | p, corrected |",
        "|---" * 8 + "|",
    ]
    for preset, metric, rivals in CLAIMS:
        values, better = table.values(metric), by_name(metric).better
        sign = 1 if better == "higher" else -1
        for rival in rivals:
            there = ~np.isnan(values[preset]) & ~np.isnan(values[rival])
            ours, theirs = values[preset][there], values[rival][there]
            p = stats.wilcoxon(sign * ours, sign * theirs, alternative="greater").p
            shift = stats.hodges_lehmann_interval(sign * ours, sign * theirs)
            wins = stats.win_rate(sign * ours, sign * theirs)
            text.append(
                f"| {preset} | {metric} | {rival} | {ours.mean():.3f} | {theirs.mean():.3f} | {shift.estimate:+.3f} "
                f"({shift.low:+.3f} to {shift.high:+.3f}) | {wins:.0%} | {min(1.0, p * FAMILY):.1g} |"
            )
    return "\n".join(text)


def main() -> None:
    run, out = map(Path, sys.argv[1:3])
    table = read_table(run / "table.csv")
    wide(table, out)
    print(f"{len({row.picture for row in table.rows})} pictures; Bonferroni over {FAMILY} tests\n\n{verdicts(table)}\n")
    worst = {name: max(found) for name, found in table.values("mass-error").items() if name in ("cell", "paper")}
    # a map of other units than the coarse one's has an infinite error where that one is zero
    rows = tuple(row for row in table.rows if row.metric != "mass-error")
    shown = Table(rows, {})
    print(means(shown, report({name: (by_name(name).better, shown.values(name)) for name in shown.metrics})))
    print("\nlargest relative D1 error: " + ", ".join(f"{name} {error:.0e}" for name, error in worst.items()))


if __name__ == "__main__":
    main()
