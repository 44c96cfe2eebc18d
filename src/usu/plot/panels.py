"""From maps to panels: the map over its photograph, one scale for everything that is compared, and grids."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from usu import _checks as check
from usu.plot.lattices import curves, sliced, together
from usu.plot.scales import QUANTILE, Scale, drawing, scale_of, shared_scale, shares, sureness
from usu.types import NDArray

if TYPE_CHECKING:
    from PIL.Image import Image

    from usu.results import Explanation, Upsampled
    from usu.results.contrast import Contrast

    Result: TypeAlias = Upsampled[Any] | Explanation | Contrast

#: How much of the picture the strongest colour hides.
OPACITY = 0.85
#: Less than 1, so that a map's weaker parts are seen over the picture.
_RISE = 0.8
#: What the model did not see.
_DIMMED = 0.7
#: Pixels that are coloured together: what is made on the way is a dozen times as large as they are.
_AT_ONCE = 1 << 20
#: Text and background.
_LIGHT, _DARK = ("#000000", "#ffffff"), ("#e8e8e8", "#121212")
#: Inches: a panel's width, and the text above and below it.
_WIDTH, _TEXT = 3.0, 0.62
#: Panels flatter than this, signals and the slices of volumes, are so many times as wide.
_FLAT, _WIDE = 0.25, 2.6


def overlay(
    picture: NDArray,
    field: NDArray,
    *,
    scale: Scale | None = None,
    colormap: str | None = None,
    opacity: float = OPACITY,
    quantile: float = QUANTILE,
) -> NDArray:
    """The map over the picture, H x W x 3 in bytes: the stronger the map, the less of the picture shows through.

    Args:
        picture: H x W x 3 in [0, 1]; it keeps its colours where the map is weak.
        field: H x W; where it is NaN, the model has not seen the picture, which is dimmed.
        scale: for `shares` of the map; None makes one from
        colormap: a name that matplotlib knows, and
        quantile: of the map's values, at which the colours end.
        opacity: how much of the picture the strongest colour hides.

    Guarantees:
        A pixel of value zero is the picture's own.
    """
    check.real_number("opacity", opacity, least=0, most=1)
    values = shares(field)
    scale = scale or scale_of([values], quantile=quantile, colormap=colormap)
    return _over(picture, values, scale, opacity)


def _over(
    picture: NDArray, values: NDArray, scale: Scale, opacity: float = OPACITY, sure: NDArray | None = None
) -> NDArray:
    """`overlay` of values in the unit of the scale; where it is not ``sure`` of them, more of the picture shows."""
    made = np.empty(picture.shape, dtype=np.uint8)
    step = max(1, _AT_ONCE // values.shape[1])
    for start in range(0, len(values), step):
        rows = slice(start, start + step)
        cover: Any = opacity * scale.strength(values[rows])[..., None] ** _RISE
        if sure is not None:
            cover = cover * np.nan_to_num(sure[rows])[..., None]
        mixed = picture[rows] * (1 - cover) + scale.colours(values[rows]) * cover
        seen = np.isfinite(values[rows])[..., None]
        made[rows] = np.rint(255 * np.where(seen, mixed, _DIMMED * picture[rows]))
    return made


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
    #: The whole volume, where the map is slices of it.
    of: NDArray | None = None
    #: In [0, 1], like the map: how strongly each value is shown, where uncertain ones fade.
    sure: NDArray | None = None

    @property
    def dims(self) -> int:
        """1 for a signal, whose picture is L x channels; 2 for a picture, 3 for a volume."""
        return self.field.ndim if self.field is not None else 2 if self.picture is None else self.picture.ndim - 1

    @property
    def values(self) -> NDArray | None:
        """The map in the unit of its scale."""
        return self.field if self.field is None or self.scale is not None else shares(self.field, self.of)

    @property
    def aspect(self) -> float:
        """Height over width of what is shown."""
        shown = self.picture if self.picture is not None else self.field
        return 0.2 if self.dims == 1 else 1.0 if shown is None else shown.shape[0] / shown.shape[1]


def figure(panels: Sequence[Panel], *, columns: int = 4, heading: str = "", dark: bool = False) -> Any:
    """Panels in a grid, row by row; a colour bar stands after the last panel of a row that it is valid for."""
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    tallest = max(panel.aspect for panel in panels)
    ink, paper = _DARK if dark else _LIGHT
    width = _WIDTH * (1 if tallest > _FLAT else _WIDE)
    lines = heading.count("\n") + 1 if heading else 0
    canvas = blank((width * columns + 0.6, (0.9 * width * min(tallest, 1.5) + _TEXT) * rows + 0.2 * lines), paper)
    shared = shared_scale([p.values for p in panels if p.values is not None and p.scale is None])
    scales = [(p.scale or shared) if p.field is not None else None for p in panels]
    for index, (panel, scale) in enumerate(zip(panels, scales, strict=True)):
        following = scales[index + 1] if (index + 1) % columns and index + 1 < len(panels) else None
        show(canvas.add_subplot(rows, columns, index + 1), panel, scale, bar=scale != following, ink=ink)
    if heading:
        canvas.suptitle(heading, fontsize=11, x=0.01, ha="left", color=ink, parse_math=False)
    return canvas


def show(
    axes: Any,
    panel: Panel,
    scale: Scale | None,
    *,
    bar: bool = True,
    ink: str | None = None,
    signals: Sequence[Panel] = (),
) -> Any:
    """Draw a panel on axes, which may be a caller's own; ``ink`` None keeps the colours of the caller's style.

    A scale that is not the panel's own is one of `shares`. ``signals``: are drawn in its place.
    """
    style: dict[str, Any] = {} if ink is None else {"color": ink}
    axes.set_title(panel.title, fontsize=9, parse_math=False, **style)
    signals = signals or ([panel] if panel.dims == 1 else [])
    wide, notes = panel.aspect < 1 / 1.6, ["sample"] * bool(signals) + [panel.note] * bool(panel.note)
    if scale is not None and bar:
        colour_bar = _bar(axes, scale, panel.aspect, ticks=2 if wide else 4, ink=ink)
        if wide:  # beside such a picture there is no room for it
            notes.append(f"colours: {scale.label}")
        else:
            colour_bar.set_label(scale.label, fontsize=7, **style)
    if notes:
        axes.set_xlabel("\n".join(notes), fontsize=7, parse_math=False, **style)
    if signals:
        curves(axes, signals, scale, ink)
        return axes
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    values = panel.values
    if values is None or scale is None:
        if panel.picture is not None:
            axes.imshow(np.clip(panel.picture, 0, 1))
    elif panel.picture is None:
        axes.imshow(scale.colours(values), interpolation="nearest")
    else:
        axes.imshow(_over(panel.picture, values, scale, sure=panel.sure))
    if panel.labels is not None:
        borders = np.zeros((*panel.labels.shape, 4))
        borders[:-1][np.diff(panel.labels, axis=0) != 0] = (1, 0.85, 0.2, 1)
        borders[:, :-1][np.diff(panel.labels, axis=1) != 0] = (1, 0.85, 0.2, 1)
        axes.imshow(borders, interpolation="nearest")
    return axes


def _bar(axes: Any, scale: Scale, aspect: float, *, ticks: int, ink: str | None) -> Any:
    """As tall as the picture, whatever its aspect."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    place = axes.inset_axes((1.02, 0, max(0.02, 0.04 * aspect), 1))
    colours = ScalarMappable(Normalize(scale.low, scale.high), scale.colormap)
    end = "neither" if not scale.times else "both" if scale.signed else "max"
    numbers = FuncFormatter(lambda value, _: f"{value:g}{scale.times if value else ''}")
    bar = axes.figure.colorbar(
        colours, cax=place, extend=end, extendfrac=0.04, ticks=MaxNLocator(ticks), format=numbers
    )
    bar.ax.tick_params(labelsize=6, length=2, **({} if ink is None else {"colors": ink}))
    bar.outline.set_visible(False)
    return bar


def blank(size: tuple[float, float], paper: str = "#ffffff") -> Any:
    """A figure of its own canvas: no window system, no global state."""
    canvas = drawing("matplotlib.figure").Figure(figsize=size, dpi=120, layout="constrained", facecolor=paper)
    drawing("matplotlib.backends.backend_agg").FigureCanvasAgg(canvas)
    # a notebook shows the figure also where pyplot was never imported
    canvas._repr_png_ = partial(_png, canvas)
    return canvas


def _png(canvas: Any) -> bytes:
    file = io.BytesIO()
    canvas.savefig(file, format="png", dpi=100)
    return file.getvalue()


def tiled(
    panels: Sequence[Panel], colormap: str | None = None, opacity: float = OPACITY, quantile: float = QUANTILE
) -> tuple[list[Panel], list[NDArray], Scale]:
    """Panels, those of volumes as rows of slices; their maps in colour, as bytes; and the scale they share."""
    panels = sliced(panels) if panels[0].dims == 3 else list(panels)
    fields = [panel.values for panel in panels if panel.values is not None]
    scale = panels[0].scale or shared_scale(fields, quantile, colormap)
    tiles = []
    for panel, values in zip(panels, fields, strict=True):
        if panel.dims == 1:
            canvas = blank((8, 0.7 + 1.1 * (1 if panel.picture is None else panel.picture.shape[1])))
            curves(canvas.add_subplot(), [panel], scale, None)
            canvas.canvas.draw()
            tiles.append(np.asarray(canvas.canvas.buffer_rgba())[..., :3].copy())
        elif panel.picture is None:
            tiles.append(rgb(scale.colours(values if panel.sure is None else values * panel.sure)))
        else:
            tiles.append(_over(panel.picture, values, scale, opacity, panel.sure))
    return panels, tiles, scale


def rgb(unit: NDArray) -> NDArray:
    """Colours in [0, 1] as bytes."""
    return np.asarray(np.rint(255 * np.clip(unit, 0, 1)), dtype=np.uint8)


def panels_of(result: Any, fade: bool) -> list[Panel]:
    """The panels of a result; with ``fade``, what is uncertain is shown more weakly."""
    panels: list[Panel] = result.panels()
    if not fade:
        return panels
    if getattr(result, "stderr", None) is None:
        raise ValueError("`fade` must be False, because nothing tells how sure this result is; got True.")
    found = map(sureness, result.maps(), result.maps("stderr"))
    placed = getattr(result, "on_original", lambda field: (None, field))
    return [replace(panel, sure=placed(sure)[1]) for panel, sure in zip(panels, found, strict=True)]


def overlays(
    result: Result,
    *,
    colormap: str | None = None,
    opacity: float = OPACITY,
    quantile: float = QUANTILE,
    fade: bool = False,
) -> Image:
    """The map over its picture, the file's own where it is known, as a Pillow image; several side by side on one scale.

    Args:
        colormap: a name that matplotlib knows; None is ours.
        opacity: how much of the picture the strongest colour hides, from 0 to 1.
        quantile: of the map's values, at which the colours end.
        fade: show values the more weakly, the larger their standard error is: by half where the two are equal.
    """
    check.real_number("opacity", opacity, least=0, most=1)
    check.real_number("quantile", quantile, least=0, most=1)
    return pasted(panels_of(result, fade), colormap, opacity, quantile)


def pasted(
    panels: Sequence[Panel], colormap: str | None = None, opacity: float = OPACITY, quantile: float = QUANTILE
) -> Image:
    """Panels in colour, as one picture."""
    from PIL import Image

    panels, tiles, _ = tiled(panels, colormap, opacity, quantile)
    return Image.fromarray(tiles[0] if len(tiles) == 1 else together(tiles, panels))
