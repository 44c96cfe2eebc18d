"""How large a difference is, beside whether there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from usu.stats.pairs import ROUNDING, differences, pairs, standardised
from usu.types import NDArray

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


def cohens_d(a: ArrayLike, b: ArrayLike) -> float:
    """Difference of the means in pooled standard deviations, the paper's effect size: d = (ā - b̄) / √((s_a² + s_b²)/2).

    It forgets the pairing: pictures differ more than upsamplers do, so it is much smaller than `paired_d`.

    Guarantees:
        Changes sign when a and b are swapped; unchanged when both are scaled or shifted together. Where neither side
        varies: 0 for equal means, else infinity with the sign of the difference.

    >>> cohens_d([1, 2, 3], [0, 1, 2])
    1.0
    """
    left, right = pairs(a, b)
    noise = ROUNDING * max(np.abs(left).max(), np.abs(right).max())
    mean = float(left.mean() - right.mean())
    if max(np.ptp(left), np.ptp(right)) <= noise:
        return standardised(0.0 if abs(mean) <= noise else mean, 0.0)
    return standardised(mean, float(np.sqrt((left.var(ddof=1) + right.var(ddof=1)) / 2)))


def paired_d(a: ArrayLike, b: ArrayLike) -> float:
    """Mean of the differences in their own standard deviations: d_z = mean(a - b) / s(a - b), with n - 1.

    Guarantees:
        Changes sign when a and b are swapped; unchanged when both are scaled, or shifted picture by picture.
        Differences that are all the same (up to rounding): 0 if they are 0, else infinity with their sign.

    >>> paired_d([1, 2, 6], [0, 0, 3])
    2.0
    >>> paired_d([1, 2], [0, 1])
    inf
    """
    d = differences(a, b)
    return standardised(float(d.mean()), float(d.std(ddof=1)) if np.ptp(d) > 0 else 0.0)


def win_rate(a: ArrayLike, b: ArrayLike) -> float:
    """Share of pictures on which a is larger; ties count half: mean of [a > b] + [a = b]/2.

    Guarantees:
        In [0, 1]; the rates of (a, b) and (b, a) add up to 1.

    >>> win_rate([3, 3, 1, 1], [2, 2, 2, 1])
    0.625
    """
    return float(wins(differences(a, b)).mean())


def wins(d: NDArray) -> NDArray:
    """1 where a difference is positive, 1/2 where it is zero."""
    return np.asarray((1 + np.sign(d)) / 2)
