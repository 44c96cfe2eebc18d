"""One style for the charts of the documentation: vectors on white, colours that can be told apart by everybody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "results"
BLUE, ORANGE, GREEN, GREY, INK = "#0072b2", "#d55e00", "#009e73", "#b0b0b0", "#333333"


def chart(width: float, height: float) -> Figure:
    """An empty figure; white, because it is a card of its own on a dark page."""
    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def tidy(axes: Any) -> None:
    """No box around it, and nothing darker than the data."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=INK, labelsize=9)
    axes.set_axisbelow(True)


def save(figure: Figure, name: str) -> None:
    """As SVG; the same numbers give the same file."""
    with mpl.rc_context({"svg.hashsalt": name, "svg.fonttype": "path"}):
        figure.savefig(HERE / f"{name}.svg", metadata={"Date": None, "Creator": None})
