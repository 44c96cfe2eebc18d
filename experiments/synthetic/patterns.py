"""Five periodic patterns: fine, regular truths whose edges are everywhere, to look at and to measure against.

A pattern is the truth of a picture that looks like itself: the attribution an upsampler should find again.
"""

from __future__ import annotations

from math import pi, sqrt

import numpy as np
import torch
from torch import Tensor

#: Stripes per side of the picture; about 28 pixels each at 224, so that a cell of a 7 x 7 grid holds a whole period.
STRIPES = 8
#: How far zigzag and sine swing, as a fraction of the side, and how often.
SWING, SWINGS = 0.06, 4
#: Angle between moiré's two gratings, in degrees.
TILT = 12.0
#: 1 is a plain cosine; more makes the edges crisper while they stay free of steps.
CRISP = 4.0


def patterns(*, size: int = 224) -> dict[str, Tensor]:
    """Name -> (size, size) float32 in [0, 1]: zigzag, sine, spiral, concentric wave, moire."""
    if size < 2 * STRIPES:
        raise ValueError(
            f"`size` must be at least {2 * STRIPES}, two pixels per stripe; got {size}. Draw the patterns larger."
        )
    y, x = (np.mgrid[:size, :size] + 0.5) / size
    radius, angle = np.hypot(x - 0.5, y - 0.5), np.arctan2(y - 0.5, x - 0.5)
    swing = SWINGS * x
    triangle = 4 * np.abs(swing - np.floor(swing + 0.5)) - 1  # from -1 to 1 and back, once per swing
    tilted = x * np.cos(np.radians(TILT)) + y * np.sin(np.radians(TILT))
    drawn = {
        "zigzag": _stripes(y + SWING * triangle),
        "sine": _stripes(y + SWING * np.sin(2 * pi * swing)),
        # one turn moves outwards by one period: a single arm that winds on
        "spiral": _stripes(radius * sqrt(2) - angle / (2 * pi * STRIPES)),
        "concentric wave": _stripes(radius * sqrt(2)),
        # two gratings multiplied: their beat is a third, slower wave that neither has
        "moire": _stripes(x) * _stripes(tilted),
    }
    return {name: torch.from_numpy(field.astype(np.float32)) for name, field in drawn.items()}


def _stripes(place: np.ndarray) -> np.ndarray:
    """Bright where ``place`` is near a multiple of a period, half of everything."""
    return (0.5 + CRISP / 2 * np.cos(2 * pi * STRIPES * place)).clip(0, 1)
