"""Potentials: how strongly a score attracts mass.

A potential φ is a positive, increasing function on [0, 1]. Any of them gives D1, D2 and D4; only the tensor
potential also gives D3, because only there log φ is a straight line.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
import torch
from torch import Tensor

from usu import _checks as check
from usu.types import Array

#: Power and log-odds potentials are zero or infinite at the ends of [0, 1]; scores are kept this far away from them.
MARGIN = 1e-6


@dataclass(frozen=True)
class Potential:
    """φ, kept as its logarithm so that a temperature of 0.001 neither overflows nor divides by zero."""

    name: str
    log: Callable[[Tensor], Tensor]
    #: The slope of log φ where it is a straight line (D3 holds), else None.
    slope: float | None = None

    def __call__(self, scores: Tensor) -> Tensor:
        """φ(scores)."""
        return self.log(scores).exp()


def tensor(temperature: float) -> Potential:
    """The paper's potential, φ(s) = exp((s - 0.5) / temperature).

    Guarantees:
        D3: φ(s + Δ) / φ(s) = exp(Δ / temperature), whatever s.

    >>> phi = tensor(0.1)
    >>> [round(float(phi(torch.tensor(s + 0.1)) / phi(torch.tensor(s))), 3) for s in (0.1, 0.8)]
    [2.718, 2.718]
    """
    slope = 1 / check.positive_number("temperature", temperature)
    return Potential(f"tensor({temperature:g})", lambda s: (s - 0.5) * slope, slope)


def power(gamma: float) -> Potential:
    """φ(s) = max(s, 1e-6) ** gamma. No D3: a gap weighs more among low scores than among high ones.

    >>> power(2)(torch.tensor([0.1, 0.2, 0.8, 0.9])).round(decimals=2)
    tensor([0.0100, 0.0400, 0.6400, 0.8100])
    """
    exponent = check.positive_number("gamma", gamma)
    return Potential(f"power({gamma:g})", lambda s: exponent * s.clamp(min=MARGIN).log())


def log_odds(gamma: float) -> Potential:
    """φ(s) = (s / (1 - s)) ** gamma, s at least 1e-6 from both ends, where a gap weighs most. No D3.

    >>> log_odds(1)(torch.tensor([0.2, 0.5, 0.8])).round(decimals=2)
    tensor([0.2500, 1.0000, 4.0000])
    """
    exponent = check.positive_number("gamma", gamma)
    return Potential(f"log_odds({gamma:g})", lambda s: exponent * s.clamp(MARGIN, 1 - MARGIN).logit())


def checked_potential(given: Callable[[Any], Any], *, like: Array) -> Potential:
    """What the caller named, checked; a function written for numpy gets numpy where ``like`` is an array."""
    if isinstance(given, Potential):
        return given
    if not callable(given):
        raise TypeError(f"`potential` must be one of usu.potentials or a function; got {type(given).__name__}.")

    def log(scores: Tensor) -> Tensor:
        value = torch.as_tensor(given(scores.detach().cpu().numpy())) if isinstance(like, np.ndarray) else given(scores)
        if not isinstance(value, Tensor) or value.shape != scores.shape:
            got = check.shape(value) if isinstance(value, Tensor) else type(value).__name__
            raise ValueError(f"`potential` must return one value per score; got {got} for {check.shape(scores)}.")
        low, high = check.extremes(value)
        if not 0 < low <= high < inf:
            raise ValueError("`potential` must be positive and finite on [0, 1]; got a value that is not.")
        return value.to(scores).log()

    device = "cpu" if isinstance(like, np.ndarray) else like.device
    if (log(torch.linspace(0, 1, 65, dtype=torch.float64, device=device)).diff() < 0).any():
        raise ValueError("`potential` must increase on [0, 1]; got one that falls.")
    return Potential("own", log)
