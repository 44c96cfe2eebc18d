from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from usu import stats
from usu.stats import compare, report
from usu.stats.resampling import moments

#: Eighths: sums and differences are exact, ties and zeros are common.
eighths = st.integers(-80, 80).map(lambda i: i / 8)
samples = st.integers(3, 16).flatmap(lambda n: hnp.arrays(np.float64, (2, n), elements=eighths))
shares = st.lists(st.floats(0, 1), min_size=1, max_size=12)
powers = st.sampled_from([2.0**-60, 0.5, 2.0**60])
ODD = (stats.cohens_d, stats.paired_d, stats.rank_biserial, stats.hodges_lehmann)


@given(samples)
def test_swapping_the_sides_changes_the_sign(pair: np.ndarray) -> None:
    a, b = pair
    for statistic in ODD:
        assert statistic(a, b) == pytest.approx(-statistic(b, a))
    assert stats.win_rate(a, b) + stats.win_rate(b, a) == pytest.approx(1)
    assert stats.wilcoxon(a, b).p == pytest.approx(stats.wilcoxon(b, a).p)
    one, other = stats.hodges_lehmann_interval(a, b), stats.hodges_lehmann_interval(b, a)
    assert (one.low, one.high) == (-other.high, -other.low)


@given(samples, powers)
def test_the_scale_is_free(pair: np.ndarray, scale: float) -> None:
    a, b = pair
    for statistic in (stats.cohens_d, stats.paired_d, stats.rank_biserial, stats.win_rate):
        assert statistic(scale * a, scale * b) == pytest.approx(statistic(a, b))
    assert stats.hodges_lehmann(scale * a, scale * b) == scale * stats.hodges_lehmann(a, b)
    assert stats.wilcoxon(scale * a, scale * b) == stats.wilcoxon(a, b)


@given(samples, st.data())
def test_what_both_sides_share_does_not_count(pair: np.ndarray, data: st.DataObject) -> None:
    a, b = pair
    own = data.draw(hnp.arrays(np.float64, a.shape, elements=eighths))
    for statistic in (stats.paired_d, stats.rank_biserial, stats.win_rate, stats.hodges_lehmann):
        assert statistic(a + own, b + own) == pytest.approx(statistic(a, b))
    assert stats.wilcoxon(a + own, b + own) == stats.wilcoxon(a, b)


@given(samples, st.randoms(use_true_random=False))
def test_the_order_of_pictures_does_not_count(pair: np.ndarray, random: object) -> None:
    order = np.arange(pair.shape[1])
    random.shuffle(order)  # type: ignore[attr-defined]
    for statistic in (*ODD, stats.win_rate):
        assert statistic(*pair[:, order]) == pytest.approx(statistic(*pair))
    assert stats.wilcoxon(*pair[:, order]) == stats.wilcoxon(*pair)


@given(samples)
def test_ranges(pair: np.ndarray) -> None:
    a, b = pair
    d = a - b
    assert -1 <= stats.rank_biserial(a, b) <= 1
    assert (stats.rank_biserial(a, b) == 1) == bool((d > 0).all())
    assert d.min() <= stats.hodges_lehmann(a, b) <= d.max()
    found = stats.hodges_lehmann_interval(a, b, confidence=0.8)
    assert found.low <= found.estimate <= found.high
    assert 0 < stats.wilcoxon(a, b).p <= 1
    assert np.isfinite(stats.paired_d(a, b)) == (np.ptp(d) > 0 or d[0] == 0)


@given(shares, st.integers(0, 5))
def test_holm_stands_between_p_and_bonferroni(ps: list[float], more: int) -> None:
    family = len(ps) + more
    holm, bonferroni = stats.holm(ps, family=family), stats.bonferroni(ps, family=family)
    assert (np.array(ps) <= holm).all()
    assert (holm <= bonferroni).all()
    assert (np.diff(holm[np.argsort(ps)]) >= 0).all()
    assert holm[np.argmin(ps)] == bonferroni[np.argmin(ps)]


@given(shares, shares)
def test_a_family_not_shown_is_never_smaller(ps: list[float], hidden: list[float]) -> None:
    """The bound for the shown tests holds whatever the others were."""
    alone = stats.holm(ps, family=len(ps) + len(hidden))
    assert (alone >= stats.holm([*ps, *hidden])[: len(ps)] - 1e-12).all()


@settings(max_examples=30)
@given(samples, powers)
def test_intervals_turn_and_scale_with_the_numbers(pair: np.ndarray, scale: float) -> None:
    d = (pair[0] - pair[1])[:, None]
    for found, turned, unit in zip(
        moments(d, resamples=60, confidence=0.9, seed=0),
        moments(-scale * d, resamples=60, confidence=0.9, seed=0),
        (scale, 1.0),
        strict=True,
    ):
        assert not np.isnan([found[0].low, found[0].high]).any()
        assert found[0].low <= found[0].high
        ends = (-turned[0].high / unit, -turned[0].low / unit)
        assert (found[0].low, found[0].high) == pytest.approx(ends, rel=1e-9, abs=1e-12)


@settings(max_examples=30)
@given(samples)
def test_lower_is_better_is_higher_is_better_of_the_negative(pair: np.ndarray) -> None:
    a, b = pair
    up = compare({"bilinear": b, "usu": a}, better="higher", resamples=40)["usu"]
    down = compare({"bilinear": -b, "usu": -a}, better="lower", resamples=40)["usu"]
    assert (up.shift, up.gain, up.win_rate, up.paired_d) == (down.shift, down.gain, down.win_rate, down.paired_d)
    assert (up.p, up.rank_biserial, up.cohens_d) == (down.p, down.rank_biserial, pytest.approx(down.cohens_d))


@settings(max_examples=30)
@given(samples, st.integers(1, 5), st.integers(0, 2**16))
def test_pictures_not_measured_are_as_if_they_were_not_there(pair: np.ndarray, gaps: int, seed: int) -> None:
    b, a = pair
    generator = np.random.default_rng(seed)
    places = generator.integers(0, len(a) + 1, gaps)
    wide_a, wide_b = np.insert(a, places, 1.0), np.insert(b, places, 2.0)
    added = np.ones(len(wide_a), dtype=bool)
    added[np.searchsorted(np.cumsum(np.insert(np.ones(len(a)), places, 0)), np.arange(1, len(a) + 1))] = False
    side = generator.random(len(wide_a)) < 0.5
    wide_a[added & side], wide_b[added & ~side] = np.nan, np.nan
    table = {"m": ("lower", {"bilinear": wide_b, "usu": wide_a})}
    found = report(table, resamples=40)["m"]["usu"]  # type: ignore[arg-type]
    plain = compare({"bilinear": b, "usu": a}, better="lower", resamples=40)["usu"]
    assert (found.n, found.dropped) == (len(a), gaps)
    assert found == type(plain)(**{**vars(plain), "dropped": gaps})
