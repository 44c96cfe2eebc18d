"""The documentation's table of metrics is the declarations, word for word."""

from __future__ import annotations

from math import isinf
from pathlib import Path

from usu.metrics import METRICS

PAGE = Path(__file__).parents[2] / "docs" / "evaluation.md"


def metric_table() -> str:
    """What every metric declares, as Markdown; where the page differs, paste this."""
    rows = [["metric", "better", "range", "scale-invariant", "evaluations", "needs an outline"]]
    for metric in METRICS:
        reach = f"from {metric.low:g}" if isinf(metric.high) else f"{metric.low:g} to {metric.high:g}"
        invariant, outline = ("yes" if flag else "" for flag in (metric.scale_invariant, metric.needs_truth))
        rows.append([f"`{metric.name}`", metric.better, reach, invariant, str(metric.evaluations), outline])
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]])


def test_the_table_is_the_declarations() -> None:
    text = PAGE.read_text(encoding="utf-8")
    shown = text.partition("<!-- metrics -->\n")[2].partition("\n<!-- /metrics -->")[0]
    assert shown == metric_table()
