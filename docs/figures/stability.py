"""The figure of docs/stability.md, from the committed numbers: IoU between two seeds over the number of evaluations.

python docs/figures/stability.py
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from experiments.stability.__main__ import rows_of  # noqa: E402
from experiments.stability.cases import NETWORKS, column  # noqa: E402
from experiments.stability.compared import whole  # noqa: E402
from experiments.stability.steps import BUDGETS  # noqa: E402

from usu.settings import PRESETS  # noqa: E402

#: Readable without colour vision, and in grey by their markers.
LOOKS = {"soft": ("#0072B2", "o"), "cell": ("#D55E00", "s")}
WIDE = 2
#: From so many evaluations on there are all segments.
ALL = 2 * PRESETS["soft"].parts


def main() -> None:
    """Draw it."""
    run = HERE.parent / "results" / "stability"
    known = [name for name in NETWORKS if (run / f"curve-{name}.csv").is_file()]
    high = -(-len(known) // WIDE)
    figure = Figure(figsize=(4.2 * WIDE, 3.2 * high), dpi=150, layout="constrained")
    for place, name in enumerate(known):
        axes = figure.add_subplot(high, WIDE, place + 1)
        rows = whole(rows_of(run / f"curve-{name}.csv"))
        same = {row["picture"] for row in rows}
        before = [row for row in rows_of(run / f"seeds-{name}.csv") if row["picture"] in same]
        for preset, (colour, marker) in LOOKS.items():
            found = [column(rows, f"{preset}@{budget} iou") for budget in BUDGETS]
            means = np.array([one.mean() for one in found])
            errors = np.array([one.std() / len(one) ** 0.5 for one in found])
            few = [budget < ALL for budget in BUDGETS].count(True)
            for part, dashes in ((slice(None, few), "--"), (slice(few, None), "-")):
                x, y, e = BUDGETS[part], means[part], errors[part]
                axes.fill_between(x, y - e, y + e, color=colour, alpha=0.18, linewidth=0)
                axes.plot(x, y, dashes, color=colour, marker=marker, label=preset if dashes == "-" else None)
            axes.plot([300], [column(before, f"former {preset} iou").mean()], marker, color=colour, fillstyle="none")
        axes.axvspan(25, ALL, color="#f0f0f0", zorder=0)
        axes.text(27, 0.22, "larger segments", fontsize=8, color="#444444")
        axes.annotate("before", (330, column(before, "former soft iou").mean()), fontsize=8, color="#444444")
        axes.set(xscale="log", xlim=(25, 1400), ylim=(0.2, 1), xlabel="model evaluations", title=NETWORKS[name][1])
        axes.set_xticks(BUDGETS, [f"{budget:,}" for budget in BUDGETS], fontsize=7)
        axes.minorticks_off()
        axes.grid(color="#e6e6e6", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        if place % WIDE == 0:
            axes.set_ylabel("IoU of the 5 % highest pixels, two seeds", fontsize=9)
        if place == 0:
            axes.legend(frameon=False)
    figure.savefig(HERE / "stability.png")


if __name__ == "__main__":
    main()
