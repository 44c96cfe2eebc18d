"""Tables and sentences of the pages on stability are those of the committed numbers."""

from __future__ import annotations

import re

import pytest
from experiments.pages import filled
from experiments.stability.__main__ import blocks, rows_of
from experiments.stability.compared import against
from experiments.stability.sentences import sentences
from experiments.stability.tables import tables

from tests.contracts.source import ROOT

RUN = ROOT / "docs" / "results" / "stability"


@pytest.mark.parametrize(("page", "least"), [("stability.md", 11), ("appendix/stability.md", 7)])
def test_the_page_is_written_from_its_numbers(page: str, least: int) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    made = blocks(RUN)
    names = re.findall(r"<!-- measured: (.+?) -->", text)
    assert len(names) >= least
    assert filled(text, {name: made[name] for name in names}) == text


def test_tables_of_the_page_fit_a_screen() -> None:
    text = (ROOT / "docs" / "stability.md").read_text(encoding="utf-8")
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert table.count("\n") <= 26, table.splitlines()[0]


@pytest.mark.parametrize(("shift", "sign"), [(-0.5, "-"), (0.5, "+")])
def test_sentences_follow_the_rows(shift: float, sign: str) -> None:
    """Other numbers give other words, not the same ones with other digits."""
    every = {path.stem: rows_of(path) for path in sorted(RUN.glob("*.csv"))}
    moved = "soft insertion-deletion mean"
    other = [{**row, moved: str(float(row[f"former {moved}"]) + shift)} for row in every["seeds-embedded"]]
    changed = {**every, "seeds-embedded": other}
    said = " ".join(sentences(changed)["short"].split())
    worse = "lower after correction for `soft` on EfficientNet-Lite0 (insertion minus deletion, mean fill)"
    assert (worse in said) == (sign == "-")
    line = next(line for line in tables(changed)["presets"].splitlines() if "Lite0 | soft |" in line)
    assert line.split(" | ")[6].endswith(f" {sign}")


def test_a_former_run_gives_way_to_one_of_today() -> None:
    row = {"picture": "1", "fill mean iou": "0.5", "fill mean pearson": "0.5"}
    before = {"choices-embedded_before": [row]}
    assert "former segments" in tables(before)["choices"]
    assert "former segments" not in tables({**before, "choices-embedded": [row]})["choices"]


def test_few_pairs_have_a_shift_and_no_p() -> None:
    rows = [{"one": str(number + 0.5), "other": str(number)} for number in range(4)]
    found = against(rows, "one", "other")
    assert (found.n, found.shift, found.p) == (4, 0.5, None)
