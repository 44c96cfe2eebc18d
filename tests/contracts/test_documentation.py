"""README and documentation: short lines, links that lead somewhere, numbers that come from committed tables."""

from __future__ import annotations

import csv
import importlib
import inspect
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest
from experiments.presets.verdicts import FAMILY
from experiments.readme import placed, tables

import usu
from tests.contracts.source import ROOT
from tests.contracts.traced import COMMON, RECORD, TRACED
from tests.snippets import ELSEWHERE, HERE, blocks

DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), *(ROOT / name for name in ("README.md", "CHANGELOG.md"))])
#: The reports of runs are written as a whole by `experiments.benchmark`.
NAMES = [str(page.relative_to(ROOT)) for page in PAGES if not {"_build", "results"} & {*page.parts}]
#: What a page may say without a source: how many there are of something.
COUNTS = {"0", "1", "2", "3"}


@cache
def flat(path: Path) -> str:
    """A file on one line, or all Python below a folder: code may move within its room."""
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return " ".join(" ".join(file.read_text(encoding="utf-8") for file in files).split())


def test_the_readme_is_read_in_five_minutes() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.split()) <= 700
    assert "Universal Semantic-Aware Upsampling" in text
    assert "pip install 'usu-xai[demo]'" in text


def long_lines(text: str) -> list[str]:
    """Tables, commands (code without a language) and what cannot be broken apart."""
    found, inside = [], None
    for line in text.splitlines():
        if line.startswith("```"):
            inside = line[3:] if inside is None else None
        elif inside != "" and len(line) > 120 and line[:1] not in "|<" and " " in line.strip():
            found.append(line)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_lines_are_short(name: str) -> None:
    assert long_lines((ROOT / name).read_text(encoding="utf-8")) == []


def test_a_long_line_is_seen() -> None:
    """Between blocks of code, too."""
    long = "word " * 30
    assert long_lines(f"```\n{long}\n```\n{long}\n```python\n{long}\n```\n| {long}") == [long, long]


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_somewhere(name: str) -> None:
    page = ROOT / name
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|srcset)="([^"]+)"', text):
        if not re.match(r"https?:|mailto:|#", target):
            assert (page.parent / target.partition("#")[0]).exists(), target


@pytest.mark.parametrize(
    "name",
    [
        "README.md", "docs/cost.md", "docs/evidence.md", "docs/how-to/page.md", "docs/how-to/vision-transformers.md",
        "docs/peers.md",
    ],
)  # fmt: skip
def test_what_was_measured_is_that_of_the_committed_rows(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert placed(text, DOCS / "results") == text
    assert text.count("<!-- measured:") == sum(
        f"<!-- measured: {part} -->" in text for part in tables(DOCS / "results")
    )


def said(text: str) -> str:
    """A page without what is generated, code, links, formulas and the numbers of a list."""
    generated, code = r"<!-- (\w+).*?<!-- /\1 -->", r"```.*?```|`[^`]*`|^    [^\n]*$"
    others = r"\[\d+\]\([^)]*\)|\]\([^)]*\)|\$[^$]*\$|^#[^\n]*$|^ *\d+\. "
    return " ".join(re.sub(f"{generated}|{code}|{others}", " ", text, flags=re.DOTALL | re.MULTILINE).split())


def untraced(text: str, traced: Iterable[str]) -> list[str]:
    """Numbers of a page that no source is named for; those that are part of a word are names."""
    left = said(text)
    for phrase in sorted(traced, key=len, reverse=True):
        left = left.replace(" ".join(phrase.split()), " ")
    found = re.findall(r"(?<![\w.^-])\.?\d+(?:[.,/]\d+)*(?:e-?\d+)?(?![\w])", left)
    return [number for number in found if number not in COUNTS]


HELD = [name for name in NAMES if name not in RECORD]


@pytest.mark.parametrize("name", HELD)
def test_every_number_is_generated_or_traced(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert untraced(text, [*COMMON, *TRACED.get(name, {})]) == []


@pytest.mark.parametrize("name", RECORD)
def test_every_number_of_the_record_is_generated_or_traced(name: str) -> None:
    """Or stands in one of the page's tables, with as many digits."""
    text = (ROOT / name).read_text(encoding="utf-8")
    tables_of_it = " ".join(re.findall(r"<!-- measured.*?<!-- /measured -->", text, flags=re.DOTALL))
    known = set(re.findall(r"\d+(?:\.\d+)?(?:e-?\d+)?", tables_of_it))
    left = untraced(text, [*COMMON, *RECORD[name]])
    assert [number for number in left if f"0{number}".replace("00.", "0.") not in known and number not in known] == []


def test_pictures_are_as_many_as_the_pages_say() -> None:
    def pictures(name: str) -> dict[str, list[dict[str, str]]]:
        found: dict[str, list[dict[str, str]]] = {}
        with (DOCS / "results" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                found.setdefault(row["picture"], []).append(row)
        return found

    first, confirmed = pictures("first-table"), pictures("presets-confirmed")
    assert (len(first), sum(name.isdigit() for name in first)) == (392, 200)
    assert sum(any(row["cell-auroc"] for row in rows) for rows in first.values()) == 191
    odd = [*first][1::2]
    assert (len(odd), len(set(confirmed) & set(odd))) == (196, 100)
    assert {"0565", "0575"} <= set(odd)
    assert (len(confirmed), sum(name.isdigit() for name in confirmed)) == (100, 53)
    assert len(pictures("first-table-papers-metrics")) == 98
    searched = ("parts", "unscored", "budgets", "ingredients", "candidates")
    assert [len(pictures(f"presets-search-{part}")) for part in searched] == [16, 16, 10, 16, 16]
    half = {name: [rows[0] for rows in ([row for row in own if row["upsampler"] == name] for own in first.values())]
            for name in ("soft", "cell", "bilinear")}  # fmt: skip
    even = {name: sum(float(row["half-deletion"]) for row in rows[::2]) for name, rows in half.items()}
    assert min(even["soft"], even["cell"]) > 5 * even["bilinear"]
    assert FAMILY == 61
    with (DOCS / "results" / "synthetic" / "claims.csv").open(encoding="utf-8", newline="") as file:
        claims = list(csv.DictReader(file))
    assert {row["family"] for row in claims} == {"432"}
    for method in ("usu", "iwmr"):
        contest = [row for row in claims if "sizes" in row["model"] and row["metric"] == "pointing-game"
                   and row["method"] == method]  # fmt: skip
        ahead = sum(float(row["gain"]) > 0 for row in contest)
        assert (len(contest), ahead, sum(row["verdict"] == "better" for row in contest)) == (24, 22, 19)
    with (DOCS / "results" / "synthetic" / "sweep.csv").open(encoding="utf-8", newline="") as file:
        assert {(row["pictures"], row["seed"]) for row in csv.DictReader(file)} == {("420", "0")}


@pytest.mark.parametrize("name", [*TRACED, *RECORD])
def test_traces_lead_to_their_sources(name: str) -> None:
    """And are needed: a phrase that is gone from its page goes from the table, too."""
    text = said((ROOT / name).read_text(encoding="utf-8"))
    for phrase, (source, there) in {**TRACED, **RECORD}[name].items():
        assert phrase in text, phrase
        assert there in flat(ROOT / source).replace("# ", ""), (source, there)


def test_common_traces_lead_to_their_sources() -> None:
    for source, there in COMMON.values():
        assert there in flat(ROOT / source), (source, there)


def test_a_number_without_a_source_is_seen() -> None:
    page = (
        "# 12\n\n1. About 30 times, .5 of it, 1e-3, in Lite0 and D4.\n\n`55` <!-- measured: x -->77<!-- /measured -->"
    )
    assert untraced(page, []) == ["30", ".5", "1e-3"]
    assert untraced(page, ["About 30 times", ".5 of it,"]) == ["1e-3"]


def test_mass_that_bilinear_moves() -> None:
    """docs/notes-on-the-paper.md: 5 % of a smooth map, 23 % of a random rectified one."""
    report = str(usu.audit(usu.upsamplers.by_name("bilinear")))
    smooth, rectified = map(float, re.findall(r"([\d.]+)% of", report)[:2])
    assert (round(smooth), round(rectified)) == (5, 23)


def test_every_figure_is_made_by_a_committed_script_and_shown() -> None:
    """A figure that no script names cannot be made again; one that no page shows is a leftover."""
    scripts = " ".join(
        file.read_text(encoding="utf-8")
        for folder in (DOCS / "figures", ROOT / "experiments" / "synthetic")
        for file in folder.glob("*.py")
    )
    pages = " ".join((ROOT / name).read_text(encoding="utf-8") for name in NAMES)
    figures = [file for file in (DOCS / "figures").iterdir() if file.suffix in (".png", ".svg")]
    assert len(figures) > 9
    for file in figures:
        assert file.stem.removeprefix("synthetic-") in scripts, file.name
        assert file.name in pages, file.name


def test_every_public_name_has_an_entry_and_an_example() -> None:
    pages = [path.read_text(encoding="utf-8") for path in sorted((DOCS / "reference").glob("*.md"))]
    entries = set(re.findall(r"auto\w+:: (?:usu\.)?([\w.]+)", "\n".join(pages)))
    modules = {"forward.fills": "fills", "operator.potentials": "potentials"}
    entries |= {modules[name] for name in entries & set(modules)}
    shown = "\n".join(block for page in NAMES for block in blocks(ROOT / page))
    for name in usu.__all__:
        if name != "__version__":
            assert name in entries, f"{name} has no entry"
            thing = getattr(usu, name)
            if not inspect.ismodule(thing):
                assert ">>>" in (inspect.getdoc(thing) or "") or f"usu.{name}" in shown, f"{name} has no example"


#: Types of arguments, and answers of a function: the example is that function's.
ANSWERS = {
    "segment": {"Segmenter"}, "score": {"Scores"}, "metrics": {"BlockChanges"}, "upsamplers": {"Upsampler"},
    "forward": {"Engine", "Link", "Model", "Progress", "Reference"}, "models": {"Geometry", "Loaded"},
    "stats": {"Comparison", "Difference", "Interval", "Report", "Wilcoxon"}, "plot": {"Panel", "Scale"},
}  # fmt: skip


@pytest.mark.parametrize("room", ANSWERS)
def test_what_a_room_exports_has_an_example_that_is_run(room: str) -> None:
    """In its docstring, that of a method, or on a page: doctests and snippets are all run. Entries: tests/browser."""
    shown = "\n".join(block for page in NAMES for block in blocks(ROOT / page))
    module = importlib.import_module(f"usu.{room}")
    without = set()
    for name in module.__all__:
        thing = getattr(module, name)
        if inspect.isroutine(thing) or inspect.isclass(thing) or name in ANSWERS[room]:
            texts = [thing, *vars(thing).values()] if inspect.isclass(thing) else [thing]
            if not any(">>>" in (getattr(text, "__doc__", None) or "") for text in texts):
                without |= set() if re.search(rf"\b{name}\b", shown) else {name}
    assert without == ANSWERS[room]


def test_every_snippet_is_run_by_some_test() -> None:
    with_code = {name for name in NAMES if blocks(ROOT / name)}
    assert with_code == set(HERE) | (set(ELSEWHERE) & with_code)
