"""The table: what goes in comes out, in every form."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from usu.bench import Row, Table, read_table
from usu.bench.table import latex
from usu.stats import report

ROWS = tuple(
    Row(picture, 7, upsampler, metric, value, 300, 2, 0.5, 0.25)
    for (picture, upsampler, metric), value in {
        ("a", "nearest", "iou"): 0.1,
        ("a", "cell", "iou"): 1 / 3,
        ("b", "nearest", "iou"): math.nan,
        ("b", "cell", "iou"): 1e-12,
        ("a", "cell", "road"): -2.0,
    }.items()
)


def test_csv_has_nine_digits_and_nothing_for_nan():
    lines = Table(ROWS, {}).csv().splitlines()
    assert lines[0] == "picture,target,upsampler,metric,value,evaluations,metric_evaluations"
    assert lines[2] == "a,7,cell,iou,0.333333333,300,2"
    assert lines[3] == "b,7,nearest,iou,,300,2"


def test_saved_tables_come_back(tmp_path):
    paths = Table(ROWS, {}).save(tmp_path)
    assert sorted(path.name for path in paths) == ["seconds.csv", "table.csv", "table.parquet"]
    back = read_table(tmp_path / "table.csv")
    assert back.csv() == Table(ROWS, {}).csv()
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_parquet(tmp_path / "table.parquet")
    assert list(frame.columns) == [*Table(ROWS, {}).csv().splitlines()[0].split(","), "seconds", "metric_seconds"]
    assert (frame.value[0], frame.seconds[0], frame.metric_seconds[0]) == (0.1, 0.5, 0.25)
    assert "0.25" in (tmp_path / "seconds.csv").read_text()


def test_values_are_paired_by_picture():
    found = Table(ROWS, {}).values("iou")
    np.testing.assert_array_equal(found["nearest"], [0.1, np.nan])
    assert list(found) == ["nearest", "cell"]
    with pytest.raises(ValueError, match=r"`metric` must .*; got 'x'"):
        Table(ROWS, {}).values("x")


def test_every_whole_fill_matrix_is_written():
    fills = ("blur", "mean", "noise")
    rows = [
        Row("a", 0, f"{upsampler}:{scorer}", f"road:{evaluator}", 10 * i + j, 0, 0)
        for upsampler, scorers in (("cell", fills), ("soft", fills[:2]))
        for i, scorer in enumerate(scorers)
        for j, evaluator in enumerate(fills)
    ]
    lines = Table((*rows, *ROWS), {}).fill_matrices().splitlines()
    assert lines[0] == "upsampler,metric,scored with,judged with blur,judged with mean,judged with noise"
    assert lines[1:] == ["cell,road,blur,0,1,2", "cell,road,mean,10,11,12", "cell,road,noise,20,21,22"]
    assert Table(ROWS, {}).fill_matrices() == ""


def test_another_file_is_refused(tmp_path):
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"`path` must be a table with the columns picture.*got a, b"):
        read_table(tmp_path / "x.csv")


def test_a_table_as_a_frame():
    pytest.importorskip("pandas")
    frame = Table(ROWS, {}).to_pandas()
    assert frame.shape == (5, 9)


def test_a_report_in_latex_has_whole_rows_and_plain_names():
    nasty = r"50 % of_a {b} & c\d ~x^2 #1 $y$"
    values = {"bilinear": np.arange(8.0), nasty: np.arange(8.0) ** 2, "worse": -np.arange(8.0)}
    page = latex(report({"m_1": ("higher", values), "m_2": ("lower", values)}, resamples=20).comparisons)
    rows = re.findall(r"^(.*) \\\\$", page, re.MULTILINE)
    assert len(rows) == 2 * (1 + 3)
    assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {11}
    assert page.count(r"\midrule") == 2
    assert r"50 \% of\_a \{b\} \& c\textbackslash d" in page
    assert "% m_1 (higher is better), 8 pictures" in page
    assert "family of 4 tests" in " ".join(page.replace("%", "").split())
