"""Two numbers per picture: checked once, subtracted once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from usu.types import NDArray

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

#: Differences of floats closer than this, relative to what was subtracted, differ by rounding only.
ROUNDING = 8 * float(np.finfo(np.float64).eps)


def numbers(name: str, values: ArrayLike, *, least: int = 2, gaps: bool = False) -> NDArray:
    """(n,) in float64, finite, at least ``least`` of them; with ``gaps`` NaN may stand for "not measured", and a number
    may be infinite.
    """
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"`{name}` must hold real numbers; got {array.dtype}. Pass one number per picture.")
    if array.ndim != 1 or len(array) < least:
        shape = " x ".join(map(str, array.shape)) or "a single number"
        raise ValueError(
            f"`{name}` must hold one number per picture, for at least {least} pictures; got {shape}. "
            "Measure more pictures, or flatten the array."
        )
    array = array.astype(np.float64)
    wrong = ~np.isfinite(array)
    if wrong.any() and not gaps:
        kind = "infinity" if np.isinf(array).any() else "NaN"
        advice = "Look for a division by zero." if kind == "infinity" else "Drop these pictures from both sides."
        raise ValueError(f"`{name}` must be finite; got {kind} ({wrong.sum()} of {len(array)} numbers). {advice}")
    return array


def pairs(a: ArrayLike, b: ArrayLike, *, least: int = 2) -> tuple[NDArray, NDArray]:
    """Both sides, of the same length."""
    left, right = numbers("a", a, least=least), numbers("b", b, least=least)
    if len(left) != len(right):
        raise ValueError(
            f"`a` and `b` must hold the same pictures; got {len(left)} and {len(right)} numbers. "
            "Keep the pictures measured on both sides."
        )
    return left, right


def differences(a: ArrayLike, b: ArrayLike, *, least: int = 2) -> NDArray:
    """a - b; differences that spread by rounding only are one constant, so that "always 0.1 better" stays that.

    >>> 0.4 - 0.3 == 1.1 - 1.0, float(np.ptp(differences([0.4, 1.1], [0.3, 1.0])))
    (False, 0.0)
    """
    left, right = pairs(a, b, least=least)
    with np.errstate(over="ignore"):
        d: NDArray = left - right
    if not np.isfinite(d).all():
        raise ValueError(
            f"`a` and `b` must lie close enough to subtract; got numbers up to {np.abs(left).max():.3g} and "
            f"{np.abs(right).max():.3g}. Divide both by a common factor."
        )
    noise = ROUNDING * max(np.abs(left).max(), np.abs(right).max())
    if np.ptp(d) <= noise:
        middle = float(np.median(d))
        d[:] = 0.0 if abs(middle) <= noise else middle
    return d


def standardised(mean: float, deviation: float) -> float:
    """mean / deviation; without deviation 0 for a mean of 0, else infinity with the mean's sign."""
    if deviation > 0:
        return mean / deviation
    return 0.0 if mean == 0 else float(np.copysign(np.inf, mean))
