"""Signals and volumes on paper: curves in the colours of their maps, rows of slices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from usu.types import NDArray

if TYPE_CHECKING:
    from usu.plot.panels import Panel
    from usu.plot.scales import Scale

#: The most slices of a volume in a row, and the part of their width between two.
SLICES, _GAP = 6, 0.04
#: How strongly the map's colours show behind a curve.
_BEHIND = 0.35


def slices_of(fields: Sequence[NDArray], most: int = SLICES) -> list[int]:
    """The slices of volumes (D, H, W) that divide the mass in equal parts, along the first dimension.

    >>> field = np.zeros((9, 1, 1))
    >>> field[3:5] = 1.0
    >>> slices_of([field], 2)
    [3, 4]
    """
    mass = np.sum([np.abs(np.nan_to_num(field)).sum((1, 2)) / max(np.abs(field).sum(), 1e-300) for field in fields], 0)
    mass = mass if mass.any() else np.ones_like(mass)
    middles = (2 * np.arange(most) + 1) / (2 * most)
    return sorted(set(np.searchsorted(np.cumsum(mass), middles * mass.sum()).clip(max=len(mass) - 1).tolist()))


def in_a_row(volume: NDArray, which: Sequence[int], *, between: float = 0.0) -> NDArray:
    """Slices of a volume (D, H, W, ...) side by side, with columns of the value ``between`` between two."""
    width = max(1, round(_GAP * volume.shape[2]))
    gap = np.full((volume.shape[1], width, *volume.shape[3:]), between, dtype=volume.dtype)
    parts = [part for number in which for part in (gap, volume[number])]
    return np.concatenate(parts[1:], axis=1)


def sliced(panels: Sequence[Panel], whole: NDArray | None = None) -> list[Panel]:
    """Panels of volumes as rows of slices, the same for all: of ``whole``, or of their maps."""
    fields = [panel.field for panel in panels if panel.field is not None] if whole is None else [whole]
    which = slices_of(fields)
    note = f"slices {', '.join(map(str, which))} of {len(fields[0])}"
    return [
        replace(
            panel,
            field=None if panel.field is None else in_a_row(panel.field, which),
            picture=None if panel.picture is None else in_a_row(_in_colour(panel.picture), which, between=1.0),
            labels=None if panel.labels is None else in_a_row(panel.labels, which, between=-1),
            note="; ".join(filter(None, (panel.note, note))),
            of=panel.field,
            sure=None if panel.sure is None else in_a_row(panel.sure, which),
        )
        for panel in panels
    ]


def _in_colour(picture: NDArray) -> NDArray:
    """(..., 3) of a picture with any number of channels: other numbers as grey."""
    return picture if picture.shape[-1] == 3 else np.repeat(picture.mean(-1, keepdims=True), 3, -1)


def together(tiles: Sequence[NDArray], panels: Sequence[Panel]) -> NDArray:
    """Pictures beside each other, curves and rows of slices below each other; H x W x 4, transparent in between."""
    below = panels[0].of is not None or panels[0].dims == 1
    rows = [tile.swapaxes(0, 1) if below else tile for tile in tiles]
    height = max(len(row) for row in rows)
    gap = np.zeros((height, max(2, rows[0].shape[1] // 50), 4), dtype=np.uint8)
    parts = []
    for row in rows:
        whole = np.zeros((height, row.shape[1], 4), dtype=np.uint8)
        whole[: len(row), :, :3], whole[: len(row), :, 3] = row, 255
        parts += [gap, whole]
    joined = np.concatenate(parts[1:], 1)
    return joined.swapaxes(0, 1) if below else joined


def curves(axes: Any, panels: Sequence[Panel], scale: Scale | None, ink: str | None) -> None:
    """Signals below each other, a line for each channel, in the colours of their maps.

    Args:
        panels: with pictures L x channels; without one, the map is the curve.
        scale: None draws the signals alone.
        ink: of lines and text; None keeps the caller's style.
    """
    from matplotlib.collections import LineCollection

    style = {} if ink is None else {"color": ink}
    middles, names, top, length = [], [], 0.0, 0
    for panel in panels:
        field: Any = panel.values
        lines = panel.picture
        if lines is None:
            lines = (field / max(float(np.abs(field).max()), 1e-300))[:, None]
        length = len(lines)
        for channel, line in enumerate(lines.T):
            points = np.stack([np.arange(length), line + top], 1)
            pieces = list(np.stack([points[:-1], points[1:]], 1))
            # around colours an outline, because the brightest are pale on white
            width = 1.2 if scale is None else 2.4
            axes.add_collection(LineCollection(pieces, colors=ink or "#303030", linewidths=width, capstyle="round"))
            if scale is not None and field is not None:
                colours = scale.colours((field[:-1] + field[1:]) / 2)
                axes.add_collection(LineCollection(pieces, colors=colours, linewidths=1.5, capstyle="round"))
                seen = scale.strength(field) * (1 if panel.sure is None else panel.sure)
                band = np.concatenate([scale.colours(field), _BEHIND * seen[:, None]], 1)
                place = (-0.5, length - 0.5, top - 0.05, top + 1.05)
                axes.imshow(band[None], extent=place, aspect="auto", zorder=0)
            middles.append(top + float(np.median(line)))
            names.append(" ".join([panel.title] * (len(panels) > 1) + [str(channel)] * (lines.shape[1] > 1)))
            top -= 1.15
    axes.set(xlim=(-0.5, length - 0.5), ylim=(top + 1.05, 1.1))
    if panels[0].labels is not None:
        for border in np.flatnonzero(np.diff(panels[0].labels)):
            axes.axvline(border + 0.5, color="#c99700", linewidth=0.6, zorder=0)
    axes.set_yticks(middles if any(names) else [], names if any(names) else [], parse_math=False, fontsize=7, **style)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=7, **({} if ink is None else {"colors": ink}))
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set(visible=True, **style)
