"""Two upsamplers of a committed table, held against scipy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from experiments.first_table import between
from scipy.stats import wilcoxon


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
