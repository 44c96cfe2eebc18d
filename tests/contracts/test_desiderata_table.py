"""The table of guarantees in docs/desiderata.md is the declarations themselves, which the law tests hold."""

from __future__ import annotations

import pytest

from tests.contracts.source import ROOT
from usu.types import GUARANTEES
from usu.upsamplers import BUILT_IN, guarantee_table

OPEN, CLOSE = "<!-- guarantees -->", "<!-- /guarantees -->"
ADVICE = (
    f"Paste what `python -c 'from usu.upsamplers import guarantee_table; print(guarantee_table())'` prints into "
    f"docs/desiderata.md, between the lines {OPEN} and {CLOSE}."
)


def complaint(page: str) -> str | None:
    """What is wrong with the page's table, and what to do."""
    lines = page.splitlines()
    if lines.count(OPEN) != 1 or lines.count(CLOSE) != 1 or lines.index(CLOSE) < lines.index(OPEN):
        return f"The page has no table of guarantees. {ADVICE}"
    shown = "\n".join(lines[lines.index(OPEN) + 1 : lines.index(CLOSE)]).strip()
    return None if shown == guarantee_table() else f"The page's table differs from the declared guarantees. {ADVICE}"


def test_the_page_shows_what_is_declared() -> None:
    message = complaint((ROOT / "docs" / "desiderata.md").read_text(encoding="utf-8"))
    if message:
        pytest.fail(message, pytrace=False)


def test_the_table_says_what_is_declared() -> None:
    header, _, *rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in guarantee_table().splitlines())
    assert header == ["upsampler", *GUARANTEES]
    assert [row[0] for row in rows] == [f"`{upsampler.name}`" for upsampler in BUILT_IN]
    for row, upsampler in zip(rows, BUILT_IN, strict=True):
        assert {g for g, cell in zip(GUARANTEES, row[1:], strict=True) if cell == "yes"} == upsampler.guarantees


def test_a_missing_or_different_table_is_seen() -> None:
    good = f"# usu\n\n{OPEN}\n{guarantee_table()}\n{CLOSE}\n\nThe end.\n"
    assert complaint(good) is None
    assert complaint(good.replace(f"{OPEN}\n", f"{OPEN}\n\n")) is None  # blank lines around it are Markdown's business
    boast = good.replace("| `bilinear` |  |", "| `bilinear` | yes |")
    for bad in ("", good.replace(OPEN, ""), good.replace(CLOSE, ""), boast, good.replace("| `usu` ", "| `USU` ")):
        message = complaint(bad)
        assert message is not None
        assert "guarantee_table()" in message
