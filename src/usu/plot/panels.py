"""Panels: a picture, a map, or a map over its picture, with a title and a colour bar; alone or in a grid."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from usu.errors import MissingExtraError
from usu.plot.scale import OPACITY, QUANTILE, Scale, overlay, scale_of, shares
from usu.types import NDArray

#: Text and background.
_LIGHT, _DARK = ("#000000", "#ffffff"), ("#e8e8e8", "#121212")
#: Inches: a panel's width, and the text above and below it.
_WIDTH, _TEXT = 3.0, 0.62


@dataclass(frozen=True)
class Panel:
    """One picture of a figure: a map with a colour bar, over a picture if one is given, or a picture alone."""

    title: str
    field: NDArray | None = None
    picture: NDArray | None = None
    note: str = ""
    #: None: the scale that all such panels of a figure share, in the unit of the map's average pixel.
    scale: Scale | None = None
    labels: NDArray | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width of what is shown."""
        shown = self.picture if self.picture is not None else self.field
        return (1, 1) if shown is None else (shown.shape[0], shown.shape[1])


def figure(
    panels: Sequence[Panel],
    *,
    columns: int = 4,
    heading: str = "",
    dark: bool = False,
    colormap: str | None = None,
    opacity: float = OPACITY,
    quantile: float = QUANTILE,
) -> Any:
    """Panels in a grid, row by row; a colour bar stands after the last panel of a row that it is valid for."""
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    tallest = max(panel.shape[0] / panel.shape[1] for panel in panels)
    ink, paper = _DARK if dark else _LIGHT
    lines = heading.count("\n") + 1 if heading else 0
    size = (_WIDTH * columns + 0.6, (0.9 * _WIDTH * min(tallest, 1.5) + _TEXT) * rows + 0.2 * lines)
    canvas = blank(size, paper)
    own = [p for p in panels if p.field is not None and p.scale is None]
    together = scale_of([shares(p.field) for p in own if p.field is not None], quantile=quantile, colormap=colormap)
    scales = [(p.scale or together) if p.field is not None else None for p in panels]
    for index, (panel, scale) in enumerate(zip(panels, scales, strict=True)):
        following = scales[index + 1] if (index + 1) % columns and index + 1 < len(panels) else None
        axes = canvas.add_subplot(rows, columns, index + 1)
        last = scale is not None and scale != following
        show(axes, panel, scale, bar=last, opacity=opacity, ink=ink, label=True)
    if heading:
        canvas.suptitle(heading, fontsize=11, x=0.01, ha="left", color=ink, parse_math=False)
    # a notebook shows the figure also where pyplot was never imported
    canvas._repr_png_ = partial(png, canvas)
    return canvas


def png(canvas: Any) -> bytes:
    """A figure as the bytes of a file."""
    file = io.BytesIO()
    canvas.savefig(file, format="png", dpi=100)
    return file.getvalue()


def show(
    axes: Any,
    panel: Panel,
    scale: Scale | None = None,
    *,
    bar: bool = True,
    opacity: float = OPACITY,
    ink: str | None = None,
    label: bool = False,
) -> Any:
    """Draw a panel on axes, which may be a caller's own; ``ink`` None keeps the colours of the caller's style.

    A scale that is not the panel's own is one of `shares`.
    """
    style: dict[str, Any] = {"parse_math": False} | ({} if ink is None else {"color": ink})
    axes.set_title(panel.title, fontsize=9, **style)
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set_visible(False)
    # beside a flat picture there is no room for it
    unit = [f"colours: {scale.label}"] if scale is not None and bar and label and _flat(panel.shape) else []
    note = "\n".join([panel.note] * bool(panel.note) + unit)
    if note:
        axes.set_xlabel(note, fontsize=7, **style)
    field = panel.field
    if field is None or scale is None:
        if panel.picture is not None:
            axes.imshow(np.clip(panel.picture, 0, 1))
    elif panel.picture is None:
        shown = field if panel.scale is not None else shares(field)
        axes.imshow(scale.colours(shown), interpolation="nearest")
    else:
        axes.imshow(overlay(panel.picture, field, scale=scale, opacity=opacity))
    if bar and scale is not None:
        _bar(axes, scale, panel.shape, ink, label)
    if panel.labels is not None:
        borders = np.zeros((*panel.labels.shape, 4))
        borders[:-1][np.diff(panel.labels, axis=0) != 0] = (1, 0.85, 0.2, 1)
        borders[:, :-1][np.diff(panel.labels, axis=1) != 0] = (1, 0.85, 0.2, 1)
        axes.imshow(borders, interpolation="nearest")
    return axes


def _bar(axes: Any, scale: Scale, shape: tuple[int, int], ink: str | None, label: bool) -> None:
    """As tall as the picture, whatever its aspect."""
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    place = axes.inset_axes((1.02, 0, max(0.02, 0.04 * shape[0] / shape[1]), 1))
    colours = ScalarMappable(Normalize(scale.low, scale.high), colormaps[scale.colormap])
    end = "neither" if not scale.times else "both" if scale.signed else "max"
    bar = axes.figure.colorbar(colours, cax=place, extend=end, extendfrac=0.04)
    flat = _flat(shape)
    bar.locator = MaxNLocator(2 if flat else 4)
    bar.formatter = FuncFormatter(lambda value, _: f"{value:g}{scale.times if value else ''}")
    bar.update_ticks()
    style = {} if ink is None else {"colors": ink}
    bar.ax.tick_params(labelsize=6, length=2, **style)
    bar.outline.set_visible(False)
    if label and not flat:
        bar.set_label(scale.label, fontsize=7, **({} if ink is None else {"color": ink}))


def _flat(shape: tuple[int, int]) -> bool:
    return shape[1] > 1.6 * shape[0]


def blank(size: tuple[float, float], paper: str = "#ffffff") -> Any:
    """A figure of its own canvas: no window system, no global state."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("matplotlib", "plot", "Drawing a figure") from None
    canvas = Figure(figsize=size, dpi=120, layout="constrained", facecolor=paper)
    FigureCanvasAgg(canvas)
    return canvas
