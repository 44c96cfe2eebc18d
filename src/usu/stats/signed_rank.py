"""Wilcoxon's family: the signed-rank test, its effect size, the shift it estimates and the interval of the shift.

Zero differences are treated as Pratt does: they are ranked with the others, then they count for neither side.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from usu import _checks as check
from usu.stats.effects import differences
from usu.stats.resampling import Interval, checked_confidence
from usu.types import NDArray

#: Up to so many pairs the null distribution is counted; beyond, the normal distribution is as good. As scipy's "auto".
EXACT, EXACT_WITH_TIES = 50, 13


@dataclass(frozen=True)
class Wilcoxon:
    """What the signed-rank test found."""

    #: The smaller of the two rank sums; for one side, the rank sum of the positive differences.
    statistic: float
    p: float
    #: Pairs, zeros included.
    n: int
    #: Pairs without a difference.
    zeros: int


def wilcoxon(
    a: ArrayLike, b: ArrayLike, *, alternative: Literal["two-sided", "greater", "less"] = "two-sided"
) -> Wilcoxon:
    """Paired signed-rank test of "the differences a - b are symmetric around 0" (scipy's, zeros after Pratt).

    Guarantees:
        Exact up to 50 pairs without ties or zeros and up to 13 with them, else the normal approximation with correction
        for ties. No difference anywhere: p = 1. Only the order of the differences' sizes counts.

    >>> wilcoxon([1, 2, 3, 4, 5, 6], [0, 0, 0, 0, 0, 0])  # one of 2⁶ equally likely signs, either way: 2/64
    Wilcoxon(statistic=0.0, p=0.03125, n=6, zeros=0)
    """
    from scipy import special, stats

    check.choice("alternative", alternative, ("two-sided", "greater", "less"))
    d = differences(a, b)
    n, zeros = len(d), int((d == 0).sum())
    # ranks of ties are halves, so they are doubled
    ranks = np.rint(2 * stats.rankdata(np.abs(d))).astype(int)
    up, down = int(ranks[d > 0].sum()), int(ranks[d < 0].sum())
    if zeros == n:
        more = less = 1.0
    elif n <= (EXACT if len(np.unique(np.append(np.abs(d), 0))) > n else EXACT_WITH_TIES):
        # scipy tries all signs one by one where there are ties: the same number, after seconds
        chance = _null(ranks[d != 0])
        more, less = float(chance[up:].sum()), float(chance[: up + 1].sum())
    else:
        # a sum of independent ±r: mean 0, variance Σ r²
        z = (up - down) / np.sqrt((ranks[d != 0] ** 2).sum())
        more, less = float(special.ndtr(-z)), float(special.ndtr(z))
    p = {"two-sided": 2 * min(more, less), "greater": more, "less": less}[alternative]
    return Wilcoxon((min(up, down) if alternative == "two-sided" else up) / 2, min(p, 1.0), n, zeros)


def rank_biserial(a: ArrayLike, b: ArrayLike) -> float:
    """Matched-pairs rank-biserial correlation (Kerby): (W⁺ - W⁻) / (n (n + 1) / 2).

    The total holds the ranks of the zero differences too: a tie counts half for either side and pulls towards 0.

    Guarantees:
        In [-1, 1]; 1 if a is larger on every picture, 0 if all are equal; changes sign when a and b are swapped.

    >>> rank_biserial([3, 2, 0], [0, 0, 1])  # ranks 3 and 2 for, 1 against
    0.6666666666666666
    """
    from scipy import stats

    d = differences(a, b)
    return float((np.sign(d) * stats.rankdata(np.abs(d))).sum() / (len(d) * (len(d) + 1) / 2))


def hodges_lehmann(a: ArrayLike, b: ArrayLike) -> float:
    """The shift that a is ahead of b: the median of the Walsh averages (d_i + d_j)/2, i <= j, of d = a - b.

    Guarantees:
        In the units of a and b; moves with them, scales with them; one wild picture hardly moves it. Needs
        4 n (n + 1) bytes: 16 MB for 2,000 pictures.

    >>> hodges_lehmann([1, 2, 9], [0, 0, 0])  # of 1, 1.5, 2, 5, 5.5, 9
    3.5
    """
    return float(np.median(_walsh(differences(a, b)), overwrite_input=True))


def hodges_lehmann_interval(a: ArrayLike, b: ArrayLike, *, confidence: float = 0.95) -> Interval:
    """The shift with the interval of the signed-rank test: the C-th smallest and C-th largest Walsh average.

    C is the largest number with P(W⁺ < C) <= (1 - confidence)/2 under no shift: counted up to 50 pictures, beyond
    that by the normal distribution. No bootstrap is needed.

    Guarantees:
        Covers the shift of symmetric differences with at least this probability; with fewer pictures than can give it
        (5 for 95 %) the interval is infinite.

    >>> hodges_lehmann_interval([1, 2, 3, 4, 5, 6], [0] * 6)  # C = 1: 2/64 outside
    Interval(low=1.0, high=6.0, estimate=3.5, confidence=0.95)
    """
    averages = _walsh(differences(a, b))
    rank = _critical(len(np.asarray(a)), checked_confidence(confidence))
    estimate = float(np.median(averages, overwrite_input=True))
    if rank == 0:
        return Interval(-np.inf, np.inf, estimate, confidence)
    averages.partition([rank - 1, len(averages) - rank])
    return Interval(float(averages[rank - 1]), float(averages[-rank]), estimate, confidence)


def _walsh(d: NDArray) -> NDArray:
    """All (d_i + d_j)/2 with i <= j, row by row into one array: no matrix of n x n, no lists of indices."""
    half, n, start = d / 2, len(d), 0
    averages = np.empty(n * (n + 1) // 2)
    for i in range(n):
        np.add(half[i], half[i:], out=averages[start : start + n - i])
        start += n - i
    return averages


@lru_cache(maxsize=64)
def _critical(n: int, confidence: float) -> int:
    """C of `hodges_lehmann_interval`."""
    tail = (1 - confidence) / 2
    if n > EXACT:
        from scipy.special import ndtri

        return max(0, int(n * (n + 1) / 4 + ndtri(tail) * np.sqrt(n * (n + 1) * (2 * n + 1) / 24)))
    return int(np.searchsorted(np.cumsum(_null(np.arange(1, n + 1))), tail, side="right"))


def _null(ranks: NDArray) -> NDArray:
    """Chance of every sum of whole ranks, each of which is for or against, either as likely."""
    chance = np.zeros(int(ranks.sum()) + 1)
    chance[0] = 1.0
    for rank in ranks:
        kept = chance / 2
        chance = kept.copy()
        chance[rank:] += kept[: len(kept) - rank]
    return chance
