"""The figures of docs/theory.md: python docs/figures/theory.py"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import usu
from usu.plot.panels import blank

HERE = Path(__file__).parent
CELLS, EACH = 3, 8
COARSE = np.array([[1.0, 3.0, 0.5]])
SCORES = np.array([[0.1] * 5 + [0.9] * 7 + [0.2] * 6 + [0.7] * 6])
BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#b0b0b0"


def main() -> None:
    """Both of them."""
    operator()
    budgets()


def operator() -> None:
    """Three cells in one dimension: what resizing does with them, and what redistribution does."""
    smooth = usu.interpolate(COARSE, (1, CELLS * EACH), "bilinear")
    canvas = blank((8.4, 2.9))
    shown = (
        ("coarse map: three cells", np.repeat(COARSE, EACH, 1), GREY),
        ("scores: what the model says", SCORES, ORANGE),
        ("bilinear: mass crosses borders", smooth, GREY),
        ("usu: cells keep their mass", usu.redistribute(COARSE, SCORES, temperature=0.5), BLUE),
    )
    for place, (title, values, colour) in enumerate(shown):
        _bars(canvas.add_subplot(1, 4, place + 1), title, values, colour)
    canvas.savefig(HERE / "theory-operator.png", dpi=130)


def budgets() -> None:
    """The same map and scores under four budgets."""
    canvas = blank((8.4, 2.9))
    ways: dict[str, Any] = {
        "cell: every cell's mass": "cell",
        "Hybrid(0.5): half of it moves": usu.Hybrid(0.5),
        "SoftIWMR: cells by importance": usu.SoftIWMR(temperature=0.5),
        "SoftPrior: one softmax over all": usu.SoftPrior(0.75),
    }
    for place, (title, budget) in enumerate(ways.items()):
        made = usu.redistribute(COARSE, SCORES, temperature=0.5, budget=budget)
        _bars(canvas.add_subplot(1, 4, place + 1), title, made, BLUE)
    canvas.savefig(HERE / "theory-budgets.png", dpi=130)


def _bars(axes: Any, title: str, values: Any, colour: str) -> None:
    line = np.asarray(values)[0]
    axes.bar(np.arange(len(line)), line, width=1.0, color=colour)
    for border in range(EACH, CELLS * EACH, EACH):
        axes.axvline(border - 0.5, color="#444444", linewidth=0.8, linestyle=":")
    axes.set_title(title, fontsize=8)
    axes.set(xticks=[], ylim=(0, max(1.0, 1.1 * float(line.max()))))
    axes.tick_params(labelsize=7)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


if __name__ == "__main__":
    main()
