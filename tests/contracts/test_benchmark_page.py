"""The tables of the benchmark's page are those of the committed rows."""

from __future__ import annotations

import pytest
from experiments.benchmark.__main__ import PAGE, RESULTS, parts, read
from experiments.pages import filled

from usu.bench.groups import grouped


@pytest.mark.parametrize("name", ["main", "cross-method"])
def test_the_page_is_made_of_the_rows(name: str) -> None:
    page = PAGE.read_text(encoding="utf-8")
    # verdicts and means need no resamples
    assert filled(page, parts(name, grouped(read(name), "bilinear", resamples=50))) == page


def test_the_reports_are_there_and_show_no_pictures() -> None:
    for name in ("main", "cross-method"):
        text = (RESULTS / f"{name}.html").read_text(encoding="utf-8")
        assert "<img" not in text
        assert "data:image" not in text
