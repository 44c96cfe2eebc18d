"""The paper's numbers stand beside ours, never among them; statistics are those of usu.comparison; pages are filled."""

from __future__ import annotations

import numpy as np
import pytest
from experiments.synthetic import tables
from experiments.synthetic.figures import Shown
from experiments.synthetic.page import (
    claims_markdown,
    filled,
    losses_markdown,
    plain_markdown,
    rivals_markdown,
    shape_markdown,
)
from experiments.synthetic.tables import (
    claim_records,
    desiderata_records,
    paper_value,
    pattern_records,
    read_csv,
    shape_records,
    write_csv,
)

from usu import stats
from usu.bench import Row, Table

METHODS = ("bilinear", "usu", "oracle-scores-usu", "guided")


@pytest.fixture(scope="module")
def table() -> Table:
    dice = np.random.default_rng(0)
    rows = []
    for number in range(8):
        for grid in (4, 7):
            for rank, method in enumerate(METHODS):
                for metric in ("iou", "mass-error"):
                    value = 0.5 + 0.1 * rank + 0.02 * dice.normal() + (0.2 if grid == 7 else 0)
                    rows.append(Row(f"circle-{number}@{grid}", 0, method, metric, value, (number + 3) * rank, 0))
    return Table(tuple(rows), {})


@pytest.fixture(scope="module")
def records(table) -> list[dict[str, object]]:
    return shape_records("rrl-cnn", "gradient", table, (4, 7), resamples=200)


def chosen(records, **wanted) -> dict[str, object]:
    (found,) = [one for one in records if all(one[name] == value for name, value in wanted.items())]
    return found


def test_one_record_per_grid_method_and_metric(records) -> None:
    assert len(records) == 2 * len(METHODS) * 2
    assert len({(one["grid"], one["method"], one["metric"]) for one in records}) == len(records)


def test_means_and_statistics_are_those_of_the_rows_of_one_grid(records, table) -> None:
    found = chosen(records, grid=7, method="usu", metric="iou")
    own, other = (
        np.array(
            [r.value for r in table.rows if r.picture.endswith("@7") and (r.upsampler, r.metric) == (method, "iou")]
        )
        for method in ("usu", "bilinear")
    )
    assert found["mean"] == pytest.approx(own.mean())
    assert found["worst"] == own.min()
    assert found["gain"] == pytest.approx((own - other).mean())
    assert found["cohens_d"] == pytest.approx(stats.cohens_d(own, other))
    assert found["p"] == pytest.approx(stats.wilcoxon(own, other).p)
    assert found["gain_low"] < found["gain"] < found["gain_high"]
    assert found["family"] == 6  # three methods, two metrics
    assert found["bonferroni"] == pytest.approx(min(1, 6 * found["p"]))
    assert found["evaluations"] == np.mean(np.arange(8) + 3)
    assert "verdict" not in chosen(records, grid=7, method="bilinear", metric="iou")


def test_a_lower_error_is_better(records) -> None:
    found = chosen(records, grid=4, method="guided", metric="mass-error")
    assert found["gain"] < 0
    assert found["worst"] > found["mean"]


def test_the_paper_is_quoted_where_it_speaks() -> None:
    assert paper_value(tables.PAPER_FULL, "rrl-cnn", "usu", "concentration") == 0.76
    assert paper_value(tables.PAPER_FULL, "rrl-mlp", "iwmr", "iou") == 0.91
    # both readings of the oracle stand beside the paper's one
    for kind in ("segments", "scores"):
        assert paper_value(tables.PAPER_FULL, "rrl-cnn", f"oracle-{kind}-iwmr", "concentration") == 0.93
        assert paper_value(tables.PAPER_MAIN, "rrl-cnn", f"oracle-{kind}-iwmr", "concentration") == 0.85
    # and so do the study's pipeline and the preset
    assert paper_value(tables.PAPER_FULL, "rrl-cnn", "printed-iwmr", "iou") == 0.89
    for silent in (
        ("rrl-cnn", "oracle-shares-usu", "iou"),
        ("vanilla-cnn", "usu", "iou"),
        ("rrl-cnn", "hybrid", "iou"),
        ("rrl-cnn", "usu", "mass-error"),
    ):
        assert paper_value(tables.PAPER_FULL, *silent) is None


def test_csv_and_back(records, tmp_path) -> None:
    path = write_csv([{"a": 1, "b": 0.123456789}, {"a": None, "c": float("nan")}], tmp_path / "x" / "t.csv")
    assert path.read_text() == "a,b,c\n1,0.123457,\n,,\n"
    assert read_csv(path)[0] == {"a": "1", "b": "0.123457", "c": ""}


def test_markdown_is_the_same_from_records_and_from_csv(records, tmp_path) -> None:
    shown = shape_markdown(records)
    assert shown == shape_markdown(read_csv(write_csv(records, tmp_path / "shapes.csv")))
    lines = shown.splitlines()
    assert len(lines) == 2 + len(METHODS)
    assert "iou, paper | iou at 4 / 7 | concentration, paper" in lines[0]
    (line,) = [line for line in lines if "| usu |" in line]
    mean = chosen(records, grid=4, method="usu", metric="iou")["mean"]
    assert f"| 0.860 | {mean:.3f}" in line
    assert {line.count("|") for line in lines} == {lines[0].count("|")}
    main = shape_markdown(records, paper="paper_main", only=True)
    assert "guided" not in main
    assert "oracle-scores-usu" in main


def test_claims_are_tested_against_every_interpolation_in_one_family() -> None:
    base = {"nearest": 0.5, "bilinear": 0.6, "bicubic": 0.4, "lanczos3": 0.3, "usu": 0.8, "iwmr": 0.55}
    base |= {"printed-usu": 0.2, "printed-iwmr": 0.1}
    rows = [
        Row(f"p{number}@4", 0, method, metric, value + number * 0.01 * (0.5 + value), 10, 0)
        for number in range(12)
        for method, value in base.items()
        for metric in tables.METRICS
    ]
    records = claim_records({"rrl-cnn": Table(tuple(rows), {})}, [4], resamples=50)
    assert len(records) == 3 * 4 * 4 == records[0]["family"]
    found = chosen(records, method="iwmr", rival="nearest", metric="iou")
    assert found["verdict"] == "better"
    assert found["bonferroni"] == pytest.approx(min(1, 48 * found["p"]))
    assert chosen(records, method="iwmr", rival="bilinear", metric="iou")["verdict"] == "worse"
    text = claims_markdown([{key: str(value) for key, value in one.items()} for one in records])
    (line,) = [line for line in text.splitlines() if "| iou | iwmr |" in line]
    gain = chosen(records, method="iwmr", rival="bilinear", metric="iou")["gain"]  # the best of them
    assert f"| {gain:+.3f} |" in line
    assert line.endswith("| 3 of 4 |")


def test_what_is_missing_is_lost_in_one_of_three_steps() -> None:
    ious = {"oracle-scores-usu": 0.9, "oracle-shares-usu": 0.7, "usu": 0.65, "bilinear": 0.6}
    rows = [
        {"model": "rrl-cnn", "source": source, "grid": "7", "method": method, "metric": metric, "mean": str(value)}
        for method, value in ious.items()
        for source in ("gradient", "gradcam")
        for metric in ("iou", "concentration")
    ]
    lines = losses_markdown(rows).splitlines()
    assert lines[2:] == ["| rrl-cnn | 7 x 7 | usu | 0.650 | 0.100 | 0.200 | 0.050 |"]


def test_a_map_that_is_the_pattern_has_no_error() -> None:
    truth = np.kron([[1.0, 0.0, 3.0, 0.0]] * 4, np.ones((2, 2)))
    even = np.full(truth.shape, truth.mean())
    one = Shown("stripes", truth, truth, np.array([[0.5, 1.5]] * 2), {"itself": truth, "even": even})
    same, other = pattern_records([one])
    assert [same[key] for key in ("alpha", "beta", "iou", "concentration", "cell_auroc")] == [0, 0, 1, 1, 1]
    assert [other[key] for key in ("alpha", "beta", "concentration", "cell_auroc")] == [0.5, 0.5, 0.5, 0.5]


def test_rivals_stand_in_rows_and_decided_gains_are_marked() -> None:
    rows = [
        {"model": "m", "method": "usu", "rival": rival, "metric": metric, "grid": "4", "gain": gain, "verdict": verdict}
        for rival, gain, verdict in (("a", "0.25", "better"), ("b", "-0.5", "worse"), ("c", "0", "undecided"))
        for metric in tables.METRICS
    ]
    lines = rivals_markdown(rows).splitlines()
    assert lines[2:] == [f"| m | usu | {rival} |" + f" {cell} |" * 3
                         for rival, cell in (("a", "+0.250 +"), ("b", "-0.500 -"), ("c", "+0.000"))]  # fmt: skip


def test_what_the_preset_misses_is_lost_on_its_own_segments() -> None:
    ious = {"oracle-scores-usu": 0.9, "oracle-shares-printed-usu": 0.8, "printed-usu": 0.3}
    rows = [
        {"model": "rrl-cnn", "source": "gradient", "grid": "7", "method": method, "metric": "iou", "mean": str(value)}
        for method, value in ious.items()
    ]
    assert losses_markdown(rows).splitlines()[2:] == [
        "| rrl-cnn | 7 x 7 | printed-usu | 0.300 | 0.100 | 0.100 | 0.500 |"
    ]


def test_plain_markdown() -> None:
    shown = plain_markdown([{"a_b": 1234.0, "c": "x"}, {"a_b": 4.95e-7, "d": None}])
    assert shown == "| a b | c | d |\n|---|---|---|\n| 1234 | x |  |\n| 4.95e-07 |  |  |"
    assert plain_markdown([{"a": 1, "b": 2}], ["b"]) == "| b |\n|---|\n| 2 |"


def test_desiderata_measure_the_network_and_audit_the_operator() -> None:
    values = {"bilinear": 0.3, "bicubic": 0.4, "lanczos3": 0.5, "usu": 1e-8, "iwmr": 2.0}
    rows = [
        Row(str(number), 0, method, metric, factor * value * number, 0, 0)
        for number in (1, 2, 3)
        for method, value in values.items()
        for metric, factor in (("moved-mass", 1), ("mass-error", 10))
    ]
    found = {one["method"]: one for one in desiderata_records("tiny", Table(tuple(rows), {}), trials=5)}
    assert list(found) == list(tables.PAPER_DESIDERATA)
    assert found["usu"]["D1_measured"] == "holds"
    assert found["bilinear"]["D1_measured"] == found["iwmr"]["D1_measured"] == "violated"
    assert found["usu"]["error_paper"] == 4.95e-7
    assert found["lanczos3"]["moved_mean"] == pytest.approx(1.0)
    assert found["lanczos3"]["relative_D1_worst"] == pytest.approx(15)


def test_a_page_is_filled_between_its_marks_and_only_there() -> None:
    page = "a\n<!-- measured: x -->\nold\n<!-- /measured -->\nb\n<!-- measured: y -->\n<!-- /measured -->\n"
    once = filled(page, {"y": "new"})
    assert once == page.replace("y -->\n", "y -->\nnew\n")
    assert filled(once, {"y": "new"}) == once
    with pytest.raises(ValueError, match="must have a place for z"):
        filled(page, {"z": ""})
