"""The figure of docs/evidence.md: python docs/figures/evidence.py"""

from __future__ import annotations

import csv
from statistics import mean

from style import BLUE, GREY, INK, RESULTS, chart, save, tidy

SHOWN = {
    "bilinear": "bilinear", "guided": "guided filter", "layercam": "LayerCAM", "fast": "usu, fast", "cell": "usu, cell",
    "soft": "usu, soft", "scores-alone": "scores alone", "kernel-shap": "kernel SHAP", "rise": "RISE", "paper": "paper",
}  # fmt: skip


def main() -> None:
    """Faithfulness of each map, the cheap ones first."""
    with (RESULTS / "evidence.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    found = {
        name: [
            mean(float(row[key]) for row in rows if row["upsampler"] == name and row[key])
            for key in ("insertion-deletion", "evaluations")
        ]
        for name in SHOWN
    }
    canvas = chart(7.5, 3.6)
    axes = canvas.add_subplot()
    order = sorted(SHOWN, key=lambda name: found[name][0])
    for place, name in enumerate(order):
        value, evaluations = found[name]
        axes.barh(place, value, color=BLUE if "usu" in SHOWN[name] else GREY)
        cost = "no evaluations" if evaluations < 2 else f"{evaluations:,.0f} evaluations"
        axes.text(value + 0.006, place, f"{value:.2f}   {cost}", va="center", fontsize=9)
    axes.set_yticks(range(len(order)), [SHOWN[name] for name in order])
    axes.axvline(found["bilinear"][0], color=INK, linewidth=0.8, linestyle=":", zorder=0)
    axes.set(xlim=(0, 0.72), xlabel="insertion minus deletion, 100 pictures (higher is more faithful)")
    tidy(axes)
    save(canvas, "evidence")


if __name__ == "__main__":
    main()
