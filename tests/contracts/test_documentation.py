"""README and documentation: short lines, links that lead somewhere, numbers that come from committed tables."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
from experiments.readme import placed, tables

import usu
from tests.contracts.source import ROOT
from tests.snippets import ELSEWHERE, HERE, blocks

DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), *(ROOT / name for name in ("README.md", "CHANGELOG.md"))])
NAMES = [str(page.relative_to(ROOT)) for page in PAGES if "_build" not in page.parts]
#: Others are writing these.
THEIRS = {"docs/stability.md", "docs/guarantees.md", "docs/model-kinds.md", "docs/how-to/page.md"}
#: Numbers outside of generated blocks, and where each of them is from: the file, and what stands there.
TRACED = {
    "README.md": {
        "5 to 7 seconds": ("docs/appendix/presets-search.md", "take 5 to 7 s"),
        "600 evaluations": ("src/usu/settings.py", "ceiling: int = 600"),
    },
    "docs/cost.md": {
        "5 to 7 seconds": ("docs/appendix/presets-search.md", "take 5 to 7 s"),
        "at 600 at the latest": ("src/usu/settings.py", "ceiling: int = 600"),
    },
    "docs/evidence.md": {
        "100 pictures": ("docs/appendix/presets-search.md", "100 pictures (53 ImageNet, 47 Oxford-IIIT Pet"),
        "392 pictures": ("docs/appendix/first-table.md", "392 pictures, 432 tests."),
    },
    "docs/theory.md": {"stability is 0.85": ("src/usu/settings.py", "stability: float = 0.85")},
    "docs/presets.md": {
        "60 segments": ("src/usu/settings.py", '"parts": 60'),
        "1e-13": ("src/usu/settings.py", "trace=1e-13"),
        "600 evaluations": ("src/usu/settings.py", "ceiling: int = 600"),
    },
}


def flat(path: Path) -> str:
    return " ".join(path.read_text(encoding="utf-8").split())


def test_the_readme_is_read_in_five_minutes() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.split()) <= 700
    assert "Universal Semantic-Aware Upsampling" in text
    assert "pip install 'usu-xai[demo]'" in text


@pytest.mark.parametrize("name", [name for name in NAMES if name not in THEIRS])
def test_lines_are_short(name: str) -> None:
    """Tables and commands apart."""
    text = re.sub(r"```\n.*?```", "", (ROOT / name).read_text(encoding="utf-8"), flags=re.DOTALL)
    lines = text.splitlines()
    assert [line for line in lines if len(line) > 120 and line[:1] not in "|<" and " " in line.strip()] == []


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_somewhere(name: str) -> None:
    page = ROOT / name
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|srcset)="([^"]+)"', text):
        if not re.match(r"https?:|mailto:|#", target):
            assert (page.parent / target.partition("#")[0]).exists(), target


@pytest.mark.parametrize("name", ["README.md", "docs/evidence.md"])
def test_tables_are_those_of_the_committed_rows(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert placed(text, DOCS / "results") == text
    assert text.count("<!-- measured:") == sum(
        f"<!-- measured: {part} -->" in text for part in tables(DOCS / "results")
    )


@pytest.mark.parametrize("name", TRACED)
def test_numbers_are_traced(name: str) -> None:
    for phrase, (source, there) in TRACED[name].items():
        assert phrase in flat(ROOT / name), phrase
        assert there in flat(ROOT / source), there


def test_rows_of_rivals_replace_those_of_the_confirmation(tmp_path: Path) -> None:
    """Once all methods are among them; then the table is of the presets of today."""
    (tmp_path / "stability").mkdir()
    rows = (DOCS / "results" / "presets-confirmed.csv").read_text(encoding="utf-8")
    (tmp_path / "presets-confirmed.csv").write_text(rows, encoding="utf-8")
    before = tables(tmp_path)["readme"]
    assert "as they were" in before
    names = ["bilinear", "guided filter", "LayerCAM", "fast", "soft", "cell"]
    heads = ",".join(f"{name} insertion-deletion mean" for name in names)
    (tmp_path / "stability" / "rivals-embedded.csv").write_text(f"{heads}\n.1,.2,.3,.4,.5,.6\n.3,.2,.3,.4,.5,.6\n")
    (tmp_path / "stability" / "seeds-embedded.csv").write_text("soft iou,cell iou\n.7,.9\n.9,.9\n")
    after = tables(tmp_path)["readme"]
    assert "2 pictures" in after
    assert "as they were" not in after
    assert "| bilinear | 0.20 | no chance in it |" in after
    assert "| `soft` | 0.50 | 0.80 |" in after


@pytest.mark.parametrize("name", ["README.md", "docs/evidence.md", "docs/cost.md"])
def test_no_result_is_written_by_hand(name: str) -> None:
    """A number with a decimal point that is not in a generated block, code or link must be traced."""
    text = (ROOT / name).read_text(encoding="utf-8")
    text = re.sub(r"<!-- measured.*?/measured -->|```.*?```|`[^`]*`|\]\([^)]*\)", "", text, flags=re.DOTALL)
    traced = " ".join(TRACED.get(name, {}))
    assert [number for number in re.findall(r"(?<![\w-])\d*\.\d+", text) if number not in traced] == []


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


def test_every_snippet_is_run_by_some_test() -> None:
    with_code = {name for name in NAMES if blocks(ROOT / name)}
    assert with_code == set(HERE) | (set(ELSEWHERE) & with_code)
