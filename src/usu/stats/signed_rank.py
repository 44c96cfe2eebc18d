"""Wilcoxon's family: the signed-rank test, its effect size, the shift it estimates and the interval of the shift.

Zero differences are treated as Pratt does: they are ranked with the others, then they count for neither side.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import numpy as np

from usu.stats.pairs import differences
from usu.stats.resampling import Interval, checked_confidence
from usu.types import NDArray

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

#: Up to here the null distribution is counted; beyond, the normal distribution is as good.
EXACT = 50
#: With ties or zeros scipy counts up to here, by trying all signs: the same number comes from adding rank by rank.
EXACT_WITH_TIES = 13


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

    Args:
        a, b: one number per picture, in the same order; at least 2 pictures.
        alternative: ``"greater"``: a tends to be larger.

    Guarantees:
        Exact up to 50 pairs without ties or zeros and up to 13 with them, else the normal approximation with correction
        for ties. No difference anywhere: p = 1. Only the order of the differences' sizes counts.

    >>> wilcoxon([1, 2, 3, 4, 5, 6], [0, 0, 0, 0, 0, 0])  # one of 2⁶ equally likely signs, either way: 2/64
    Wilcoxon(statistic=0.0, p=0.03125, n=6, zeros=0)
    """
    if alternative not in ("two-sided", "greater", "less"):
        raise ValueError(
            f"`alternative` must be one of 'two-sided', 'greater', 'less'; got {alternative!r}. Check the spelling."
        )
    d = differences(a, b)
    zeros = int((d == 0).sum())
    if zeros == len(d):
        return Wilcoxon(0.0, 1.0, len(d), zeros)
    from scipy import stats

    if len(d) <= EXACT_WITH_TIES and len(np.unique(np.append(np.abs(d), 0))) <= len(d):
        return _counted(d, zeros, alternative)
    result = stats.wilcoxon(d, zero_method="pratt", alternative=alternative)
    return Wilcoxon(float(result.statistic), min(float(result.pvalue), 1.0), len(d), zeros)


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
    ranks = stats.rankdata(np.abs(d))
    return float((np.sign(d) * ranks).sum() / (len(d) * (len(d) + 1) / 2))


def hodges_lehmann(a: ArrayLike, b: ArrayLike) -> float:
    """The shift that a is ahead of b: the median of the Walsh averages (d_i + d_j)/2, i <= j, of d = a - b.

    Guarantees:
        In the units of a and b; moves with them, scales with them; one wild picture hardly moves it. Needs
        4 n (n + 1) bytes: 16 MB for 2,000 pictures.

    >>> hodges_lehmann([1, 2, 9], [0, 0, 0])  # of 1, 1.5, 2, 5, 5.5, 9
    3.5
    """
    return _middle(_walsh(differences(a, b)))


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
    d = differences(a, b)
    rank = _critical(len(d), checked_confidence(confidence))
    averages = _walsh(d)
    estimate = _middle(averages)
    if rank == 0:
        return Interval(-np.inf, np.inf, estimate, confidence)
    ends = [rank - 1, len(averages) - rank]
    averages.partition(ends)
    return Interval(float(averages[ends[0]]), float(averages[ends[1]]), estimate, confidence)


def _walsh(d: NDArray) -> NDArray:
    """All (d_i + d_j)/2 with i <= j, row by row into one array: no matrix of n x n, no lists of indices."""
    half = d / 2
    n = len(half)
    averages = np.empty(n * (n + 1) // 2)
    start = 0
    for i in range(n):
        np.add(half[i], half[i:], out=averages[start : start + n - i])
        start += n - i
    return averages


def _middle(values: NDArray) -> float:
    """The median, by partition in place."""
    upper = len(values) // 2
    if len(values) % 2:
        values.partition(upper)
        return float(values[upper])
    values.partition([upper - 1, upper])
    return float(values[upper - 1] / 2 + values[upper] / 2)


@lru_cache(maxsize=64)
def _critical(n: int, confidence: float) -> int:
    """C of `hodges_lehmann_interval`."""
    tail = (1 - confidence) / 2
    if n > EXACT:
        from scipy.special import ndtri

        return max(0, int(n * (n + 1) / 4 + ndtri(tail) * np.sqrt(n * (n + 1) * (2 * n + 1) / 24)))
    return int(np.searchsorted(np.cumsum(_null(np.arange(1, n + 1))), tail, side="right"))


def _counted(d: NDArray, zeros: int, alternative: str) -> Wilcoxon:
    """The test from the exact distribution of W⁺ given the ranks; ranks of ties are halves, so they are doubled."""
    from scipy import stats

    ranks = np.rint(2 * stats.rankdata(np.abs(d))).astype(int)
    chance = _null(ranks[d != 0])
    up, down = (int(ranks[side].sum()) for side in (d > 0, d < 0))
    more, less = float(chance[up:].sum()), float(chance[: up + 1].sum())
    if alternative == "two-sided":
        return Wilcoxon(min(up, down) / 2, min(2 * more, 2 * less, 1.0), len(d), zeros)
    return Wilcoxon(up / 2, min(more if alternative == "greater" else less, 1.0), len(d), zeros)


def _null(ranks: NDArray) -> NDArray:
    """Chance of every sum of whole ranks, each of which is for or against, either as likely."""
    chance = np.zeros(int(ranks.sum()) + 1)
    chance[0] = 1.0
    for rank in ranks:
        kept = chance / 2
        chance = kept.copy()
        chance[rank:] += kept[: len(kept) - rank]
    return chance
