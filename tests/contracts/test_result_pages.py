"""The numbers on a page are the means of the committed CSV."""

from __future__ import annotations

import csv
import itertools
import math
import re
from collections import defaultdict
from pathlib import Path

import pytest
from experiments import first_table, infidelity_scale
from experiments.pages import filled
from experiments.presets import verdicts
from experiments.synthetic.page import parts

DOCS = Path(__file__).parents[2] / "docs"


def means(table: str) -> dict[tuple[str, str], float]:
    found = defaultdict(list)
    with (DOCS / "results" / f"{table}.csv").open(newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            for metric, value in line.items():
                if metric not in ("picture", "target", "upsampler") and value:
                    found[line["upsampler"], metric].append(float(value))
    return {key: sum(values) / len(values) for key, values in found.items()}


@pytest.mark.parametrize(
    ("page", "table", "block"),
    [
        ("appendix/first-table", "first-table", "measured: faithful"),
        ("appendix/first-table", "first-table", "measured: faithful controls"),
        ("appendix/first-table", "first-table", "measured: shape"),
        ("appendix/first-table", "first-table", "measured: outlines"),
        ("appendix/first-table", "first-table", "measured: outlines controls"),
        ("appendix/first-table", "first-table-papers-metrics", "measured: papers-metrics"),
        ("appendix/presets-search", "presets-confirmed", "measured: confirmed"),
        ("appendix/presets-search", "presets-confirmed", "measured: confirmed outlines"),
        ("appendix/presets-search", "presets-search-parts", "measured: search parts"),
        ("appendix/presets-search", "presets-search-candidates", "measured: search candidates"),
    ],
)
def test_the_page_shows_the_means(page: str, table: str, block: str) -> None:
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    shown = text.partition(f"<!-- {block} -->\n")[2].partition("\n<!-- /")[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in shown]
    heads = [re.sub(r" [↑↓]$", "", head) for head in rows[0]]
    wanted, compared = means(table), 0
    for row in rows[2:]:
        for head, cell in zip(heads[1:], row[1:], strict=True):
            number = re.fullmatch(r"(-?[\d.]+(?:e[-+]?\d+)?|inf)[+-]?", cell)
            assert number is not None, cell
            mean = wanted[row[0], head]
            if head == "evaluations":
                assert round(mean) == int(number[1])
            else:
                assert math.isclose(float(number[1]), mean, rel_tol=0.5 if "e" in cell else 1e-4, abs_tol=5.1e-4)
            compared += 1
    assert compared == (len(rows) - 2) * (len(heads) - 1) > 50


def test_the_page_shows_the_halves() -> None:
    """The first half of each cell is that of the pictures at even places, the second of those at odd places."""
    with (DOCS / "results" / "first-table.csv").open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    names = [name for name, _ in itertools.groupby(lines, lambda line: line["picture"])]
    assert len(names) == len(set(names)) == 392
    assert names[:2] == ["0000", "0005"]
    page = (DOCS / "appendix" / "first-table.md").read_text(encoding="utf-8")
    shown = page.partition("<!-- measured: unseen -->\n")[2].partition("\n<!-- /")[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in shown]
    heads = [re.sub(r" [↑↓]$", "", head) for head in rows[0]]
    for row in rows[2:]:
        for head, cell in zip(heads[1:], row[1:], strict=True):
            for half, number in enumerate(cell.rstrip("+-").split(" / ")):
                own = [line for line in lines if line["upsampler"] == row[0] and line["picture"] in names[half::2]]
                values = [float(line[head]) for line in own if line[head]]
                assert len(values) in (196, 96 - half)  # one outline at the odd places is empty
                assert math.isclose(float(number), sum(values) / len(values), abs_tol=5.1e-4)
    assert len(rows) > 10


def test_the_controlled_study_shows_what_it_measured() -> None:
    page = (DOCS / "appendix" / "synthetic-study.md").read_text(encoding="utf-8")
    written = parts(DOCS / "results" / "synthetic")
    assert len(written) == page.count("<!-- measured:")
    assert filled(page, written) == page


def test_the_first_table_shows_what_it_measured() -> None:
    """The marks, too: they are tested anew on the committed numbers."""
    page = (DOCS / "appendix" / "first-table.md").read_text(encoding="utf-8")
    written = first_table.parts(DOCS / "results")
    assert len(written) == page.count("<!-- measured:")
    assert filled(page, written) == page


def test_the_page_of_the_presets_shows_what_was_confirmed() -> None:
    page = (DOCS / "appendix" / "presets-search.md").read_text(encoding="utf-8")
    written = verdicts.parts(DOCS / "results" / "presets-confirmed.csv")
    assert len(written) == page.count("<!-- measured:")
    assert filled(page, written) == page


def test_the_page_of_infidelity_shows_what_was_measured() -> None:
    """Its sentences, too."""
    page = (DOCS / "infidelity.md").read_text(encoding="utf-8")
    written = infidelity_scale.parts(infidelity_scale.read(DOCS / "results" / "infidelity-scale.csv"))
    assert len(written) == page.count("<!-- measured:")
    assert filled(page, written) == page
