"""The tables of the page on stability are those of the committed numbers."""

from __future__ import annotations

from experiments.pages import filled
from experiments.stability import tables

from tests.contracts.source import ROOT


def test_the_page_is_written_from_its_numbers() -> None:
    text = (ROOT / "docs" / "stability.md").read_text(encoding="utf-8")
    made = tables(ROOT / "docs" / "results" / "stability")
    placed = {name: table for name, table in made.items() if f"<!-- measured: {name} -->" in text}
    assert set(placed) == {"presets", "paid", "known"}
    assert filled(text, placed) == text
