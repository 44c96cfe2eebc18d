"""The figure of docs/appendix/presets-search.md, from the committed rows: python docs/figures/budgets.py"""

from __future__ import annotations

import csv
from statistics import mean

from style import BLUE, GREEN, GREY, INK, ORANGE, RESULTS, chart, save, tidy

SHOWN = {
    "insertion-deletion": "insertion minus deletion",
    "half-deletion": "half deletion, mean fill",
    "half-deletion:noise": "half deletion, noise fill",
}
LOOKS = {"soft": (BLUE, "o"), "cell": (ORANGE, "s"), "scores alone": (GREY, "^")}
SPENT = (50, 150, 300, 1000)


def main() -> None:
    """What more evaluations buy, on the pictures that all three parts of the search have in common."""
    tables = []
    for part in ("budgets", "parts", "unscored"):
        with (RESULTS / f"presets-search-{part}.csv").open(encoding="utf-8", newline="") as file:
            tables.append(list(csv.DictReader(file)))
    common = set.intersection(*({row["picture"] for row in table} for table in tables))
    rows = [row for table in tables for row in table if row["picture"] in common]

    def found(name: str, metric: str) -> float:
        return mean(float(row[metric]) for row in rows if row["upsampler"] == name and row[metric])

    canvas = chart(9, 3)
    for place, (metric, title) in enumerate(SHOWN.items()):
        axes = canvas.add_subplot(1, len(SHOWN), place + 1)
        for name, (colour, marker) in LOOKS.items():
            at_300 = "scores alone" if name == "scores alone" else f"{name}, 150 segments"
            means = [found(at_300 if n == 300 else f"{name}, {n} evaluations", metric) for n in SPENT]
            axes.plot(SPENT, means, color=colour, marker=marker, label=name)
        axes.plot(1, found("fast", metric), "D", color=GREEN, label="fast")
        axes.axhline(found("bilinear", metric), color=INK, linewidth=0.8, linestyle=":", label="bilinear")
        axes.set(xscale="log", xlabel="model evaluations")
        axes.set_title(title, fontsize=10)
        tidy(axes)
    canvas.axes[0].legend(frameon=False, fontsize=8)
    canvas.supxlabel(f"{len(common)} pictures", fontsize=8, x=0.99, ha="right")
    save(canvas, "presets-budget")


if __name__ == "__main__":
    main()
