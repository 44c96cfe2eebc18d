"""Two upsamplers of a committed table, held against scipy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from experiments.first_table import HALVED, HALVED_METRICS, between, fills, halves, narrow, unseen, wide
from scipy.stats import wilcoxon

from usu.bench import Row, Table
from usu.metrics import by_name


def test_two_are_compared_where_both_were_measured(tmp_path: Path) -> None:
    dice = np.random.default_rng(0)
    one, other = dice.random(12), dice.random(12) - 0.4
    lines = ["picture,target,upsampler,evaluations,iou,road"]
    for number, (a, b) in enumerate(zip(one, other, strict=True)):
        lines += [f"p{number},0,x,0,{a},{'' if number == 3 else a}", f"p{number},0,y,0,{b},{b}"]
    path = tmp_path / "table.csv"
    path.write_text("\n".join([*lines, ""]))
    _, _, iou, road = between(narrow(path), "x", "y").splitlines()
    left = np.delete(one, 3), np.delete(other, 3)
    for line, (a, b) in ((iou, (one, other)), (road, left)):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert cells[1:3] == [f"{a.mean():.3g}", f"{b.mean():.3g}"]
        assert cells[4] == f"{wilcoxon(a, b).pvalue:.1g}"
    assert iou != road


def test_wide_and_back(tmp_path: Path) -> None:
    numbers = {("a", "x"): (0.5, 0.25), ("a", "y"): (1 / 3, float("inf")), ("b", "x"): (float("nan"), 2.0)}
    rows = [
        Row(picture, 7, upsampler, metric, value, 40, 0)
        for (picture, upsampler), values in numbers.items()
        for metric, value in zip(("iou", "mass-error"), values, strict=True)
    ]
    wide(Table(tuple(rows), {}), tmp_path / "wide.csv")
    back = {row.key: row for row in narrow(tmp_path / "wide.csv").rows}
    assert len(back) == 5, "what was not measured is left out"
    for row in rows:
        if not np.isnan(row.value):
            assert back[row.key].value == pytest.approx(row.value, rel=1e-5)
            assert (back[row.key].target, back[row.key].evaluations) == (7, 40)


def test_the_diagonal_of_the_fills_is_in_brackets(tmp_path: Path) -> None:
    (tmp_path / "fills.csv").write_text(
        "upsampler,metric,scored with,judged with blur,judged with mean\ncell,road,blur,0.5,0.25\ncell,road,mean,1,2\n"
    )
    assert fills(tmp_path / "fills.csv").splitlines()[2:] == [
        "| cell | road | blur | (0.500) | 0.250 |",
        "| cell | road | mean | 1.000 | (2.000) |",
    ]


def test_the_marks_of_the_halves_are_those_of_the_odd_places() -> None:
    """Even places: twice as good as bilinear; odd places: the same coin for all."""
    dice = np.random.default_rng(0)
    rows = [
        Row(f"p{number}", 0, name, metric, (1.0 if name == "cell" and number % 2 == 0 else 0.0) + dice.random(), 0, 0)
        for number in range(80)
        for name in HALVED
        for metric in HALVED_METRICS
    ]
    even, odd = halves(Table(tuple(rows), {}))
    assert {row.picture for row in even.rows} == {f"p{number}" for number in range(0, 80, 2)}
    assert len(even) == len(odd) == len(rows) / 2
    lines = {line.split("|")[1].strip(): line.split("|")[2:-1] for line in unseen(Table(tuple(rows), {})).splitlines()}
    assert all(float(cell.partition("/")[0]) > 1 > float(cell.partition("/")[2]) for cell in lines["cell"])
    assert not any(cell.strip().endswith(("+", "-")) for name in HALVED for cell in lines[name])
    swapped = [replace(row, picture=f"p{int(row.picture[1:]) ^ 1:02}") for row in rows]
    swapped.sort(key=lambda row: row.picture)
    marked = unseen(Table(tuple(swapped), {})).splitlines()
    assert [line.count("+") for line in marked if line.startswith("| cell |")] == [
        sum(by_name(name).better == "higher" for name in HALVED_METRICS)
    ]
