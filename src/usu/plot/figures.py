"""The figures: a result on axes, in a notebook and in motion; upsamplers side by side; audits; evaluations."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from usu import _checks as check
from usu.operator.interpolate import interpolate
from usu.plot.lattices import sliced, together
from usu.plot.panels import OPACITY, Panel, blank, figure, panels_of, rgb, show, tiled
from usu.plot.scales import QUANTILE, SCORE_SCALE, scale_of, shares
from usu.types import NDArray

if TYPE_CHECKING:
    from usu.auditor.report import AuditReport
    from usu.plot.panels import Result
    from usu.results import Explanation
    from usu.stats import Comparison

#: What `plot` draws: the map over its picture; both side by side; the scores; the standard errors.
Kind = Literal["overlay", "panel", "scores", "stderr"]
#: Colour and marker of a verdict, also told apart in grey.
VERDICTS = {"better": ("#0072B2", "o"), "worse": ("#D55E00", "s"), "undecided": ("#8a8a8a", "|")}
#: Pixels: the height of pictures in a notebook, which would otherwise grow by megabytes.
_SMALL = 300
#: Frames from one map to the next, and how long each and the last are shown, in milliseconds.
_FRAMES, _EACH, _LAST = 10, 70, 1500


def plot(
    result: Result,
    ax: Any = None,
    kind: Kind = "overlay",
    *,
    colormap: str | None = None,
    opacity: float = OPACITY,
    quantile: float = QUANTILE,
    fade: bool = False,
) -> Any:
    """Draw on matplotlib axes of yours, which keep their style, or on new ones of pyplot's; returns them.

    ``kind``: ``"overlay"``, ``"panel"`` (picture and overlay), ``"scores"`` or ``"stderr"``. The rest is as in
    `overlay`.
    """
    check.choice("kind", kind, get_args(Kind))
    check.real_number("opacity", opacity, least=0, most=1)
    check.real_number("quantile", quantile, least=0, most=1)
    title, panels = result.title, panels_of(result, fade)
    if kind in ("scores", "stderr"):
        title = f"{kind} of {title}"
        panels = _beside_the_map(result, panels, kind, colormap, quantile)
    panels, tiles, scale = tiled(panels, colormap, opacity, quantile)
    first = panels[0]
    if kind == "panel" and first.picture is not None and first.dims > 1:
        tiles = [rgb(first.picture), *tiles]
    if ax is None:
        from matplotlib import pyplot

        ax = pyplot.subplots(layout="constrained")[1]
    note = "; ".join(filter(None, (result.facts, first.note)))
    if first.dims == 1:
        return show(ax, Panel(title, first.field, note=note), scale, signals=panels)
    # the pixels are coloured already: the panel adds title and bar
    return show(ax, Panel(title, picture=together(tiles, panels) / 255, note=note), scale)


def _beside_the_map(
    result: Any, panels: Sequence[Panel], kind: Kind, colormap: str | None, quantile: float
) -> list[Panel]:
    """Scores, or standard errors in the unit of the map; they have no picture."""
    if kind == "scores":
        fields, scale = list(result.maps("scores")), SCORE_SCALE
    elif result.stderr is None:
        raise ValueError(
            "`kind` must be 'overlay', 'panel' or 'scores', because these scores have no posterior; got 'stderr'."
        )
    else:
        fields = [shares(*pair) for pair in zip(result.maps("stderr"), result.maps("pixel_map"), strict=True)]
        scale = scale_of(fields, quantile=quantile)
        scale = replace(scale, label="standard error (1× = average pixel's evidence)")
    scale = replace(scale, colormap=colormap or scale.colormap)
    return [Panel(panel.title, field, scale=scale) for panel, field in zip(panels, fields, strict=True)]


def small_panel(result: Result) -> bytes:
    """Picture and overlays side by side, as a PNG file for a notebook."""
    panels = result.panels()
    first = panels[0]
    wide = (len(panels) + 1) / first.aspect
    size = (min(3.2 * wide, 12) + 0.8, 3.2 * min(1.0, 12 / (3.2 * wide)) + 0.7)
    if first.dims != 2:
        lines = first.picture.shape[1] if first.dims == 1 and first.picture is not None else 1
        size = (9.0, 2.1 + 1.2 * len(panels) * lines)
    canvas = blank(size)
    plot(result, canvas.add_subplot(), "panel")
    drawn: bytes = canvas._repr_png_()
    return drawn


def html(result: Result, remarks: Sequence[str] = ()) -> str:
    """Picture and overlays with a colour bar, and lines below; text in the colours of the notebook's theme."""
    panels, tiles, scale = tiled(result.panels())
    pictures = [(tile, panel.title if len(panels) > 1 else "") for tile, panel in zip(tiles, panels, strict=True)]
    if panels[0].picture is not None and panels[0].dims > 1:
        pictures.insert(0, (rgb(panels[0].picture), ""))
    images = "".join(
        f'<div style="text-align:center"><img src="{_data(tile)}" style="max-height:{_SMALL}px" '
        f'alt="{escape(name or result.title)}"><div style="font-size:85%">{escape(name)}</div></div>'
        for tile, name in pictures
    )
    ramp = scale.colours(np.linspace(scale.high, scale.low, 120)[:, None].repeat(12, 1))
    bar = (
        f'<div style="font-size:75%;line-height:1.2">{scale.high:.2g}{scale.times}<br><img src="{_data(rgb(ramp))}" '
        f'style="height:120px;width:12px" alt="colours"><br>{scale.low:.2g}{scale.times if scale.low else ""}</div>'
    )
    lines = [result.facts, *filter(None, [panels[0].note]), *remarks, f"Colours: {scale.label}."]
    text = "".join(f'<div style="font-size:85%">{escape(line)}</div>' for line in lines)
    return (
        f'<div><div style="font-weight:bold">{escape(result.title)}</div>'
        f'<div style="display:flex;gap:8px;flex-wrap:wrap">{images}{bar}</div>{text}</div>'
    )


def _data(pixels: NDArray) -> str:
    """A picture inside a page."""
    from PIL import Image

    image = Image.fromarray(pixels)
    image.thumbnail((4 * _SMALL, 2 * _SMALL))
    file = io.BytesIO()
    image.save(file, format="JPEG", quality=90)
    return f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}"


def animation(explanation: Explanation, path: str | Path) -> Path:
    """A GIF from the coarse map over the bilinear one to the pixel map; over what the model sees, on one scale."""
    from PIL import Image

    sharp, coarse = explanation.first_map, explanation.maps("coarse")[0]
    maps = [*(interpolate(coarse, sharp.shape, mode) for mode in ("nearest", "bilinear")), sharp]
    steps = [shares(field) for field in maps]
    scale = scale_of(steps)
    fields = [steps[0]] * (_FRAMES // 2)
    for before, after in pairwise(steps):
        fields += [before + (after - before) * step / _FRAMES for step in range(1, _FRAMES + 1)]
    panels = [Panel("", field, explanation.picture, scale=scale) for field in fields]
    frames = [Image.fromarray(tile) for tile in tiled(sliced(panels, sharp) if sharp.ndim == 3 else panels)[1]]
    times = [_EACH] * (len(frames) - 1) + [_LAST]
    frames[0].save(path, format="GIF", save_all=True, append_images=frames[1:], duration=times, loop=0)
    return Path(path)


def comparison(
    picture: NDArray, maps: Mapping[str, tuple[NDArray, str]], *, coarse: NDArray, heading: str = "", dark: bool = False
) -> Any:
    """One picture's map under several upsamplers, each over the picture, all on one scale."""
    size = " x ".join(map(str, coarse.shape))
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
        margin = 0.06 * (max([0.0, *ends]) - min([0.0, *ends])) or 1.0
        low, high = min([0.0, *ends]) - margin, max([0.0, *ends]) + margin
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
    look: dict[str, Any] = {"markersize": 4, "linewidth": 1.2}
    keys = [Line2D([], [], color=c, marker=m, label=word, **look) for word, (c, m) in VERDICTS.items()]
    canvas.legend(handles=keys, loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    heading = f"Paired effect size d_z against {first.against}, BCa {percent}; right of 0 is better. "
    heading += f"Colour: Wilcoxon, Bonferroni over {first.family} tests"
    canvas.suptitle(heading, fontsize=10, x=0.01, ha="left", parse_math=False)
    return canvas
