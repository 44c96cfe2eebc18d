"""Pages whose tables are written from committed CSV files, never by hand."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence

#: A verdict beside a number.
MARKS = {"better": "+", "worse": "-", "undecided": ""}


def markdown(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table with these heads."""
    first = [*heads]
    return "\n".join([_line(first), "|---" * len(first) + "|", *map(_line, rows)])


def once(rows: Iterable[Sequence[str]]) -> list[list[str]]:
    """The first cell only where it is another than above."""
    found: list[list[str]] = []
    above = None
    for row in rows:
        found.append(["" if row[0] == above else row[0], *row[1:]])
        above = row[0]
    return found


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def prose(*paragraphs: str) -> str:
    """Lines of at most 120; what begins with a dash is an item of a list."""
    made = []
    for text in paragraphs:
        indent = "  " if text.startswith("- ") else ""
        made.append(textwrap.fill(text, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False))
    return "\n".join(made)


def filled(page: str, parts: Mapping[str, str]) -> str:
    """The page with everything between ``<!-- measured: NAME -->`` and ``<!-- /measured -->`` written anew."""
    for name, text in parts.items():
        start, end = f"<!-- measured: {name} -->", "<!-- /measured -->"
        if start not in page or end not in page.partition(start)[2]:
            raise ValueError(f"`page` must have a place for {name}; got none. Write {start} and {end} into it.")
        head, _, rest = page.partition(start)
        page = f"{head}{start}\n{text}\n{end}{rest.partition(end)[2]}"
    return page
