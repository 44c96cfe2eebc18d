"""Tables and sentences of the benchmark's pages are those of the committed rows."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from experiments.benchmark.__main__ import PAGES, RESULTS, parts, placed, read
from experiments.benchmark.told import answer, controls

from usu.bench.report import Group, grouped


@cache
def groups(name: str) -> list[Group]:
    """Verdicts and means need no resamples."""
    return grouped(read(name), "bilinear", resamples=50)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_the_page_is_made_of_the_rows(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    made = {**parts("main", groups("main")), **parts("cross-method", groups("cross-method"))}
    assert set(re.findall(r"<!-- measured: (.+?) -->", text)) <= set(made)
    assert placed(text, made) == text


def test_every_block_has_a_place() -> None:
    text = " ".join(page.read_text(encoding="utf-8") for page in PAGES)
    for name in ("main", "cross-method"):
        for block in parts(name, groups(name)):
            assert f"<!-- measured: {block} -->" in text or block.endswith("progress"), block


def test_sentences_follow_the_rows() -> None:
    """Of a network on which nothing is decided other words are said."""
    undecided = [group for group in groups("main") if group.model == "resnet20"]
    assert "nothing to control" in controls(undecided)
    one = next(group for group in groups("cross-method") if group.source == "XGradCAM" and group.model == "embedded")
    assert "worse for 0 of 1" in " ".join(answer([one]).split())


def test_the_reports_are_there_and_show_no_pictures() -> None:
    for name in ("main", "cross-method"):
        text = (RESULTS / f"{name}.html").read_text(encoding="utf-8")
        assert "<img" not in text
        assert "data:image" not in text
