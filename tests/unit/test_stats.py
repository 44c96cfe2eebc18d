"""Statistics against scipy, statsmodels, enumeration and numbers written down by hand."""

from __future__ import annotations

import tracemalloc
import warnings
from itertools import product
from typing import Any

import numpy as np
import pytest
import scipy.stats

from usu import stats
from usu.stats.effects import wins
from usu.stats.resampling import moments
from usu.stats.signed_rank import _critical

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what statsmodels' own imports say is not our business
    from statsmodels.stats.multitest import multipletests

NONE = [0.0] * 6


def numbers(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    return generator.normal(0.3, 1, n), generator.normal(0, 1, n)


# the signed-rank test


#: Not 13 with ties: scipy tries 8,192 signs one by one. The test that counts signs has it.
SIZES = [*product((4, 6, 14, 50, 51, 400), (False, True)), (13, False)]


@pytest.mark.parametrize(("n", "ties"), SIZES)
@pytest.mark.parametrize("alternative", ["two-sided", "greater", "less"])
def test_wilcoxon_is_scipys(n: int, ties: bool, alternative: Any) -> None:
    a, b = numbers(n, seed=n)
    if ties:
        a, b = np.round(a), np.round(b)
        a[0] = b[0]
    oracle = scipy.stats.wilcoxon(a, b, zero_method="pratt", alternative=alternative)
    found = stats.wilcoxon(a, b, alternative=alternative)
    assert (found.statistic, found.p) == (oracle.statistic, pytest.approx(oracle.pvalue, rel=1e-12))
    assert (found.n, found.zeros) == (n, (a == b).sum())


def by_enumeration(d: np.ndarray) -> float:
    """Two-sided p over all signs; zeros are ranked and count for nobody."""
    ranks = np.array([(np.abs(d) < size).sum() + ((np.abs(d) == size).sum() + 1) / 2 for size in np.abs(d)])
    ranks = ranks[d != 0]
    seen = ranks[d[d != 0] > 0].sum()
    sums = np.array([ranks[list(signs)].sum() for signs in product([False, True], repeat=len(ranks))])
    return min(1.0, 2 * min((sums <= seen).mean(), (sums >= seen).mean()))


@pytest.mark.parametrize(
    "d",
    [
        [1, 2, 3, 4, 5],
        [1, -2, 3, 4, 5, -6.5],
        [0, 0, 1, 2, 3, -4],
        [1, 1, 1, -1, 2],
        [0, 1],
        [-3, -2, -1, 0],
        [0, 1, 1, -1, 2, 2, 3, -3, 4, 5, 5, -5, 6],  # the last number of pairs that is counted with ties
    ],
)
def test_wilcoxon_counts_signs(d: list[float]) -> None:
    array = np.array(d, dtype=float)
    assert stats.wilcoxon(array, np.zeros(len(d))).p == pytest.approx(by_enumeration(array), abs=1e-12)


def test_wilcoxon_without_a_difference() -> None:
    assert stats.wilcoxon([1, 2, 3], [1, 2, 3]) == stats.Wilcoxon(statistic=0.0, p=1.0, n=3, zeros=3)


def test_pratt_is_not_wilcoxons_own_way_with_zeros() -> None:
    d = np.r_[np.zeros(10), np.linspace(-0.5, 3, 20)]
    dropped = scipy.stats.wilcoxon(d, zero_method="wilcox").pvalue
    assert abs(stats.wilcoxon(d, np.zeros(30)).p - dropped) > 1e-4


# families


@pytest.mark.parametrize("n", [1, 2, 30])
def test_corrections_are_statsmodels(n: int) -> None:
    ps = np.random.default_rng(n).random(n) ** 4
    for ours, name in ((stats.bonferroni, "bonferroni"), (stats.holm, "holm")):
        np.testing.assert_allclose(ours(ps), multipletests(ps, method=name)[1], rtol=1e-12)
        with_rest = multipletests([*ps, *np.ones(7)], method=name)[1][:n]
        np.testing.assert_allclose(ours(ps, family=n + 7), with_rest, rtol=1e-12)


def test_corrections_by_hand() -> None:
    assert stats.bonferroni([0.01, 0.02, 0.5]) == pytest.approx([0.03, 0.06, 1])
    # 3 x 0.02; then 2 x 0.021 = 0.042 may not fall below it
    assert stats.holm([0.021, 0.9, 0.02]) == pytest.approx([0.06, 0.9, 0.06])
    assert stats.holm([0.01], family=54) == pytest.approx([0.54])
    assert stats.holm([]).shape == (0,)


# effect sizes


def test_effect_sizes_by_hand() -> None:
    a, b = [2.0, 4.0, 6.0], [1.0, 1.0, 4.0]
    assert stats.cohens_d(a, b) == pytest.approx(2 / np.sqrt((4 + 3) / 2))
    assert stats.paired_d(a, b) == pytest.approx(2 / 1)  # differences 1, 3, 2
    assert stats.win_rate([1, 2, 3, 4], [1, 1, 1, 9]) == pytest.approx((0.5 + 1 + 1 + 0) / 4)
    # zeros take ranks 1 and 2 of 15, the others 3 for, 4 against, 5 for
    assert stats.rank_biserial([0, 0, 1, -2, 3], [0] * 5) == pytest.approx((3 - 4 + 5) / 15)
    assert stats.hodges_lehmann([0, 10], [0, 0]) == 5  # of 0, 5, 10
    assert stats.hodges_lehmann([1, 2, 3, 1000], NONE[:4]) == pytest.approx((2.5 + 3) / 2)  # 1 1.5 2 2 2.5 3 500.5 ...


def test_paired_d_is_the_t_statistic_without_n() -> None:
    a, b = numbers(40)
    assert stats.paired_d(a, b) == pytest.approx(scipy.stats.ttest_rel(a, b).statistic / np.sqrt(40))
    assert stats.cohens_d(a, b) == pytest.approx(scipy.stats.ttest_ind(a, b).statistic * np.sqrt(2 / 40))


def test_rank_biserial_belongs_to_the_test() -> None:
    a, b = (np.round(v, 1) for v in numbers(60))
    up, down = (stats.wilcoxon(*sides, alternative="greater").statistic for sides in ((a, b), (b, a)))
    assert stats.rank_biserial(a, b) == pytest.approx((up - down) / (60 * 61 / 2))


@pytest.mark.parametrize("n", [2, 3, 10, 101])
def test_hodges_lehmann_is_the_median_of_all_averages(n: int) -> None:
    a, b = numbers(n)
    d = a - b
    averages = ((d[:, None] + d) / 2)[np.triu_indices(n)]
    assert stats.hodges_lehmann(a, b) == pytest.approx(np.median(averages), rel=1e-14)


def test_hodges_lehmann_is_lean() -> None:
    a, b = numbers(2000)
    tracemalloc.start()
    stats.hodges_lehmann_interval(a, b)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6  # 2000 x 2001 / 2 numbers are 16 MB, a square would be 32


@pytest.mark.parametrize("shift", [0.1, -1e-7, 1e9])
def test_constant_differences(shift: float) -> None:
    b = np.random.default_rng(0).random(20)
    a = b + shift
    sign = np.sign(shift)
    assert stats.paired_d(a, b) == sign * np.inf
    assert stats.cohens_d(np.full(9, 0.1 + shift), np.full(9, 0.1)) == sign * np.inf
    assert stats.hodges_lehmann(a, b) == pytest.approx(shift, abs=1e-6 * abs(shift))


def test_no_difference_is_no_effect() -> None:
    a = np.random.default_rng(0).random(20)
    rounded = a * (1 + 2**-52)  # the same up to the last bit
    for b in (a, rounded):
        for statistic in (stats.paired_d, stats.rank_biserial, stats.hodges_lehmann):
            assert statistic(a, b) == 0
        assert stats.win_rate(a, b) == 0.5
        assert stats.wilcoxon(a, b).p == 1
    assert stats.cohens_d(np.full(9, 0.1), np.full(9, 0.3 - 0.2)) == 0


# the interval of the shift


@pytest.mark.parametrize(("n", "rank"), [(5, 0), (6, 1), (7, 3), (8, 4), (10, 9), (20, 53), (25, 90), (50, 435)])
def test_critical_values_are_the_tables(n: int, rank: int) -> None:
    # printed tables of the signed-rank test give the largest rejected sum, one less: 0, 2, 3, 8, 52, 89, 434
    assert _critical(n, 0.95) == rank


def test_the_normal_distribution_takes_over_without_a_step() -> None:
    n = 60
    chance = np.array([1.0])
    for rank in range(1, n + 1):
        longer = np.zeros(len(chance) + rank)
        longer[: len(chance)] += chance / 2
        longer[rank:] += chance / 2
        chance = longer
    exact = int((np.cumsum(chance) <= 0.025).sum())
    assert abs(_critical(n, 0.95) - exact) <= 1


@pytest.mark.parametrize("n", [6, 11, 30, 50])
def test_the_interval_holds_the_shifts_the_test_does_not_reject(n: int) -> None:
    a, b = numbers(n, seed=n)
    found = stats.hodges_lehmann_interval(a, b)
    assert found.low < found.estimate == stats.hodges_lehmann(a, b) < found.high
    for end, inside in ((found.low, 1), (found.high, -1)):
        assert stats.wilcoxon(a - end - inside * 1e-9, b).p > 0.05
        assert stats.wilcoxon(a - end + inside * 1e-9, b).p <= 0.05


def test_too_few_pictures_for_an_interval() -> None:
    found = stats.hodges_lehmann_interval([1, 2, 3, 4, 5], NONE[:5])
    assert (found.low, found.estimate, found.high) == (-np.inf, 3, np.inf)
    assert stats.hodges_lehmann_interval([1, 2, 3, 4, 5], NONE[:5], confidence=0.9).low == 1
    assert stats.hodges_lehmann_interval([1, 2, 3, 4, 5, 6], NONE, confidence=1 - 2 / 64).low == 1  # exactly enough


# the bootstrap


def d_z(a: np.ndarray, axis: int) -> np.ndarray:
    return np.asarray(a.mean(axis) / a.std(axis, ddof=1))


@pytest.mark.parametrize(("n", "confidence", "scale"), [(12, 0.95, 1.0), (60, 0.8, 1e-180), (60, 0.8, 1e180)])
def test_intervals_are_scipys(n: int, confidence: float, scale: float) -> None:
    generator = np.random.default_rng(n)
    skewed, far = np.exp(generator.normal(size=n)), 1e3 + generator.normal(size=n)
    columns = np.stack([skewed, far, wins(generator.normal(0.4, 1, n).round())], axis=1)
    means, ratios = moments(scale * columns, resamples=400, confidence=confidence, seed=3)
    for i, column in enumerate(columns.T):
        for found, unit, statistic in ((means[i], scale, np.mean), (ratios[i], 1, d_z)):
            if statistic is d_z and i == 2:
                continue  # scipy takes equal ratios for different ones where rounding makes them so
            oracle = scipy.stats.bootstrap(
                (column,),
                statistic,
                n_resamples=400,
                confidence_level=confidence,
                method="BCa",
                rng=np.random.default_rng(3),
            ).confidence_interval
            wanted = (oracle.low, oracle.high, float(statistic(column, axis=-1)))
            assert (found.low / unit, found.high / unit, found.estimate / unit) == pytest.approx(wanted, rel=1e-9)


def test_chunks_are_one_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    column = numbers(25)[0][:, None]
    whole = moments(column, resamples=101, confidence=0.9, seed=1)
    monkeypatch.setattr("usu.stats.resampling._CHUNK", 60)
    for one, other in zip(whole, moments(column, resamples=101, confidence=0.9, seed=1), strict=True):
        assert (one[0].low, one[0].high) == pytest.approx((other[0].low, other[0].high), rel=1e-12)


@pytest.mark.parametrize("n", [10, 18, 20])
def test_resamples_without_the_one_picture_that_differs_have_no_effect(n: int) -> None:
    """A third of them: what rounding leaves of their mean, over no deviation, must not become infinite."""
    column = np.r_[np.zeros(n - 1), 0.3]
    found = moments(column[:, None], resamples=300, confidence=0.9, seed=0)[1][0]
    # k times of n: mean 0.3 k/n, variance 0.09 (k/n) (1 - k/n) n / (n - 1)
    share = (np.random.default_rng(0).integers(0, n, (300, n)) == n - 1).mean(1)
    drawn = np.sqrt(share / (1 - share) * (n - 1) / n)
    assert found.low == drawn.min() == 0
    assert np.abs(drawn - found.high).min() < 0.2
    assert found.high <= drawn.max() + 1e-12


@pytest.mark.parametrize(("value", "d"), [(0.1, np.inf), (0.0, 0.0), (-0.1, -np.inf)])
def test_the_interval_of_what_never_changes(value: float, d: float) -> None:
    (mean,), (ratio,) = moments(np.full((10, 1), value), resamples=50, confidence=0.9, seed=0)
    assert (mean.low, mean.high, mean.estimate) == (pytest.approx(value),) * 3
    assert (ratio.low, ratio.high, ratio.estimate) == (d, d, d)


def test_a_skewed_statistic_at_an_extreme_level_ends_at_the_largest_resample() -> None:
    a = np.r_[np.zeros(999), 1.0]  # the acceleration is nearly 1/6, its largest
    found = moments(a[:, None], resamples=300, confidence=1 - 1e-9, seed=0)[0][0]
    drawn = a[np.random.default_rng(0).integers(0, 1000, (300, 1000))].mean(1)
    assert found.high == pytest.approx(drawn.max())


def test_infinite_values_among_the_resamples() -> None:
    d = np.array([1.0, 1.0, 1.0, 1.001])  # most resamples hold one value only
    found = moments(d[:, None], resamples=500, confidence=0.95, seed=0)[1][0]
    assert found.high == np.inf
    assert not np.isnan(found.low)


def test_about_the_textbook_interval() -> None:
    a = np.random.default_rng(5).normal(size=400)
    found = moments(a[:, None], resamples=10_000, confidence=0.95, seed=0)[0][0]
    half = 1.96 * a.std(ddof=1) / 20
    assert (found.low, found.high) == pytest.approx((a.mean() - half, a.mean() + half), abs=0.06 * half)


# bad input


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (lambda: stats.wilcoxon([1, 2, 3], [1, 2]), "`a` and `b` .* got 3 and 2"),
        (lambda: stats.wilcoxon([1, np.nan], [1, 2]), r"`a` .* got NaN \(1 of 2"),
        (lambda: stats.paired_d([1, 2], [1, np.inf]), r"`b` .* got infinity \(1 of 2"),
        (lambda: stats.cohens_d([1], [2]), "`a` .* 2 pictures; got 1"),
        (lambda: stats.win_rate([[1, 2]], [[1, 2]]), "`a` .* got 1 x 2"),
        (lambda: stats.win_rate(["x", "y"], [1, 2]), "`a` .* got <U1"),
        (lambda: stats.hodges_lehmann([1e308, 0], [-1e308, 0]), r"`a` and `b` .* got .*1e\+308"),
        (lambda: stats.hodges_lehmann_interval([1, 2], [0, 0], confidence=95), "`confidence` .* got 95"),
        (lambda: stats.wilcoxon([1, 2], [3, 4], alternative="up"), "`alternative` .* got 'up'"),  # type: ignore[arg-type]
        (lambda: stats.bonferroni([0.1, np.nan]), "`ps` .* got nan"),
        (lambda: stats.holm([0.1, 1.5]), "`ps` .* got 1.5"),
        (lambda: stats.holm([[0.1]]), "`ps` .* got 2 dimensions"),
        (lambda: stats.holm([0.1, 0.2], family=1), "`family` .* 2; got 1"),
    ],
)
def test_bad_input_is_answered_in_one_sentence(call: Any, names: str) -> None:
    with pytest.raises((ValueError, TypeError), match=names):
        call()
