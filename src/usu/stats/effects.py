"""How large a difference is: effect sizes of numbers in pairs, one pair per picture; and p values of many tests."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from usu import _checks as check
from usu.types import NDArray

#: Differences of floats closer than this, relative to what was subtracted, differ by rounding only.
_ROUNDING = 8 * float(np.finfo(np.float64).eps)


def cohens_d(a: ArrayLike, b: ArrayLike) -> float:
    """Difference of the means in pooled standard deviations, the paper's effect size: d = (ā - b̄) / √((s_a² + s_b²)/2).

    It forgets the pairing: pictures differ more than upsamplers do, so it is much smaller than `paired_d`.

    Guarantees:
        Changes sign when a and b are swapped; unchanged when both are scaled or shifted together. Where neither side
        varies: 0 for equal means, else infinity with the sign of the difference.

    >>> cohens_d([1, 2, 3], [0, 1, 2])
    1.0
    """
    left, right, noise = _pairs(a, b)
    mean = float(left.mean() - right.mean())
    if max(np.ptp(left), np.ptp(right)) <= noise:
        return _standardised(0.0 if abs(mean) <= noise else mean, 0.0)
    return _standardised(mean, float(np.sqrt((left.var(ddof=1) + right.var(ddof=1)) / 2)))


def paired_d(a: ArrayLike, b: ArrayLike) -> float:
    """Mean of the differences in their own standard deviations: d_z = mean(a - b) / s(a - b), with n - 1.

    Guarantees:
        Changes sign when a and b are swapped; unchanged when both are scaled, or shifted picture by picture.
        Differences that are all the same (up to rounding): 0 if they are 0, else infinity with their sign.

    >>> paired_d([1, 2, 6], [0, 0, 3])
    2.0
    """
    d = differences(a, b)
    return _standardised(float(d.mean()), float(d.std(ddof=1)) if np.ptp(d) > 0 else 0.0)


def win_rate(a: ArrayLike, b: ArrayLike) -> float:
    """Share of pictures on which a is larger, ties count half: mean of [a > b] + [a = b]/2, in [0, 1].

    >>> win_rate([3, 3, 1, 1], [2, 2, 2, 1])
    0.625
    """
    return float(wins(differences(a, b)).mean())


def wins(d: NDArray) -> NDArray:
    """1 where a difference is positive, 1/2 where it is zero."""
    return np.asarray((1 + np.sign(d)) / 2)


def numbers(name: str, values: ArrayLike, *, least: int = 2, gaps: bool = False) -> NDArray:
    """(n,) in float64, at least ``least`` of them; finite, unless there may be ``gaps`` (NaN) and infinities."""
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"`{name}` must hold real numbers; got {array.dtype}.")
    if array.ndim != 1 or len(array) < least:
        shape = " x ".join(map(str, array.shape)) or "a single number"
        raise ValueError(f"`{name}` must hold one number per picture, for at least {least} pictures; got {shape}.")
    array = array.astype(np.float64)
    wrong = array[~np.isfinite(array)]
    if len(wrong) and not gaps:
        kind = "infinity" if np.isinf(wrong).any() else "NaN"
        raise ValueError(f"`{name}` must be finite; got {kind} ({len(wrong)} of {len(array)} numbers).")
    return array


def _pairs(a: ArrayLike, b: ArrayLike) -> tuple[NDArray, NDArray, float]:
    """Both sides, of the same length, and how far rounding alone can take their differences."""
    left, right = numbers("a", a), numbers("b", b)
    if len(left) != len(right):
        raise ValueError(f"`a` and `b` must hold the same pictures; got {len(left)} and {len(right)} numbers.")
    return left, right, _ROUNDING * float(max(np.abs(left).max(), np.abs(right).max()))


def differences(a: ArrayLike, b: ArrayLike) -> NDArray:
    """a - b; differences that spread by rounding only are one constant, so that "always 0.1 better" stays that."""
    left, right, noise = _pairs(a, b)
    with np.errstate(over="ignore"):
        d: NDArray = left - right
    if not np.isfinite(d).all():
        raise ValueError(f"`a` and `b` must lie close enough to subtract; got numbers up to {noise / _ROUNDING:.3g}.")
    if np.ptp(d) <= noise:
        middle = float(np.median(d))
        d[:] = 0.0 if abs(middle) <= noise else middle
    return d


def _standardised(mean: float, deviation: float) -> float:
    """mean / deviation; without deviation 0 for a mean of 0, else infinity with the mean's sign."""
    if deviation > 0:
        return mean / deviation
    return 0.0 if mean == 0 else float(np.copysign(np.inf, mean))


def bonferroni(ps: ArrayLike, *, family: int | None = None) -> NDArray:
    """min(1, m p) for a family of m tests: as many as there are p values, or ``family``, if more were declared.

    >>> bonferroni([0.01, 0.4, 0.03]).round(3).tolist()
    [0.03, 1.0, 0.09]
    """
    values, m = _family(ps, family)
    return np.asarray(np.minimum(m * values, 1.0))


def holm(ps: ArrayLike, *, family: int | None = None) -> NDArray:
    """Holm's step-down: max over j <= i of min(1, (m - j + 1) p_(j)), for the i-th smallest of m; m as in `bonferroni`.

    The tests that are not shown are taken to be the largest, which can only make the answer larger.

    Guarantees:
        p <= Holm <= Bonferroni, in the order of the p values.

    >>> holm([0.01, 0.4, 0.03]).round(3).tolist()
    [0.03, 0.4, 0.06]
    """
    values, m = _family(ps, family)
    order = np.argsort(values, kind="stable")
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(np.maximum.accumulate((m - np.arange(len(values))) * values[order]), 1.0)
    return adjusted


def _family(ps: ArrayLike, family: int | None) -> tuple[NDArray, int]:
    values = np.asarray(ps, dtype=np.float64)
    if values.ndim != 1:
        raise ValueError(f"`ps` must be a list of p values; got {values.ndim} dimensions.")
    wrong = values[~((values >= 0) & (values <= 1))]
    if len(wrong):
        raise ValueError(f"`ps` must lie in [0, 1]; got {wrong[0]}.")
    return values, len(values) if family is None else check.whole_number("family", family, least=len(values))
