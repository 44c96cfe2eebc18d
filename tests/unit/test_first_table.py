"""Two upsamplers of a committed table, held against scipy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from experiments.first_table import between, fills, narrow, wide
from scipy.stats import wilcoxon

from usu.bench import Row, Table


def test_two_are_compared_where_both_were_measured(tmp_path: Path) -> None:
    dice = np.random.default_rng(0)
    one, other = dice.random(12), dice.random(12) - 0.4
    lines = ["picture,target,upsampler,evaluations,iou,road"]
    for number, (a, b) in enumerate(zip(one, other, strict=True)):
        lines += [f"p{number},0,x,0,{a},{'' if number == 3 else a}", f"p{number},0,y,0,{b},{b}"]
    path = tmp_path / "table.csv"
    path.write_text("\n".join([*lines, ""]))
    _, _, iou, road = between(path, "x", "y").splitlines()
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
