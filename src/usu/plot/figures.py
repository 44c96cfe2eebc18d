"""The figures: a result over its picture, on axes and in a notebook; upsamplers side by side; audits; evaluations."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np

from usu import _checks as check
from usu._checks import as_numpy
from usu.errors import MissingExtraError
from usu.operator.interpolate import interpolate
from usu.plot.lattices import curves, sliced, together
from usu.plot.panels import OPACITY, QUANTILE, SCORE_SCALE, Panel, blank, figure, overlay, png, scale_of, shares, show
from usu.types import Array, NDArray

if TYPE_CHECKING:
    from PIL.Image import Image

    from usu.auditor.report import AuditReport
    from usu.plot.panels import Scale
    from usu.results import Explanation, Upsampled
    from usu.results.contrast import Contrast
    from usu.stats import Comparison

    Result: TypeAlias = Upsampled[Any] | Explanation | Contrast

#: What `plot` draws: the map over its picture; both side by side; the scores; the standard errors.
Kind = Literal["overlay", "panel", "scores", "stderr"]
#: Colour and marker of a verdict, also told apart in grey.
VERDICTS = {"better": ("#0072B2", "o"), "worse": ("#D55E00", "s"), "undecided": ("#8a8a8a", "|")}
#: Pixels: the height of pictures in a notebook, which would otherwise grow by megabytes.
_SMALL = 300
#: Frames from one map to the next, and how long each and the last are shown, in milliseconds.
_FRAMES, _EACH, _LAST = 10, 70, 1500


def overlays(
    result: Result, *, colormap: str | None = None, opacity: float = OPACITY, quantile: float = QUANTILE
) -> Image:
    """The map over its picture, the file's own where it is known, as a Pillow image; several side by side on one scale.

    Args:
        colormap: a name that matplotlib knows; None is ours.
        opacity: how much of the picture the strongest colour hides, from 0 to 1.
        quantile: of the map's values, at which the colours end.
    """
    from PIL import Image

    panels = sliced(result.panels())
    tiles, _ = _tiles(panels, colormap, opacity, quantile)
    return Image.fromarray(tiles[0] if len(tiles) == 1 else together(tiles, panels))


def plot(
    result: Result,
    ax: Any = None,
    kind: Kind = "overlay",
    *,
    colormap: str | None = None,
    opacity: float = OPACITY,
    quantile: float = QUANTILE,
) -> Any:
    """Draw on matplotlib axes of yours, which keep their style, or on new ones of pyplot's; returns them.

    ``kind``: ``"overlay"``, ``"panel"`` (picture and overlay), ``"scores"`` or ``"stderr"``. The rest is as in
    `overlay`.
    """
    check.choice("kind", kind, get_args(Kind))
    title, panels = result.title, result.panels()
    if kind in ("scores", "stderr"):
        fields, own = _beside_the_map(result, kind, quantile)
        own = replace(own, colormap=colormap or own.colormap)
        panels = [Panel(panel.title, field, scale=own) for panel, field in zip(panels, fields, strict=True)]
        title = f"{kind} of {title}"
    panels = sliced(panels)
    tiles, scale = _tiles(panels, colormap, opacity, quantile)
    if kind == "panel" and panels[0].picture is not None and not panels[0].is_signal:
        tiles = [_rgb(panels[0].picture), *tiles]
    if ax is None:
        try:
            from matplotlib import pyplot
        except ImportError:
            raise MissingExtraError("matplotlib", "plot", "Drawing a figure") from None
        ax = pyplot.subplots(layout="constrained")[1]
    note = "; ".join(filter(None, (result.facts, panels[0].note)))
    if panels[0].is_signal:
        return show(ax, Panel(title, panels[0].field, note=note), scale, signals=panels)
    # the pixels are coloured already: the panel adds title and bar
    return show(ax, Panel(title, picture=together(tiles, panels) / 255, note=note), scale)


def _beside_the_map(result: Any, kind: str, quantile: float) -> tuple[list[NDArray], Scale]:
    """Scores, or standard errors in the unit of the map; they have no picture."""
    if kind == "scores":
        return list(flat(result.scores, result.dims)), SCORE_SCALE
    if result.stderr is None:
        raise ValueError(
            "`kind` must be 'overlay', 'panel' or 'scores', because these scores have no posterior; got 'stderr'."
        )
    both = (flat(values, result.dims) for values in (result.stderr, result.pixel_map))
    fields = [shares(*pair) for pair in zip(*both, strict=True)]
    return fields, replace(scale_of(fields, quantile=quantile), label="standard error (1× = average pixel's evidence)")


def small_panel(result: Result) -> bytes:
    """Picture and overlays side by side, as a PNG file for a notebook."""
    panels = result.panels()
    rows = len(panels) + 1
    if panels[0].is_signal and panels[0].picture is not None:
        rows = 1 + len(panels) * panels[0].picture.shape[1]
    wide = rows * panels[0].shape[1] / panels[0].shape[0]
    size = (min(3.2 * wide, 12) + 0.8, 3.2 * min(1.0, 12 / (3.2 * wide)) + 0.7)
    canvas = blank(size if panels[0].field is None or panels[0].field.ndim == 2 else (9.0, 0.9 + 1.2 * rows))
    plot(result, canvas.add_subplot(), "panel")
    return png(canvas)


def html(result: Result, remarks: Sequence[str] = ()) -> str:
    """Picture and overlays with a colour bar, and lines below; text in the colours of the notebook's theme."""
    panels = sliced(result.panels())
    tiles, scale = _tiles(panels, None, OPACITY, QUANTILE)
    pictures = [(tile, panel.title if len(panels) > 1 else "") for tile, panel in zip(tiles, panels, strict=True)]
    if panels[0].picture is not None and not panels[0].is_signal:
        pictures.insert(0, (_rgb(panels[0].picture), ""))
    images = "".join(
        f'<div style="text-align:center"><img src="{_data(tile)}" style="max-height:{_SMALL}px" '
        f'alt="{escape(name or result.title)}"><div style="font-size:85%">{escape(name)}</div></div>'
        for tile, name in pictures
    )
    ramp = scale.colours(np.linspace(scale.high, scale.low, 120)[:, None].repeat(12, 1))
    bar = (
        f'<div style="font-size:75%;line-height:1.2">{scale.high:.2g}{scale.times}<br><img src="{_data(_rgb(ramp))}" '
        f'style="height:120px;width:12px" alt="colours"><br>{scale.low:.2g}{scale.times if scale.low else ""}</div>'
    )
    lines = [result.facts, *filter(None, [panels[0].note]), *remarks, f"Colours: {scale.label}."]
    text = "".join(f'<div style="font-size:85%">{escape(line)}</div>' for line in lines)
    return (
        f'<div><div style="font-weight:bold">{escape(result.title)}</div>'
        f'<div style="display:flex;gap:8px;flex-wrap:wrap">{images}{bar}</div>{text}</div>'
    )


def animation(explanation: Explanation, path: str | Path) -> Path:
    """A GIF from the coarse map over the bilinear one to the pixel map; over what the model sees, on one scale."""
    from PIL import Image

    sharp = explanation.first_map
    coarse = first(explanation.coarse, sharp.ndim)
    maps = [*(interpolate(coarse, sharp.shape, mode) for mode in ("nearest", "bilinear")), sharp]
    steps = [shares(field) for field in maps]
    scale = scale_of(steps)
    fields = [steps[0]] * (_FRAMES // 2)
    for before, after in pairwise(steps):
        fields += [before + (after - before) * step / _FRAMES for step in range(1, _FRAMES + 1)]
    panels = sliced([Panel("", field, explanation.picture, scale=scale) for field in fields], sharp)
    frames = [Image.fromarray(tile) for tile in _tiles(panels, None, OPACITY, QUANTILE)[0]]
    times = [_EACH] * (len(frames) - 1) + [_LAST]
    frames[0].save(path, format="GIF", save_all=True, append_images=frames[1:], duration=times, loop=0)
    return Path(path)


def _tiles(
    panels: Sequence[Panel], colormap: str | None, opacity: float, quantile: float
) -> tuple[list[NDArray], Scale]:
    """Every map in colour, and the scale they share; one without a picture is drawn alone."""
    fields = [panel.values for panel in panels if panel.values is not None]
    scale = panels[0].scale or scale_of(fields, quantile=quantile, colormap=colormap)
    tiles = []
    for panel, field in zip(panels, fields, strict=True):
        if panel.is_signal:
            tiles.append(_drawn(panel, field, scale))
        elif panel.picture is None or panel.field is None:
            tiles.append(_rgb(scale.colours(field)))
        else:
            tiles.append(overlay(panel.picture, panel.field, scale=scale, opacity=opacity, of=panel.of))
    return tiles, scale


def _drawn(panel: Panel, field: NDArray, scale: Scale) -> NDArray:
    """A signal as pixels."""
    canvas = blank((8, 0.7 + 1.1 * (1 if panel.picture is None else panel.picture.shape[1])))
    curves(canvas.add_subplot(), [panel], [field], scale, None)
    canvas.canvas.draw()
    pixels: NDArray = np.asarray(canvas.canvas.buffer_rgba())[..., :3].copy()
    return pixels


def _rgb(unit: NDArray) -> NDArray:
    return np.asarray(np.rint(255 * np.clip(unit, 0, 1)), dtype=np.uint8)


def _data(pixels: NDArray) -> str:
    """A picture inside a page."""
    from PIL import Image

    image = Image.fromarray(pixels)
    image.thumbnail((4 * _SMALL, 2 * _SMALL))
    file = io.BytesIO()
    image.save(file, format="JPEG", quality=90)
    return f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}"


def flat(values: Array, dims: int) -> NDArray:
    """Maps (..., *size) as (n, *size)."""
    plain = as_numpy(values)
    return plain.reshape(-1, *plain.shape[-dims:])


def first(maps: NDArray, dims: int) -> NDArray:
    """Of one map, or one for each target, the first."""
    return maps if maps.ndim == dims else maps[0]


def comparison(
    picture: NDArray, maps: Mapping[str, tuple[NDArray, str]], *, coarse: NDArray, heading: str = "", dark: bool = False
) -> Any:
    """One picture's map under several upsamplers, each over the picture, all on one scale."""
    panels = [Panel("picture", picture=picture), Panel("coarse map", coarse, note=_size(coarse))]
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
    """Picture, coarse map, bilinear, USU, segments and scores per depth, standard error (needs the extra ``plot``)."""
    result, picture = explanation.upsampled, explanation.picture
    heading = f"{explanation.title}\n{explanation.facts}, {result.seconds:.1f} s"
    if explanation.instead is not None:
        heading += f"\nNo evidence for the target; shown instead: {explanation.instead}"
    if len(explanation.labels) > 1:
        columns = len(explanation.labels) + 1 if picture.ndim == 3 else 1
        return figure(_classes(explanation), columns=columns, heading=heading, dark=dark)
    sharp = explanation.first_map
    coarse = first(explanation.coarse, sharp.ndim)
    shown = coarse if sharp.ndim == 2 else interpolate(coarse, sharp.shape, "nearest")
    layer = f", layer {explanation.source.layer}" if explanation.source.layer else ""
    panels = [
        Panel("what the model sees", picture=picture, note=_size(sharp)),
        Panel("coarse map", shown, note=f"{explanation.source_name}{layer}, {_size(coarse)}"),
        Panel("bilinear", interpolate(coarse, sharp.shape, "bilinear"), picture),
        Panel("USU", sharp, picture, f"mass error {result.mass_error:.0e}"),
    ]
    for depth, (labels, field) in enumerate(zip(result.segments, result.depth_scores, strict=True)):
        panels += [
            Panel(f"segments, depth {depth}", picture=picture, labels=labels, note=f"{labels.max() + 1} segments"),
            Panel(f"scores, depth {depth}", as_numpy(field)[0], scale=SCORE_SCALE),
        ]
    if result.stderr is not None:
        unit = shares(first(result.stderr, sharp.ndim), sharp)
        panels.append(Panel("standard error", unit, scale=scale_of([unit])))
    columns = 1 if sharp.ndim != 2 else 3 if len(panels) == 6 else 4
    return figure(sliced(panels, sharp), columns=columns, heading=heading, dark=dark)


def _classes(explanation: Explanation) -> list[Panel]:
    """The picture and every class's map; below, its last segments and every class's coarse map."""
    picture, labels = explanation.picture, explanation.segments[-1]
    maps, coarse = explanation.pixel_map, explanation.coarse
    dims = picture.ndim - 1
    coarse = coarse if coarse.ndim > dims else coarse[None]
    shown = coarse if dims == 2 else interpolate(coarse, maps.shape[1:], "nearest")
    panels = [
        Panel("what the model sees", picture=picture),
        *(Panel(name, field, picture) for name, field in zip(explanation.names, maps, strict=True)),
        Panel("segments", picture=picture, labels=labels, note=f"{labels.max() + 1} segments"),
        *(Panel("coarse map", field, note=_size(coarse[0])) for field in shown),
    ]
    return sliced(panels, np.abs(maps).sum(0))


def _size(field: NDArray) -> str:
    return " x ".join(map(str, field.shape))


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
