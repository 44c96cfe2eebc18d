"""The figures: an explanation, several upsamplers side by side, an audit, the effects of an evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from usu._checks import as_numpy
from usu.plot.panels import Panel, blank, figure
from usu.plot.scale import SCORE_SCALE, scale_of, shares
from usu.types import NDArray

if TYPE_CHECKING:
    from usu.auditor.report import AuditReport
    from usu.results import Explanation
    from usu.stats import Comparison

#: Colour and marker of a verdict, also told apart in grey.
VERDICTS = {"better": ("#0072B2", "o"), "worse": ("#D55E00", "s"), "undecided": ("#8a8a8a", "|")}


def comparison(
    picture: NDArray,
    maps: Mapping[str, tuple[NDArray, str]],
    *,
    coarse: NDArray,
    heading: str = "",
    dark: bool = False,
) -> Any:
    """One picture's map under several upsamplers, each over the picture, all on one scale."""
    size = f"{coarse.shape[0]} x {coarse.shape[1]}"
    panels = [Panel("picture", picture=picture), Panel("coarse map", coarse, note=size)]
    panels += [Panel(name, field, picture, note) for name, (field, note) in maps.items()]
    return figure(panels, columns=5, heading=heading, dark=dark)


def audit_figure(report: AuditReport) -> Any:
    """One row per finding that has an input: the coarse map, the scores, what came out."""
    shown = [(f, f.trial) for f in report.findings if f.trial is not None]
    panels = []
    for f, trial in [pair for pair in shown if pair[0].holds is False] or shown[:1]:
        promise = "declared, " if f.declared else ""
        panels += [
            Panel(f"{f.guarantee}: {promise}{f.verdict}", trial.coarse, note=trial.about),
            Panel("scores", trial.scores, scale=SCORE_SCALE),
            Panel("pixel map", f.pixel_map, note=f"worst violation {f.worst:.2g}"),
        ]
    return figure(panels, columns=3, heading=f"Audit of {report.name}")


def explanation_figure(explanation: Explanation, *, dark: bool = False) -> Any:
    """Picture, coarse map, bilinear, the pixel map; then segments and scores of every depth, and the standard error."""
    from usu.operator.interpolate import interpolate

    result, picture = explanation.upsampled, explanation.picture
    heading = f"{explanation.title}\n{explanation.facts}, {result.seconds:.1f} s"
    if explanation.instead is not None:
        heading += f"\nNo evidence for the target; shown instead: {explanation.instead}"
    if len(explanation.labels) > 1:
        return figure(_classes(explanation), columns=len(explanation.labels) + 1, heading=heading, dark=dark)
    coarse = explanation.coarse if explanation.coarse.ndim == 2 else explanation.coarse[0]
    layer = f", layer {explanation.source.layer}" if explanation.source.layer else ""
    panels = [
        Panel("what the model sees", picture=picture, note=f"{picture.shape[0]} x {picture.shape[1]}"),
        Panel("coarse map", coarse, note=f"{explanation.source_name}{layer}, {coarse.shape[0]} x {coarse.shape[1]}"),
        Panel("bilinear", interpolate(coarse, (picture.shape[0], picture.shape[1]), "bilinear"), picture),
        Panel("USU", explanation.first_map, picture, f"mass error {result.mass_error:.0e}"),
    ]
    for depth, (labels, field) in enumerate(zip(result.segments, result.depth_scores, strict=True)):
        panels += [
            Panel(f"segments, depth {depth}", picture=picture, labels=labels, note=f"{labels.max() + 1} segments"),
            Panel(f"scores, depth {depth}", as_numpy(field)[0], scale=SCORE_SCALE),
        ]
    if result.stderr is not None:
        spread = result.stderr if result.stderr.ndim == 2 else result.stderr[0]
        unit = shares(spread, explanation.first_map)
        panels.append(Panel("standard error", unit, scale=scale_of([unit])))
    return figure(panels, columns=3 if len(panels) == 6 else 4, heading=heading, dark=dark)


def _classes(explanation: Explanation) -> list[Panel]:
    """The picture and every class's map; below, its last segments and every class's coarse map."""
    picture, labels = explanation.picture, explanation.segments[-1]
    maps, coarse = explanation.pixel_map, explanation.coarse
    return [
        Panel("what the model sees", picture=picture),
        *(Panel(name, field, picture) for name, field in zip(explanation.names, maps, strict=True)),
        Panel("segments", picture=picture, labels=labels, note=f"{labels.max() + 1} segments"),
        *(Panel("coarse map", field, note=f"{field.shape[0]} x {field.shape[1]}") for field in coarse),
    ]


def effects(comparisons: Sequence[Comparison]) -> Any:
    """One panel per metric: the paired effect size d_z of every upsampler with its interval, the best on top."""
    columns = min(3, len(comparisons))
    rows = -(-len(comparisons) // columns)
    tallest = max(len(c.rows) for c in comparisons)
    canvas = blank((4.6 * columns, (0.17 * tallest + 0.9) * rows + 0.7))
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
