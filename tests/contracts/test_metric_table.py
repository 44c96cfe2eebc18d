"""The documentation's table of metrics is the declarations, word for word."""

from __future__ import annotations

from pathlib import Path

from usu.metrics.catalogue import metric_table

PAGE = Path(__file__).parents[2] / "docs" / "evaluation.md"


def test_the_table_is_the_declarations() -> None:
    text = PAGE.read_text(encoding="utf-8")
    shown = text.partition("<!-- metrics -->\n")[2].partition("\n<!-- /metrics -->")[0]
    assert shown == metric_table()
