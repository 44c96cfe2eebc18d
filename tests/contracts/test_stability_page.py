"""The tables of the page on stability are those of the committed numbers."""

from __future__ import annotations

import re

from experiments.pages import filled
from experiments.stability.__main__ import rows_of
from experiments.stability.tables import tables

from tests.contracts.source import ROOT


def test_the_page_is_written_from_its_numbers() -> None:
    text = (ROOT / "docs" / "stability.md").read_text(encoding="utf-8")
    run = ROOT / "docs" / "results" / "stability"
    made = tables({path.stem: rows_of(path) for path in sorted(run.glob("*.csv"))})
    names = re.findall(r"<!-- measured: (\S+) -->", text)
    assert len(names) >= 8
    assert filled(text, {name: made[name] for name in names}) == text
