"""The report: right numbers in the right rows, one family, and pages that can be read."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from usu import stats
from usu.plot import VERDICTS
from usu.stats import Comparison, Difference, Report, compare, report
from usu.stats.resampling import moments

NASTY = "50 % of_a {b} & c\\d ~x^2 #1 $y$ <z> | `w` *v*"


def table(metrics: int = 3, upsamplers: int = 5, n: int = 40, seed: int = 0) -> dict[str, Any]:
    """Made-up measurements: some upsamplers better, some worse; the metrics differ in scale and direction."""
    generator = np.random.default_rng(seed)
    found: dict[str, Any] = {}
    for m in range(metrics):
        scale = (1.0, 1e-6, 1e5)[m % 3]
        pictures = generator.normal(1, 1, n)
        values = {"bilinear": scale * pictures}
        for u in range(upsamplers):
            values[f"upsampler {u}"] = scale * (pictures + generator.normal(generator.normal(0, 0.8), 0.7, n))
        found[f"metric {m}"] = ("higher" if m % 2 else "lower", values)
    return found


def test_a_row_by_hand() -> None:
    bilinear = np.array([10.0, 20, 30, 40, 50, 60])
    usu = bilinear - [1, 2, 3, 4, 5, -6]  # lower is better: five wins
    found = compare({"bilinear": bilinear, "usu": usu}, better="lower", metric="infidelity")
    assert (found.metric, found.better, found.against, found.family) == ("infidelity", "lower", "bilinear", 1)
    assert (found.pictures, found.reference_n, found.reference_mean, found.reference_median) == (6, 6, 35, 35)
    row = found["usu"]
    assert (row.n, row.dropped, row.mean, row.median) == (6, 0, usu.mean(), np.median(usu))
    assert row.gain.estimate == pytest.approx(9 / 6)
    assert row.win_rate.estimate == pytest.approx(5 / 6)
    assert row.rank_biserial == pytest.approx((15 - 6) / 21)
    assert (row.shift.low, row.shift.estimate, row.shift.high) == (-6, 2.5, 5)  # the 1st, 11th and 21st of 21 averages
    # sums up to 6 of the ranks 1..6: 1+1+1+2+2+3+4 = 14 of 64 ways
    assert row.p == row.bonferroni == row.holm == pytest.approx(2 * 14 / 64)
    assert row.verdict == "undecided"


def test_every_number_is_the_one_of_stats() -> None:
    (_, values) = table(metrics=1)["metric 0"]
    found = compare(values, better="lower", resamples=300, seed=4)
    for row in found.rows:
        better, worse = values["bilinear"], values[row.upsampler]  # lower is better
        assert row.paired_d.estimate == pytest.approx(stats.paired_d(better, worse))
        assert row.cohens_d == pytest.approx(stats.cohens_d(better, worse))
        assert row.rank_biserial == pytest.approx(stats.rank_biserial(better, worse))
        assert row.p == pytest.approx(stats.wilcoxon(better, worse).p)
        assert row.shift == stats.hodges_lehmann_interval(better, worse)
        d = better - worse
        for found_interval, column, i in ((row.gain, d, 0), (row.paired_d, d, 1), (row.win_rate, (d > 0) + 0.0, 0)):
            alone = moments(column[:, None], resamples=300, confidence=0.95, seed=4)[i][0]
            assert (found_interval.low, found_interval.high) == pytest.approx((alone.low, alone.high), rel=1e-9)


def test_one_family_over_all_metrics() -> None:
    whole = report(table(), resamples=20)
    assert whole.family == 15
    ps = [row.p for c in whole.comparisons for row in c.rows]
    rows = [row for c in whole.comparisons for row in c.rows]
    np.testing.assert_allclose([row.bonferroni for row in rows], stats.bonferroni(ps))
    np.testing.assert_allclose([row.holm for row in rows], stats.holm(ps))
    alone = compare(table()["metric 1"][1], better="higher", metric="metric 1", resamples=20)
    assert alone.family == 5
    declared = compare(table()["metric 1"][1], better="higher", metric="metric 1", resamples=20, family=15)
    assert [row.bonferroni for row in declared.rows] == [row.bonferroni for row in whole["metric 1"].rows]
    np.testing.assert_allclose(
        [row.holm for row in declared.rows], stats.holm([row.p for row in declared.rows], family=15)
    )
    assert {row.verdict for row in rows} == {"better", "worse", "undecided"}


def test_the_family_is_not_smaller_than_the_tests() -> None:
    with pytest.raises(ValueError, match=r"`family` .* 15; got 14"):
        report(table(), family=14, resamples=20)


def test_verdicts_follow_the_declared_family() -> None:
    d = np.linspace(-0.4, 2, 25)
    values = {"bilinear": np.zeros(25), "usu": d, "worse": -d}
    few, many = (compare(values, better="higher", family=m, resamples=20) for m in (2, 10**9))
    assert [row.verdict for row in few.rows] == ["better", "worse"]
    assert [row.verdict for row in many.rows] == ["undecided", "undecided"]
    strict = compare(values, better="higher", confidence=1 - 1e-9, resamples=20)
    assert strict["usu"].verdict == "undecided"


def test_the_same_numbers_every_time_and_whoever_else_is_there() -> None:
    entries = table()
    assert report(entries, resamples=100) == report(entries, resamples=100)
    assert report(entries, resamples=100) != report(entries, resamples=100, seed=1)
    better, values = entries["metric 0"]
    alone = compare({name: values[name] for name in ("bilinear", "upsampler 3")}, better=better, resamples=100)
    among, row = compare(values, better=better, resamples=100)["upsampler 3"], alone["upsampler 3"]
    for name in ("gain", "shift", "win_rate", "paired_d"):
        one, other = getattr(among, name), getattr(row, name)
        assert (one.low, one.high) == pytest.approx((other.low, other.high), rel=1e-12)


def test_pictures_missing_on_one_side_are_dropped_and_counted() -> None:
    entries = table(metrics=1)
    _, values = entries["metric 0"]
    values["upsampler 0"][:7] = np.nan
    values["bilinear"][5:10] = np.nan
    values["upsampler 1"][:] = np.nan
    found = compare(values, better="lower", resamples=50)
    assert (found.pictures, found.reference_n, found.family) == (40, 35, 4)
    assert [(row.n, row.dropped) for row in found.rows] == [(30, 10), (0, 40), (35, 5), (35, 5), (35, 5)]
    assert found["upsampler 0"].mean == pytest.approx(values["upsampler 0"][10:].mean())
    gone = found["upsampler 1"]
    assert not gone.measured
    assert gone.verdict == "undecided"
    assert np.isnan([gone.p, gone.holm, gone.shift.low, gone.paired_d.high]).all()
    assert found.ranked()[-1] is gone
    assert re.search(r"\n  upsampler 1 +0( +-)+\n", str(found))


@pytest.mark.parametrize("n", [1, 2, 3])
def test_fewer_than_three_pictures_are_no_test(n: int) -> None:
    found = compare({"bilinear": np.arange(n), "usu": 2.0 * np.arange(n) + 1}, better="higher", resamples=20)
    assert (found["usu"].n, found["usu"].measured, found.family) == (n, n == 3, int(n == 3))
    assert "usu" in str(found)


def test_a_metric_nobody_was_measured_on() -> None:
    empty = {"bilinear": np.full(4, np.nan), "usu": np.full(4, np.nan)}
    found = report({"IoU": ("higher", empty), **table(metrics=1)}, resamples=20)
    assert found.family == 5
    assert np.isnan(found["IoU"].reference_mean)
    for page in (found.text(), found.markdown()):
        assert "IoU" in page
    found.figure().canvas.draw()


def test_differences_within_the_tolerance_are_ties() -> None:
    generator = np.random.default_rng(0)
    values = {"bilinear": generator.random(30)}
    values["the same in float32"] = values["bilinear"].astype(np.float32)
    values["better"] = values["bilinear"] + 0.1 + 0.1 * generator.random(30)
    exact, rough = (compare(values, better="higher", tolerance=t, resamples=50) for t in (0.0, 1e-6))
    assert exact["the same in float32"].win_rate.estimate != 0.5
    same = rough["the same in float32"]
    assert (same.win_rate.estimate, same.p, same.gain.high, same.paired_d.estimate, same.shift.high) == (
        0.5,
        1,
        0,
        0,
        0,
    )
    assert exact["better"] == Difference(**{**vars(rough["better"]), "gain": exact["better"].gain})


def test_infinity_is_a_number_beyond_all_others() -> None:
    """Relative errors of a map of zeros are infinite: neither may they cost the report, nor be forgotten."""
    generator = np.random.default_rng(3)
    bilinear = 1 + generator.integers(1024, size=12) / 1024
    usu = bilinear - 0.1 - 0.1 * generator.random(12)
    lost = np.where(np.arange(12) < 5, np.inf, usu)
    row = compare({"bilinear": bilinear, "usu": lost}, better="lower", resamples=200)["usu"]
    assert (row.n, row.dropped, row.win_rate.estimate) == (12, 0, 7 / 12)
    assert (row.verdict, row.mean, row.gain.estimate) == ("undecided", np.inf, -np.inf)
    # ranks are those of any error larger than all others
    large = np.where(np.isinf(lost), bilinear + 2**20, lost)  # ties again, without rounding
    huge = compare({"bilinear": bilinear, "usu": large}, better="lower", resamples=200)
    assert (row.p, row.rank_biserial) == (huge["usu"].p, huge["usu"].rank_biserial)
    for end in ("low", "high", "estimate"):
        assert getattr(row.paired_d, end) == pytest.approx(getattr(huge["usu"].paired_d, end), rel=1e-3)
    few = np.where(np.arange(12) < 1, np.inf, usu)
    last = np.where(np.arange(12) > 10, np.inf, bilinear)
    mixed = compare({"bilinear": last, "usu": few}, better="lower", resamples=200)["usu"]
    assert np.isnan(mixed.gain.estimate)
    assert mixed.win_rate.estimate == 11 / 12
    one = compare({"bilinear": bilinear, "usu": few}, better="lower", resamples=200)["usu"]
    assert 0.1 < one.shift.estimate < 0.2
    assert np.isfinite([one.paired_d.low, one.paired_d.high]).all()
    both = compare({"bilinear": few, "usu": few}, better="lower", resamples=200)["usu"]
    assert (both.win_rate.estimate, both.p) == (0.5, 1.0)
    found = report({"m": ("lower", {"bilinear": bilinear, "usu": lost})}, resamples=50)
    assert "inf" in found.text()
    assert "inf" in found.markdown()
    found.figure().canvas.draw()


def test_missing_numbers_are_left_out_and_counted() -> None:
    clean = {"bilinear": [1.0, 2.0, 3.0, 4.0], "usu": [0.5, 1.0, 2.5, 3.0]}
    with_one = {"bilinear": [1.0, 2.0, 3.0, 4.0, 5.0], "usu": [0.5, 1.0, 2.5, 3.0, np.nan]}
    row, wanted = (compare(values, better="lower", resamples=50)["usu"] for values in (with_one, clean))
    assert (row.n, row.dropped, wanted.dropped) == (4, 1, 0)
    assert (row.p, row.gain, row.mean) == (wanted.p, wanted.gain, wanted.mean)


def test_always_the_same_gain_is_an_infinite_effect() -> None:
    values = {"bilinear": np.arange(10) / 7, "usu": np.arange(10) / 7 + 0.1}
    found = report({"m": ("higher", values)}, resamples=50)
    row = found["m"]["usu"]
    assert (row.paired_d.low, row.paired_d.high, row.win_rate.low, row.verdict) == (np.inf, np.inf, 1, "better")
    assert (row.gain.low, row.gain.high) == pytest.approx((0.1, 0.1))
    assert "+inf" in found.text()
    (axes,) = found.figure().axes
    assert [line.get_marker() for line in axes.lines if line.get_marker() != "None"] == [">"]


# pages


def nasty(metrics: int, upsamplers: int) -> Report:
    entries = table(metrics, upsamplers)
    for _, values in entries.values():
        for u in range(0, upsamplers, 3):
            values[f"guided filter, mass-corrected, radius number {u}"] = values.pop(f"upsampler {u}")
        values[NASTY] = values.pop("upsampler 1")
        values["two\nlines"] = values.pop("upsampler 2")
        values["broken $_$ formula"] = values.pop("upsampler 4")
    return report(entries, resamples=30)


@pytest.fixture(scope="module")
def large() -> Report:
    return nasty(6, 30)


def test_text_fits_a_terminal(large: Report) -> None:
    lines = large.text().splitlines()
    assert max(map(len, lines)) <= 120
    assert "over a family of 180 tests" in " ".join(lines)
    assert "(30 resamples, seed 0)" in " ".join(lines)
    assert len(lines) == 4 + 6 * (1 + 1 + 1 + 1 + 30)  # legend; then a space, title, headings, reference, rows
    # columns stand under each other, and names that are cut can still be told apart
    for start in range(6):
        block = lines[4 + 34 * start + 1 : 4 + 34 * (start + 1)]
        assert len({line.index(" ", 2 + line[2:].rindex("]")) for line in block[3:]}) == 1
        assert len({line.split("  40  ")[0] for line in block[3:]}) == 30
    assert (
        "metric 1 (higher is better), 40 pictures; mean and median in units of 1e-06; shift in units of 1e-"
        in "\n".join(lines)
    )


def test_text_lists_the_best_first_with_its_mark() -> None:
    d = np.arange(-4, 21) / 10
    values = {"usu": d, "bilinear": np.zeros(25), "worse": -d, "best": d + 1}
    text = str(compare(values, better="higher", resamples=20))
    assert re.findall(r"^([+ -]) (\w+) ", text, re.MULTILINE)[1:] == [
        (" ", "bilinear"),
        ("+", "best"),
        ("+", "usu"),
        ("-", "worse"),
    ]
    # 17 is the sum of places of the 90th smallest average: (17 / 2 - 4) / 10; four pictures won and one tie
    assert text.splitlines()[-1].startswith("- worse      25  -0.800  -0.800  -0.80 [-1.15, -0.45]  0.18  -1.09 [")


def test_the_median_gives_way_to_long_names() -> None:
    d = np.arange(-4, 21) / 10
    for name, shown in (("short", True), ("mass-corrected guided filter, radius 8", False)):
        text = str(compare({"bilinear": 0 * d, name: 1000 * d}, better="higher", resamples=20))
        assert name in text
        assert (" median " in text) is shown


def test_units_of_ten_are_those_of_the_numbers() -> None:
    values = {"bilinear": np.full(8, 5e-9), "usu": 5e-9 + 1e-11 * np.arange(1, 9)}
    text = str(compare(values, better="higher", resamples=20))
    assert "mean and median in units of 1e-09; shift in units of 1e-11" in text
    assert re.search(r"\n  bilinear +8 +5.000 +5.000\n", text)
    assert re.search(r"\n\+ usu +8 +5.045 +5.045 +\+4.50 \[\+2.00, \+7.00\]", text)


def test_markdown_is_a_table(large: Report) -> None:
    lines = [line for line in large.markdown().splitlines() if line.startswith("|")]
    assert len(lines) == 6 * (1 + 1 + 1 + 30)
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {15}
    assert "family of 180 tests" in large.markdown()
    assert r"c\\d \~x^2 \#1 \$y\$ \<z\> \| \`w\` \*v\*" in large.markdown()


def test_the_figure_has_a_panel_per_metric() -> None:
    from matplotlib.colors import to_hex

    found = nasty(2, 6)
    drawn = found.figure()
    assert len(drawn.axes) == 2
    for axes, comparison in zip(drawn.axes, found.comparisons, strict=True):
        ranked = comparison.ranked()
        estimates = [row.paired_d.estimate for row in ranked]
        assert estimates == sorted(estimates, reverse=True)
        assert len(axes.get_yticklabels()) == 6
        assert axes.get_yticklabels()[0].get_position()[1] == 0
        assert axes.yaxis_inverted()
        bars = [line for line in axes.lines if len(line.get_xdata()) == 2 and line.get_marker() == "None"][:-1]
        for y, (bar, row) in enumerate(zip(bars, ranked, strict=True)):
            assert list(bar.get_ydata()) == [y, y]
            assert list(bar.get_xdata()) == [row.paired_d.low, row.paired_d.high]
            assert to_hex(bar.get_color()) == VERDICTS[row.verdict][0].lower()
        zero = axes.lines[-1]
        assert list(zero.get_xdata()) == [0, 0]
    assert "12 tests" in drawn.get_suptitle()
    drawn.canvas.draw()  # names with $ and \ are words, not formulas


def test_records_hold_everything() -> None:
    found = report(table(metrics=2, upsamplers=2), resamples=20)
    records = found.records()
    assert len(records) == 4
    first, row = records[0], found["metric 0"]["upsampler 0"]
    assert (first["metric"], first["better"], first["against"], first["family"]) == ("metric 0", "lower", "bilinear", 4)
    assert (first["shift"], first["shift_low"], first["shift_high"]) == (
        row.shift.estimate,
        row.shift.low,
        row.shift.high,
    )
    assert first["verdict"] == row.verdict
    assert all(isinstance(value, (str, int, float)) for record in records for value in record.values())
    assert {name.removesuffix("_low") for name in first if name.endswith("_low")} == {
        "gain",
        "shift",
        "win_rate",
        "paired_d",
    }


def test_rows_and_metrics_are_found_by_name() -> None:
    found = report(table(metrics=2, upsamplers=2), resamples=20)
    assert isinstance(found["metric 1"], Comparison)
    with pytest.raises(KeyError, match="`metric` must be one of metric 0, metric 1; got 'x'"):
        found["x"]
    with pytest.raises(KeyError, match="`upsampler` must be one of upsampler 0, upsampler 1; got 'x'"):
        found["metric 0"]["x"]


ONE = table(1)
PAIR = {"bilinear": [1], "usu": [2]}


@pytest.mark.parametrize(
    ("entries", "settings", "names"),
    [
        ({}, {}, "`table` .* got none"),
        ({"m": PAIR}, {}, r"`table\['m'\]` .* got dict"),
        ({"m": ("up", PAIR)}, {}, "`better` .* got 'up'"),
        ({"m": ("lower", {"usu": [1], "x": [2]})}, {}, "`values` .*'bilinear'.* got 'usu', 'x'"),
        ({"m": ("lower", {"bilinear": [1]})}, {}, "`values` .* got 'bilinear'"),
        ({"m": ("lower", {"bilinear": [1, 2], "usu": [1]})}, {}, r"`values\['usu'\]` .*\(2\); got 1"),
        (ONE, {"tolerance": -1}, "`tolerance` .* got -1"),
        (ONE, {"resamples": 2.5}, "`resamples` .* got 2.5"),
        (ONE, {"resamples": 0}, "`resamples` .* got 0"),
        (ONE, {"seed": -1}, "`seed` .* got -1"),
        (ONE, {"confidence": 1.0}, "`confidence` .* got 1.0"),
        (ONE, {"against": "nobody"}, "`values` .* 'nobody'"),
    ],
)
def test_bad_input_is_answered_in_one_sentence(entries: Any, settings: dict[str, Any], names: str) -> None:
    with pytest.raises((ValueError, TypeError), match=names):
        report(entries, **settings)
