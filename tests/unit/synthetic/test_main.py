"""The study runs from pictures to figures, in tiny; a second run finds everything; the page has places for all."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from experiments.synthetic import __main__ as study
from experiments.synthetic import choice, demonstrations
from experiments.synthetic.methods import Memory, Shared, methods, paper
from experiments.synthetic.page import AS_THEY_ARE
from experiments.synthetic.page import main as fill_page
from experiments.synthetic.patterns import patterns
from experiments.synthetic.tables import CLAIMING, CONTESTING, read_csv

import usu
from usu.bench import Guided
from usu.bench.units import UnitGrid

TINY = study.Study(
    size=32, count=42, grids=(2, 4), epochs_cnn=1, epochs_mlp=1, tested=3, tested_others=3, contested=3, unfaithful=2,
    variants=("sizes",), variant_size=32,
    sweep=(16, 6, 1, 1), evaluations=110, candidates=9, resamples=20, trials=2, photographs=(),
)  # fmt: skip
PAGE = Path(__file__).parents[3] / "docs" / "appendix" / "synthetic-study.md"


def small(budget: str) -> usu.Settings:
    """The paper's pipeline with few segments."""
    return replace(paper(budget), parts=9, depth=1)


def few(groups, *, evaluations: int) -> list:
    """The methods that every table needs."""
    memory = Memory()
    named = (("usu", "usu"), ("iwmr", "iwmr"), ("printed-usu", "usu"), ("printed-iwmr", "iwmr"))
    return methods(["interpolations"]) + [Shared(Guided(name, small(of)), memory) for name, of in named]


def twins() -> study.identical.Twins:
    """Three shapes in one place."""
    kinds = study.identical.KINDS
    polygons = tuple(study.identical.Polygon(kind, 16.0, 16.0, 6.0, 0.0) for kind in kinds)
    return study.identical._explained(polygons, 32, 2)


def remember(figure, folder: Path, name: str) -> None:
    """How many panels there are; drawing them is tested with the figures."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(str(sum(len(axes.images) > 0 for axes in figure.axes)))


@pytest.fixture(scope="module")
def out(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "embedded", lambda names, evaluations: None)  # a network of its own, tested with it
        patch.setattr(study, "methods", few)
        patch.setattr(study.tables, "RIVALS", ("nearest", "usu"))
        patch.setattr(demonstrations, "paper", small)
        patch.setattr(study, "save", remember)
        patch.setattr(choice, "PARTS", (4,))
        patch.setattr(study.identical, "search", lambda **_: [twins()])  # the search is tested with it
        study.run(TINY, folder)
    return folder


def test_every_table_and_figure_is_written(out) -> None:
    models = {row["model"]: row for row in read_csv(out / "models.csv")}
    assert list(models) == ["vanilla-cnn", "rrl-cnn", "vanilla-mlp", "rrl-mlp", "rrl-cnn/sizes", "rrl-mlp/sizes"]
    assert models["rrl-cnn"]["strength"] == "0.1"
    shapes = read_csv(out / "shapes.csv")
    found = {(row["model"], row["source"]) for row in shapes}
    assert found == {(name, "gradient") for name in models} | {("rrl-cnn", "gradcam")}
    assert {row["grid"] for row in shapes} == {"2", "4"}
    claims = read_csv(out / "claims.csv")
    each = 2 * 3 * 4  # grids, metrics, interpolations
    assert len(claims) == int(claims[0]["family"]) == 2 * each * len(CLAIMING) + 2 * each * len(CONTESTING)
    assert {(row["model"], row["pictures"]) for row in claims} == {
        ("rrl-cnn", "3"), ("rrl-mlp", "3"), ("rrl-cnn/sizes", "3"), ("rrl-mlp/sizes", "3"),
    }  # fmt: skip
    assert len(read_csv(out / "choice.csv")) == 2 * 2 * 2
    swept = [(row["side"], row["strength"]) for row in read_csv(out / "sweep.csv")]
    assert swept == [("16", of) for of in ("0", "0.01", "0.1", "1")] * 3 * 2 + [("32", "0.1")] * 2 * 2
    rivals = read_csv(out / "rivals.csv")
    assert {(row["method"], row["rival"]) for row in rivals} == {
        ("usu", "nearest"),
        ("iwmr", "nearest"),
        ("iwmr", "usu"),
    }
    found = [row["pattern"] for row in read_csv(out / "patterns.csv")]
    assert found == [name for name in patterns(size=32) for _ in range(5)]
    unfaithful = {(row["model"], row["method"]): float(row["times_less"]) for row in read_csv(out / "infidelity.csv")}
    assert unfaithful["rrl-cnn", "bilinear"] == unfaithful["rrl-mlp", "bilinear"] == 1
    assert ("rrl-cnn", "usu-permuted-scores") in unfaithful
    worst = [float(r["worst"]) for r in shapes if (r["method"], r["metric"]) == ("usu", "mass-error")]
    assert len(worst) == 7 * 2
    assert max(worst) <= 1e-6
    assert [row["method"] for row in read_csv(out / "desiderata.csv")] == [
        "bilinear",
        "bicubic",
        "lanczos3",
        "usu",
        "iwmr",
    ]
    bounds = {(row["grid"], row["upsampler"]): float(row["excess_worst"]) for row in read_csv(out / "additive.csv")}
    assert bounds["4", "usu"] < 1e-12 < bounds["4", "bilinear"]
    panels = {path.name: int(path.read_text()) for path in (out / "figures").iterdir()}
    assert panels.pop("refinement") in (6, 12, 18)  # a row per depth, as the scores have it
    assert panels == {"upsampling-errors": 8 + 5, "error-types": 10, "qualitative": 9 * 8, "identical": 3 * 4}


def test_what_ran_is_written_down(out) -> None:
    about = json.loads((out / "run.json").read_text())
    assert about["study"]["seed"] == 0
    assert about["study"]["size"] == 32
    assert "torch" in about["versions"]
    assert about["command"]


def test_a_second_run_measures_nothing_again(out, monkeypatch) -> None:
    before = {path: path.read_bytes() for path in (out / "rows").iterdir()}
    monkeypatch.setattr(study, "methods", few)
    monkeypatch.setattr(UnitGrid, "compute", lambda *_: pytest.fail("measured again"))
    found, tests, _ = study.models(TINY, out)
    study.rows_of(TINY, out, "rrl-cnn", "gradcam", found["rrl-cnn"], tests["rrl-cnn"])
    assert {path: path.read_bytes() for path in (out / "rows").iterdir()} == before


def test_rows_of_another_pipeline_are_refused(out, monkeypatch) -> None:
    monkeypatch.setattr(study, "methods", few)
    monkeypatch.setattr(sys.modules[__name__], "small", lambda budget: replace(paper(budget), parts=8, depth=1))
    found, tests, _ = study.models(TINY, out)
    with pytest.raises(ValueError, match="made with another"):
        study.rows_of(TINY, out, "rrl-cnn", "gradcam", found["rrl-cnn"], tests["rrl-cnn"])


def test_the_page_is_filled_from_the_results(out, tmp_path, monkeypatch, capsys) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["page", str(out), str(page)])
    fill_page()
    text = page.read_text(encoding="utf-8")
    assert "| rrl-cnn | gradcam | usu |" in text
    assert text.count("<!-- measured:") == 8 + len(AS_THEY_ARE)
    assert "17 parts" in capsys.readouterr().out


def test_the_two_settings_differ_in_size_and_not_in_kind() -> None:
    quick, full = study.QUICK, study.FULL
    assert (full.size, full.count, full.grids) == (224, 2000, (4, 7, 14))
    assert quick.grids == full.grids
    assert quick.size % 28 == 0  # every grid divides it
    assert quick.seed == full.seed
    assert set(quick.variants) <= set(full.variants)
