"""Small panels in a table: the one style of the study's figures. Colours are those of `usu.plot`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from usu.plot import ONE_SIGN

#: Inches of one panel, of the row names and of the headings.
SIDE, MARGIN, HEAD = 1.25, 0.95, 0.55
#: A few pixels of a concentrated map are far brighter than the rest; colours end here.
QUANTILE = 0.995
#: Below zero by more than this share of the brightest: ringing, shown in blue.
RINGING, NEGATIVE = 0.02, "#2468a8"


@dataclass(frozen=True, eq=False)
class Panel:
    """A field, how to colour it, and a remark below."""

    field: np.ndarray
    colours: str = ONE_SIGN
    limits: tuple[float, float] | None = None
    note: str = ""
    labels: np.ndarray | None = None


def grey(field: np.ndarray) -> Panel:
    """A picture or an outline."""
    return Panel(np.asarray(field, dtype=float), "gray", (0, 1))


def heat(field: np.ndarray, note: str = "", *, top: float | None = None) -> Panel:
    """A map from zero up; what is clearly below zero is blue, so that ringing shows."""
    high = float(np.quantile(field, QUANTILE)) if top is None else top
    high = high if high > 0 else float(np.abs(field).max()) or 1.0
    return Panel(np.where((field < 0) & (field > -RINGING * high), 0, field), ONE_SIGN, (0, high), note)


def grid(
    rows: Sequence[Sequence[Panel | None]], *, columns: Sequence[str], names: Sequence[str], heading: str
) -> Figure:
    """The table of panels; None leaves a place empty."""
    width, height = MARGIN + SIDE * len(columns), HEAD + 1.13 * SIDE * len(rows)
    canvas = Figure(figsize=(width, height), dpi=150, layout="constrained")
    FigureCanvasAgg(canvas)
    places = canvas.subplots(len(rows), len(columns), squeeze=False)
    for r, row in enumerate(rows):
        for c, panel in enumerate(row):
            axes = places[r][c]
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set(linewidth=0.4, color="#999999")
            if r == 0:
                axes.set_title(columns[c], fontsize=8)
            if c == 0:
                axes.set_ylabel(names[r], fontsize=8, rotation=0, ha="right", va="center", labelpad=6)
            if panel is None:
                axes.axis("off")
                continue
            _draw(axes, panel)
    canvas.suptitle(heading, fontsize=9, x=0.01, ha="left", wrap=True)
    return canvas


def save(figure: Any, folder: Path, name: str) -> list[Path]:
    """As PNG and PDF, without the clock, so that the same numbers give the same file."""
    folder.mkdir(parents=True, exist_ok=True)
    for suffix, about in (("png", {}), ("pdf", {"CreationDate": None})):
        figure.savefig(folder / f"{name}.{suffix}", metadata=about)
    return [folder / f"{name}.png", folder / f"{name}.pdf"]


def _draw(axes: Any, panel: Panel) -> None:
    low, high = panel.limits or (None, None)
    colours = colormaps[panel.colours]
    if panel.colours == ONE_SIGN:
        colours = colours.with_extremes(under=NEGATIVE)
    axes.imshow(panel.field, cmap=colours, vmin=low, vmax=high, interpolation="nearest")
    if panel.note:
        axes.set_xlabel(panel.note, fontsize=6.5, labelpad=2)
    if panel.labels is not None:
        edge = np.zeros(panel.labels.shape, dtype=bool)
        edge[:-1] |= panel.labels[:-1] != panel.labels[1:]
        edge[:, :-1] |= panel.labels[:, :-1] != panel.labels[:, 1:]
        axes.imshow(np.where(edge[..., None], (1, 0.85, 0.2, 1), 0.0), interpolation="nearest")
