"""The figures of docs/theory.md: python docs/figures/theory.py"""

from __future__ import annotations

from typing import Any

import numpy as np
from style import BLUE, GREY, INK, ORANGE, chart, save, tidy

import usu

CELLS, EACH = 3, 8
COARSE = np.array([[1.0, 3.0, 0.5]])
SCORES = np.array([[0.1] * 5 + [0.9] * 7 + [0.2] * 6 + [0.7] * 6])


def main() -> None:
    """Both of them."""
    operator()
    budgets()


def operator() -> None:
    """Three cells in one dimension: what resizing does with them, and what redistribution does."""
    smooth = usu.interpolate(COARSE, (1, CELLS * EACH), "bilinear")
    canvas = chart(8.4, 2.6)
    shown = (
        ("coarse map:\nthree cells", np.repeat(COARSE, EACH, 1), GREY),
        ("scores:\nwhat the model says", SCORES, ORANGE),
        ("bilinear:\nmass crosses borders", smooth, GREY),
        ("usu:\ncells keep their mass", usu.redistribute(COARSE, SCORES, temperature=0.5), BLUE),
    )
    for place, (title, values, colour) in enumerate(shown):
        _bars(canvas.add_subplot(1, 4, place + 1), title, values, colour)
    save(canvas, "theory-operator")


def budgets() -> None:
    """The same map and scores under four budgets."""
    canvas = chart(8.4, 2.6)
    ways: dict[str, Any] = {
        "cell:\nevery cell's mass": "cell",
        "Hybrid(0.5):\nhalf of it moves": usu.Hybrid(0.5),
        "SoftIWMR:\ncells by importance": usu.SoftIWMR(temperature=0.5),
        "SoftPrior:\none softmax over all": usu.SoftPrior(0.75),
    }
    for place, (title, budget) in enumerate(ways.items()):
        made = usu.redistribute(COARSE, SCORES, temperature=0.5, budget=budget)
        _bars(canvas.add_subplot(1, 4, place + 1), title, made, BLUE)
    save(canvas, "theory-budgets")


def _bars(axes: Any, title: str, values: Any, colour: str) -> None:
    line = np.asarray(values)[0]
    axes.stairs(line, np.arange(len(line) + 1) - 0.5, fill=True, color=colour)
    for border in range(EACH, CELLS * EACH, EACH):
        axes.axvline(border - 0.5, color=INK, linewidth=0.8, linestyle=":")
    axes.set_title(title, fontsize=9)
    axes.set(xticks=[], ylim=(0, max(1.0, 1.1 * float(line.max()))))
    tidy(axes)


if __name__ == "__main__":
    main()
