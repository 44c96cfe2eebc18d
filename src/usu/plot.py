"""Every picture we draw, in one style. The only file that imports matplotlib (extra ``plot``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from usu._checks import as_numpy
from usu.errors import MissingExtraError
from usu.types import NDArray

if TYPE_CHECKING:
    from usu.auditor.report import AuditReport
    from usu.results import Explanation
    from usu.stats import Comparison

#: Sequential for maps of one sign, diverging around zero for two; both readable without colour vision.
ONE_SIGN, TWO_SIGNS = "inferno", "RdBu_r"
#: Colour and marker of a verdict, also told apart in grey.
VERDICTS = {"better": ("#0072B2", "o"), "worse": ("#D55E00", "s"), "undecided": ("#8a8a8a", "|")}


@dataclass(frozen=True)
class Panel:
    """One picture of a figure: a map with a colour bar, over a picture if one is given, or a picture alone."""

    title: str
    field: NDArray | None = None
    picture: NDArray | None = None
    note: str = ""
    limits: tuple[float, float] | None = None
    #: Colours end at this quantile, so that a few bright pixels do not darken the rest; the bar says so with a point.
    quantile: float = 1.0
    labels: NDArray | None = None


def figure(panels: Sequence[Panel], *, columns: int = 4, heading: str = "") -> Any:
    """Panels in a grid, row by row."""
    rows = -(-len(panels) // columns)
    canvas = _figure((3.1 * columns, 3.05 * rows + (0.4 if heading else 0)))
    for index, panel in enumerate(panels):
        _draw(canvas, canvas.add_subplot(rows, columns, index + 1), panel)
    if heading:
        canvas.suptitle(heading, fontsize=11, x=0.01, ha="left", parse_math=False)
    return canvas


def comparison(picture: NDArray, maps: Mapping[str, tuple[NDArray, str]], *, coarse: NDArray, heading: str = "") -> Any:
    """One picture's map under several upsamplers, each over the picture with its own colour bar."""
    size = f"{coarse.shape[0]} x {coarse.shape[1]}"
    panels = [Panel("picture", picture=picture), Panel("coarse map", coarse, note=size)]
    panels += [Panel(name, field, picture, note) for name, (field, note) in maps.items()]
    return figure(panels, columns=5, heading=heading)


def audit_figure(report: AuditReport) -> Any:
    """One row per finding that has an input: the coarse map, the scores, what came out."""
    shown = [(f, f.trial) for f in report.findings if f.trial is not None]
    panels = []
    for f, trial in [pair for pair in shown if pair[0].holds is False] or shown[:1]:
        promise = "declared, " if f.declared else ""
        panels += [
            Panel(f"{f.guarantee}: {promise}{f.verdict}", trial.coarse, note=trial.about),
            Panel("scores", trial.scores, limits=(0, 1)),
            Panel("pixel map", f.pixel_map, note=f"worst violation {f.worst:.2g}"),
        ]
    return figure(panels, columns=3, heading=f"Audit of {report.name}")


def explanation_figure(explanation: Explanation) -> Any:
    """Picture, coarse map, bilinear, the pixel map; then segments and scores of every depth."""
    from usu.operator.interpolate import interpolate

    result = explanation.upsampled
    coarse = explanation.coarse if explanation.coarse.ndim == 2 else explanation.coarse[0]
    picture, layer = explanation.picture, explanation.source.layer or "?"
    panels = [
        Panel("what the model sees", picture=picture, note=explanation.label),
        Panel("coarse map", coarse, note=f"{coarse.shape[0]} x {coarse.shape[1]}, layer {layer}"),
        Panel("bilinear", interpolate(coarse, (picture.shape[0], picture.shape[1]), "bilinear"), picture),
        Panel("USU", explanation.first_map, picture, f"mass error {result.mass_error:.0e}", quantile=0.995),
    ]
    for depth, (labels, field) in enumerate(zip(result.segments, result.depth_scores, strict=True)):
        panels += [
            Panel(f"segments, depth {depth}", picture=picture, labels=labels, note=f"{labels.max() + 1} segments"),
            Panel(f"scores, depth {depth}", as_numpy(field)[0], limits=(0, 1)),
        ]
    name = f"{explanation.label} ({result.provenance['preset']})"
    cost = f"{result.evaluations} model evaluations, {result.seconds:.1f} s"
    if isinstance(result.stability, float):
        cost += f", stability {result.stability:.2f}"
    heading = f"{name}: {cost}"
    if explanation.instead is not None:
        heading += f"\nNo evidence for the target; shown instead: {explanation.instead}"
    return figure(panels, columns=3 if len(panels) == 6 else 4, heading=heading)


def effects(comparisons: Sequence[Comparison]) -> Any:
    """One panel per metric: the paired effect size d_z of every upsampler with its interval, the best on top."""
    columns = min(3, len(comparisons))
    rows = -(-len(comparisons) // columns)
    tallest = max(len(c.rows) for c in comparisons)
    canvas = _figure((4.6 * columns, (0.17 * tallest + 0.9) * rows + 0.7))
    for index, c in enumerate(comparisons):
        axes = canvas.add_subplot(rows, columns, index + 1)
        shown = [row for row in c.ranked() if row.measured]
        ends = [v for r in shown for v in (r.paired_d.low, r.paired_d.high) if np.isfinite(v)]
        low, high = min([0.0, *ends]), max([0.0, *ends])
        margin = 0.06 * (high - low) or 1.0
        low, high = low - margin, high + margin
        for y, row in enumerate(shown):
            colour, marker = VERDICTS[row.verdict]
            d = row.paired_d
            middle, left, right = np.clip([d.estimate, d.low, d.high], low, high)
            if np.isinf(d.estimate):  # stands at the border as an arrow
                marker = ">" if d.estimate > 0 else "<"
            axes.plot([left, right], [y, y], color=colour, linewidth=1.2, solid_capstyle="butt")
            axes.plot([middle], [y], marker, color=colour, markersize=4, clip_on=False)
        axes.axvline(0, color="black", linewidth=0.8, zorder=0)
        axes.set(xlim=(low, high), ylim=(max(len(shown), 1) - 0.3, -0.7))
        names = [r.upsampler if len(r.upsampler) <= 32 else f"{r.upsampler[:20]}…{r.upsampler[-11:]}" for r in shown]
        axes.set_yticks(range(len(shown)), names, fontsize=7, parse_math=False)
        axes.tick_params(axis="x", labelsize=7)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="y", color="#e6e6e6", linewidth=0.5)
        axes.set_axisbelow(True)
        axes.spines[["top", "right", "left"]].set_visible(False)
        counts = sorted({r.n for r in shown})
        n = f"n = {counts[0]}" if len(counts) == 1 else f"n = {counts[0]} to {counts[-1]}" if counts else "not measured"
        axes.set_title(f"{c.metric} ({n})", fontsize=9, loc="left", parse_math=False)
    from matplotlib.lines import Line2D

    first = comparisons[0]
    percent = f"{100 * first.confidence:.4g} %"
    keys = [
        Line2D([], [], color=c, marker=m, markersize=4, linewidth=1.2, label=word) for word, (c, m) in VERDICTS.items()
    ]
    canvas.legend(handles=keys, loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    heading = f"Paired effect size d_z against {first.against}, BCa {percent}; right of 0 is better. "
    heading += f"Colour: Wilcoxon, Bonferroni over {first.family} tests"
    canvas.suptitle(heading, fontsize=10, x=0.01, ha="left", parse_math=False)
    return canvas


def overlay(picture: NDArray, field: NDArray) -> NDArray:
    """The map in colour over the grey picture, H x W x 3 in bytes; where the map is NaN the picture is dimmed.

    The stronger the map, the less of the picture shows through.
    """
    try:
        from matplotlib import colormaps
    except ImportError:
        raise MissingExtraError("matplotlib", "plot", "Drawing an overlay") from None
    name, low, high = colours(field, 0.995)
    unit = np.clip((field - low) / (high - low), 0, 1)
    strength = np.nan_to_num(np.abs(2 * unit - 1) if name == TWO_SIGNS else unit)[..., None]
    colour = colormaps[name](np.nan_to_num(unit))[..., :3]
    grey = np.repeat(picture.mean(-1, keepdims=True), 3, axis=-1)
    mixed = grey * (1 - 0.35 - 0.5 * strength) + colour * (0.35 + 0.5 * strength)
    seen = np.isfinite(field)[..., None]
    return np.asarray(np.rint(255 * np.where(seen, mixed, 0.4 * grey)), dtype=np.uint8)


def colours(field: NDArray, quantile: float = 1.0) -> tuple[str, float, float]:
    """Colour map and limits: from zero for one sign, symmetric around zero for two."""
    low, high = float(np.nanquantile(field, 1 - quantile)), float(np.nanquantile(field, quantile))
    if low < 0 < high:
        reach = max(-low, high)
        return TWO_SIGNS, -reach, reach
    if high <= 0 and low < 0:
        return f"{ONE_SIGN}_r", low, 0.0
    return ONE_SIGN, min(low, 0.0), high if high > 0 else 1.0


def _draw(canvas: Any, axes: Any, panel: Panel) -> None:
    axes.set_title(panel.title, fontsize=9, parse_math=False)
    axes.set_xticks([])
    axes.set_yticks([])
    if panel.note:
        axes.set_xlabel(panel.note, fontsize=7, parse_math=False)
    if panel.picture is not None:
        grey = panel.field is not None and panel.picture.ndim == 3
        axes.imshow(panel.picture.mean(-1) if grey else panel.picture, cmap="gray", vmin=0, vmax=1)
    if panel.field is not None:
        name, low, high = colours(panel.field, panel.quantile)
        low, high = panel.limits or (low, high)
        alpha, end = 1 if panel.picture is None else 0.75, "max" if panel.quantile < 1 else "neither"
        shown = axes.imshow(panel.field, cmap=name, vmin=low, vmax=high, interpolation="nearest", alpha=alpha)
        bar = canvas.colorbar(shown, ax=axes, fraction=0.046, pad=0.03, extend=end)
        bar.ax.tick_params(labelsize=6)
        bar.formatter.set_powerlimits((-3, 3))
    if panel.labels is not None:
        borders = np.zeros((*panel.labels.shape, 4))
        borders[:-1][np.diff(panel.labels, axis=0) != 0] = (1, 0.85, 0.2, 1)
        borders[:, :-1][np.diff(panel.labels, axis=1) != 0] = (1, 0.85, 0.2, 1)
        axes.imshow(borders, interpolation="nearest")


def _figure(size: tuple[float, float]) -> Any:
    """A figure of its own canvas: no window system, no global state."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("matplotlib", "plot", "Drawing a figure") from None
    canvas = Figure(figsize=size, dpi=120, layout="constrained")
    FigureCanvasAgg(canvas)
    return canvas
