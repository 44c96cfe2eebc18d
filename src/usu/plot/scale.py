"""From a map to colours: one unit, one scale for everything that is compared, and the map over its photograph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from usu import _checks as check
from usu.errors import MissingExtraError
from usu.types import NDArray

#: Perceptually uniform and readable without colour vision: sequential for maps of one sign, diverging for two; and for
#: scores, which are no evidence and should not look like it.
ONE_SIGN, TWO_SIGNS, SCORES = "plasma", "RdBu_r", "cividis"
#: Colours end at this quantile of what is shown: a few bright pixels would leave the rest dark.
QUANTILE = 0.99
#: How much of the picture the strongest colour hides.
OPACITY = 0.85
#: Below this part of a map's mass the other sign is an overshoot of an interpolation, not evidence.
_OVERSHOOT = 0.05
#: Less than 1, so that a map's weaker parts are seen over the picture.
_RISE = 0.8
#: What the model did not see.
_DIMMED = 0.7


@dataclass(frozen=True)
class Scale:
    """Which value has which colour: from 0 to ``high``, or from ``-high`` to ``high`` for maps of two signs."""

    high: float
    signed: bool = False
    colormap: str = ONE_SIGN
    label: str = "share of the evidence (1× = average pixel)"
    #: Behind the numbers of the colour bar.
    times: str = "×"

    @property
    def low(self) -> float:
        """The other end."""
        return -self.high if self.signed else 0.0

    def colours(self, field: NDArray) -> NDArray:
        """(..., 3) in [0, 1]; NaN has the colour of 0."""
        try:
            from matplotlib import colormaps
        except ImportError:
            raise MissingExtraError("matplotlib", "plot", "Drawing an overlay") from None
        unit = (np.nan_to_num(field) - self.low) / (self.high - self.low)
        return np.asarray(colormaps[self.colormap](np.clip(unit, 0, 1))[..., :3])

    def strength(self, field: NDArray) -> NDArray:
        """|value| as a part of the scale's end, in [0, 1]; what a scale of one sign does not show is 0."""
        shown = np.abs(field) if self.signed else field
        return np.asarray(np.clip(np.nan_to_num(shown) / self.high, 0, 1))


#: Scores run from 0 to 1 everywhere.
SCORE_SCALE = Scale(1.0, colormap=SCORES, label="score", times="")


def shares(field: NDArray, of: NDArray | None = None) -> NDArray:
    """A map in the unit of its own average pixel: m / mean |m|; ``of``: in the unit of another map.

    >>> shares(np.array([[0.0, 2.0], [2.0, 4.0]])).tolist()
    [[0.0, 1.0], [1.0, 2.0]]
    """
    average = float(np.nanmean(np.abs(field if of is None else of), dtype=np.float64))
    return np.asarray(field / average) if average > 0 else np.zeros_like(field)


def scale_of(fields: Sequence[NDArray], *, quantile: float = QUANTILE, colormap: str | None = None) -> Scale:
    """One scale for all of these maps, in the unit they have.

    It ends at the ``quantile`` of their values taken together, and has two signs only where one of them means both.
    """
    check.real_number("quantile", quantile, least=0, most=1)
    signed = any(_two_signs(field) for field in fields)
    values = np.concatenate(
        [np.abs(field if signed else np.maximum(field, 0)).ravel() for field in fields] or [np.zeros(1)]
    )
    values = values[np.isfinite(values)]
    high = float(np.quantile(values, quantile)) if len(values) else 0.0
    # a map of a few pixels has its quantile at zero
    high = high if high > 0 else float(values.max(initial=0.0)) or 1.0
    return Scale(high, signed, colormap or (TWO_SIGNS if signed else ONE_SIGN))


def _two_signs(field: NDArray) -> bool:
    below, above = -np.nansum(np.minimum(field, 0)), np.nansum(np.maximum(field, 0))
    return bool(below > _OVERSHOOT * (below + above))


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
    own = shares(field)
    scale = scale or scale_of([own], quantile=quantile, colormap=colormap)
    cover: Any = opacity * scale.strength(own)[..., None] ** _RISE
    mixed = picture * (1 - cover) + scale.colours(own) * cover
    seen = np.isfinite(field)[..., None]
    return np.asarray(np.rint(255 * np.where(seen, mixed, _DIMMED * picture)), dtype=np.uint8)
