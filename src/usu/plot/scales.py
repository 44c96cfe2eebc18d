"""From values to colours: the unit of a map, which value has which colour, and how sure of it one may be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
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
#: Below this part of a map's mass the other sign is an overshoot of an interpolation, not evidence.
_OVERSHOOT = 0.05


def drawing(module: str) -> Any:
    """A module of matplotlib."""
    try:
        return import_module(module)
    except ImportError:
        raise MissingExtraError("matplotlib", "plot", "Drawing a figure") from None


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
        unit = (np.nan_to_num(field) - self.low) / (self.high - self.low)
        return np.asarray(drawing("matplotlib").colormaps[self.colormap](np.clip(unit, 0, 1))[..., :3])

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
    wide = np.asarray(field, dtype=np.result_type(field, np.float32))  # half precision would overflow
    return np.asarray(wide / average if average > 0 else 0 * wide)


def scale_of(fields: Sequence[NDArray], *, quantile: float = QUANTILE, colormap: str | None = None) -> Scale:
    """One scale for all of these maps, in the unit they have.

    It ends at the ``quantile`` of their values taken together, and has two signs only where one of them means both.

    >>> scale_of([np.array([[0.0, 2.0]])], quantile=1).high
    2.0
    """
    check.real_number("quantile", quantile, least=0, most=1)
    return shared_scale(fields, quantile, colormap)


def shared_scale(fields: Sequence[NDArray], quantile: float = QUANTILE, colormap: str | None = None) -> Scale:
    """`scale_of`, of a quantile that is known to be right."""
    signed = any(_two_signs(field) for field in fields)
    every = [np.abs(f if signed else np.maximum(f, 0)).ravel() for f in fields]
    values = np.concatenate(every) if every else np.zeros(0)
    values = values[np.isfinite(values)]
    high = float(np.quantile(values, quantile, overwrite_input=True)) if len(values) else 0.0
    # a map of a few pixels has its quantile at zero
    high = high if high > 0 else float(values.max(initial=0.0)) or 1.0
    return Scale(high, signed, colormap or (TWO_SIGNS if signed else ONE_SIGN))


def _two_signs(field: NDArray) -> bool:
    below, above = -np.nansum(np.minimum(field, 0)), np.nansum(np.maximum(field, 0))
    return bool(below > _OVERSHOOT * (below + above))


def sureness(field: NDArray, stderr: NDArray) -> NDArray:
    """How far each value stands above its standard error, v² / (v² + s²): a half where they are equal.

    >>> sureness(np.array([2.0, 1.0, 0.0]), np.array([0.0, 1.0, 1.0])).tolist()
    [1.0, 0.5, 0.0]
    """
    signal, noise = np.square(field, dtype=np.float64), np.square(stderr, dtype=np.float64)
    return np.asarray(signal / np.where(signal + noise > 0, signal + noise, 1))
