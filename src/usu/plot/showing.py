"""How a result shows itself: over its picture, on axes, in a notebook, as an animation."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from usu.errors import MissingExtraError
from usu.plot.panels import Panel, blank, png, show
from usu.plot.scale import OPACITY, QUANTILE, SCORE_SCALE, Scale, overlay, scale_of, shares
from usu.types import NDArray

if TYPE_CHECKING:
    from PIL.Image import Image

    from usu.results import Explanation

#: Pixels: the height of pictures in a notebook, which would otherwise grow by megabytes.
_SMALL = 300
#: Frames from one map to the next, and how long each and the last are shown, in milliseconds.
_FRAMES, _EACH, _LAST = 10, 70, 1500


@dataclass(frozen=True, eq=False)
class View:
    """A map, its picture and its name."""

    #: H x W; NaN where the model saw nothing.
    field: NDArray
    picture: NDArray | None
    title: str


def overlays(
    views: Sequence[View], *, colormap: str | None = None, opacity: float | None = None, quantile: float | None = None
) -> Image:
    """The maps over their pictures side by side, on one scale."""
    from PIL import Image

    tiles, _ = _tiles(views, colormap, opacity, quantile)
    return Image.fromarray(_beside(tiles)[..., :3] if len(tiles) == 1 else _beside(tiles))


def plot(
    axes: Any,
    kind: str,
    views: Sequence[View],
    *,
    title: str,
    note: str,
    colormap: str | None = None,
    opacity: float | None = None,
    quantile: float | None = None,
) -> Any:
    """One image on axes, with title and colour bar; the caller's axes keep their own style."""
    if axes is None:
        try:
            from matplotlib import pyplot
        except ImportError:
            raise MissingExtraError("matplotlib", "plot", "Drawing a figure") from None
        axes = pyplot.subplots(layout="constrained")[1]
    if kind in ("scores", "stderr"):
        fields = [view.field for view in views]
        scale = SCORE_SCALE if kind == "scores" else scale_of(fields, quantile=quantile or QUANTILE)
        scale = replace(scale, colormap=colormap or scale.colormap)
        scale = scale if kind == "scores" else replace(scale, label="standard error (1× = average pixel's evidence)")
        tiles = [_rgb(scale.colours(field)) for field in fields]
        title = f"{kind} of {title}"
    else:
        tiles, scale = _tiles(views, colormap, opacity, quantile)
        if kind == "panel":
            first = views[0].picture
            tiles = ([] if first is None else [_rgb(first)]) + tiles
    # the pixels are coloured already: the panel adds title and bar
    shown = _beside(tiles)
    return show(axes, Panel(title, picture=shown / 255, note=note), scale, label=True)


def small_panel(views: Sequence[View], title: str, note: str) -> bytes:
    """Picture and overlays side by side, as a PNG file for a notebook."""
    wide = sum(_aspect(view) for view in views) + _aspect(views[0])
    canvas = blank((min(3.2 * wide, 12) + 0.8, 3.2 * min(1.0, 12 / (3.2 * wide)) + 0.7))
    plot(canvas.add_subplot(), "panel", views, title=title, note=note)
    return png(canvas)


def html(views: Sequence[View], title: str, lines: Sequence[str]) -> str:
    """Picture and overlays with a colour bar, and the lines below; text in the colours of the notebook's theme."""
    tiles, scale = _tiles(views, None, None, None)
    first = views[0].picture
    pictures = ([] if first is None else [(_rgb(first), "")]) + [
        (tile, view.title if len(views) > 1 else "") for tile, view in zip(tiles, views, strict=True)
    ]
    images = "".join(
        f'<div style="text-align:center"><img src="{_data(tile)}" style="max-height:{_SMALL}px" '
        f'alt="{escape(name or title)}"><div style="font-size:85%">{escape(name)}</div></div>'
        for tile, name in pictures
    )
    ramp = scale.colours(np.linspace(scale.high, scale.low, 120)[:, None].repeat(12, 1))
    bar = (
        f'<div style="font-size:75%;line-height:1.2">{scale.high:.2g}{scale.times}<br><img src="{_data(_rgb(ramp))}" '
        f'style="height:120px;width:12px" alt="colours"><br>{scale.low:.2g}{scale.times if scale.low else ""}</div>'
    )
    text = "".join(f'<div style="font-size:85%">{escape(line)}</div>' for line in [*lines, f"Colours: {scale.label}."])
    return (
        f'<div><div style="font-weight:bold">{escape(title)}</div><div style="display:flex;gap:8px;flex-wrap:wrap">'
        f"{images}{bar}</div>{text}</div>"
    )


def animation(explanation: Explanation, path: Path) -> Path:
    """The coarse map's blocks, the bilinear map, the pixel map: each fades into the next, as a GIF."""
    from PIL import Image

    from usu.operator.interpolate import interpolate

    picture, sharp = explanation.picture, explanation.first_map
    coarse = explanation.coarse if explanation.coarse.ndim == 2 else explanation.coarse[0]
    size = (picture.shape[0], picture.shape[1])
    steps = [shares(interpolate(coarse, size, mode)) for mode in ("nearest", "bilinear")] + [shares(sharp)]
    scale = scale_of(steps)
    fields = [steps[0]] * (_FRAMES // 2)
    for before, after in pairwise(steps):
        fields += [before + (after - before) * step / _FRAMES for step in range(1, _FRAMES + 1)]
    frames = [Image.fromarray(overlay(picture, field, scale=scale)) for field in fields]
    times = [_EACH] * (len(frames) - 1) + [_LAST]
    frames[0].save(path, format="GIF", save_all=True, append_images=frames[1:], duration=times, loop=0)
    return path


def _tiles(
    views: Sequence[View], colormap: str | None, opacity: float | None, quantile: float | None
) -> tuple[list[NDArray], Scale]:
    """Every view in colour, and the scale they share; a map without a picture is drawn alone."""
    scale = scale_of(
        [shares(view.field) for view in views], quantile=QUANTILE if quantile is None else quantile, colormap=colormap
    )
    strong = OPACITY if opacity is None else opacity
    tiles = [
        _rgb(scale.colours(shares(view.field)))
        if view.picture is None
        else overlay(view.picture, view.field, scale=scale, opacity=strong)
        for view in views
    ]
    return tiles, scale


def _beside(tiles: Sequence[NDArray]) -> NDArray:
    """Images of one height in a row, H x W x 4 in bytes, with a transparent gap between them."""
    height = max(len(tile) for tile in tiles)
    gap = np.zeros((height, max(2, tiles[0].shape[1] // 50), 4), dtype=np.uint8)
    row = [gap]
    for tile in tiles:
        whole = np.zeros((height, tile.shape[1], 4), dtype=np.uint8)
        whole[: len(tile), :, :3], whole[: len(tile), :, 3] = tile, 255
        row += [whole, gap]
    return np.concatenate(row[1:-1], 1)


def _rgb(unit: NDArray) -> NDArray:
    return np.asarray(np.rint(255 * np.clip(unit, 0, 1)), dtype=np.uint8)


def _aspect(view: View) -> float:
    height, width = view.field.shape
    return float(width / height)


def _data(pixels: NDArray) -> str:
    """A picture inside a page."""
    from PIL import Image

    image = Image.fromarray(pixels)
    image.thumbnail((4 * _SMALL, 2 * _SMALL))
    file = io.BytesIO()
    image.save(file, format="JPEG", quality=90)
    return f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}"
