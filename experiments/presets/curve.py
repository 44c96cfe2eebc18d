"""The search's ``budgets`` as a figure: what more evaluations buy.

python -m experiments.presets.curve RUN docs/figures/presets-budget.png
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np

from usu.bench import read_table

SHOWN = {"insertion-deletion": "insertion minus deletion", "half-deletion": "half deletion within cells, mean fill",
         "half-deletion:noise": "half deletion within cells, noise fill"}  # fmt: skip


def main() -> None:
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    run, out = map(Path, sys.argv[1:3])
    tables = [read_table(run / group / "table.csv") for group in ("budgets", "parts", "unscored")]
    common = set.intersection(*({row.picture for row in table.rows} for table in tables))
    rows = [row for table in tables for row in table.rows if row.picture in common]
    figure, axes = plt.subplots(1, len(SHOWN), figsize=(12, 3.6), layout="constrained")
    for axis, (metric, title) in zip(axes, SHOWN.items(), strict=True):
        values = {
            name: float(np.mean([row.value for row in rows if (row.metric, row.upsampler) == (metric, name)]))
            for name in {row.upsampler for row in rows}
        }
        for name, colour in (("soft", "C3"), ("cell", "C0"), ("scores alone", "C7")):
            at_300 = values["scores alone" if name == "scores alone" else f"{name}, 150 segments"]
            spent = [50, 150, 300, 1000]
            means = [at_300 if n == 300 else values[f"{name}, {n} evaluations"] for n in spent]
            axis.plot(spent, means, "o-", color=colour, label=name)
        axis.plot(1, values["fast"], "s", color="C2", label="fast (1 pass)")
        axis.axhline(values["bilinear"], color="k", linewidth=0.8, linestyle="--", label="bilinear (0)")
        axis.set(title=title, xscale="log", xlabel="model evaluations")
    axes[0].legend(frameon=False, fontsize=8)
    figure.suptitle(f"{len(common)} development pictures", fontsize=9)
    figure.savefig(out, dpi=150)


if __name__ == "__main__":
    main()
