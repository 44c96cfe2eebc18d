"""``usu evaluate`` as a person types it: tables and reports, and a run that is killed again and again."""

from __future__ import annotations

import csv
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from skimage import data

from usu.bench import Store

MODEL = """
import numpy as np
import torch
from torch import nn


def small():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 5, 4, 2), nn.ReLU(), nn.Conv2d(8, 8, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(8, 5),
    )
    return net.eval(), lambda pixels: torch.from_numpy(np.ascontiguousarray(pixels)).permute(2, 0, 1).float() / 255
"""
ASKED = (
    "evaluate", "pictures", "--model", "model.py:small", "--layer", "2", "--truth", "outlines", "--evaluations", "60",
    "--upsamplers", "nearest,bilinear,guided,cell,soft,scores-alone,cell-permuted-scores", "--quiet", "--metrics",
    "half-deletion,half-deletion:noise,insertion-deletion,infidelity,road,irof,monotonicity,cell-auroc,mass-error",
)  # fmt: skip
Usu = Callable[..., tuple[int, str, str]]


def start(cwd: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "100"}
    return subprocess.Popen(
        [sys.executable, "-m", "usu.cli", *arguments], cwd=cwd, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip


def finished(cwd: Path, *arguments: str, expect: int = 0) -> tuple[str, str]:
    process = start(cwd, *arguments)
    out, err = process.communicate(timeout=300)
    assert process.returncode == expect, f"{arguments}\n{out}\n{err}"
    return out, err


def units(folder: Path) -> list[tuple[object, ...]]:
    """What is in the store of a run, finished or not: one line per picture, with the seconds its maps took."""
    try:
        with Store(folder) as store:
            asked = "SELECT picture, count(*), sum(seconds) FROM rows GROUP BY picture"
            return store.base.execute(asked).fetchall()
    except (FileNotFoundError, ValueError, sqlite3.Error):  # not yet begun
        return []


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("evaluation")
    (home / "model.py").write_text(MODEL)
    for folder in ("pictures", "outlines"):
        (home / folder).mkdir()
    rows, columns = np.mgrid[:64, :64]
    outline = np.where((rows - 30) ** 2 + (columns - 34) ** 2 < 300, 255, 0).astype(np.uint8)
    for name, pixels in {"chelsea": data.chelsea(), "coffee": data.coffee(), "astronaut": data.astronaut()}.items():
        for number in range(2):
            corner = 100 + 40 * number
            Image.fromarray(pixels[corner : corner + 64, corner : corner + 64]).save(
                home / "pictures" / f"{name}{number}.png"
            )
        Image.fromarray(outline).save(home / "outlines" / f"{name}0.png")
    (home / "outlines" / "chelsea0.xml").write_text("no picture")
    return home


@pytest.fixture(scope="module")
def table(workplace: Path) -> str:
    """The table of a run nobody disturbed."""
    out, err = finished(workplace, *ASKED, "--out", "whole")
    assert not err  # silent in pipes
    assert "-> whole/table.csv" in out
    return (workplace / "whole" / "table.csv").read_text()


def test_everything_is_there(workplace: Path, table: str) -> None:
    folder = workplace / "whole"
    wanted = {"table.csv", "table.parquet", "seconds.csv", "report.html", "report.md", "report.tex", "store.sqlite"}
    assert wanted <= {path.name for path in folder.iterdir()}
    assert table.count("\n") == 1 + 7 * (3 * 9 + 3 * 8)  # three pictures without outlines
    assert "half-deletion" in (folder / "report.md").read_text()
    assert r"\toprule" in (folder / "report.tex").read_text()
    page = (folder / "report.html").read_text()
    assert "<svg" in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", ""), "it needs nothing from elsewhere"


def test_the_words_that_look_into_a_run(command: Usu, workplace: Path, table: str) -> None:
    code, out, _ = command(workplace, "evaluate", "status", "whole")
    assert (code, out.splitlines()[0]) == (0, "all pictures: 6 of 6 pictures")
    code, out, _ = command(workplace, "evaluate", "check", "whole")
    assert (code, out) == (0, f"{table.count(chr(10)) - 1} rows, 0 problems\n")
    code, out, _ = command(workplace, "evaluate", "report", "whole")
    assert code == 0
    assert (workplace / "whole" / "table.csv").read_text() == table


@pytest.mark.parametrize("kills", [3, pytest.param(40, marks=pytest.mark.soak)])
def test_killed_again_and_again_it_is_the_same_table(workplace: Path, table: str, kills: int) -> None:
    dice, folder, number, inside = random.Random(0), workplace / f"killed-{kills}", 0, 0
    before: list[tuple[object, ...]] = []
    while number < kills:
        process = start(workplace, *ASKED, "--out", folder.name)
        if number % 5 == 0:
            time.sleep(dice.uniform(0, 3))  # anywhere, also before the first unit
        else:
            goal, patience = len(before) + 1, time.monotonic() + 120
            while len(units(folder)) < goal and process.poll() is None and time.monotonic() < patience:
                time.sleep(0.005)
            time.sleep(dice.uniform(0, 0.2))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        after = units(folder)
        assert set(before) <= set(after), "no finished unit again"
        before = after
        if process.returncode == 0:  # a fast machine was done before the kill: the next kills get a new run
            assert (folder / "table.csv").read_text() == table
            folder, before = folder.with_name(folder.name + "-again"), []
            continue
        assert process.returncode == -signal.SIGKILL
        number += 1
        inside += 0 < len(before) < 6
    assert inside >= kills // 2, "the kills must come in the middle of the work"
    finished(workplace, *ASKED, "--out", folder.name)
    assert (folder / "table.csv").read_text() == table
    assert set(before) <= set(units(folder)), "no finished unit again"


def test_another_model_under_the_same_name_is_refused(command: Usu, workplace: Path, table: str) -> None:
    other = workplace / "other"
    shutil.copytree(workplace, other, ignore=shutil.ignore_patterns("killed*", "interrupted"))
    (other / "model.py").write_text(MODEL.replace("manual_seed(0)", "manual_seed(1)"))
    code, _, err = command(other, *ASKED, "--out", "whole")
    assert code == 2
    assert "made with another model" in err
    assert (other / "whole" / "table.csv").read_text() == table


def test_an_upsampler_that_cannot_do_with_so_little_is_named(command: Usu, workplace: Path) -> None:
    code, _, err = command(
        workplace, "evaluate", "pictures/c*", "--model", "model.py:small", "--layer", "2", "--evaluations", "20",
        "--upsamplers", "bilinear,paper,cell", "--metrics", "mass-error", "--out", "little", "--quiet",
    )  # fmt: skip
    assert code == 1
    assert ", paper: `evaluations` must be at least" in err or ", paper and " in err
    assert err.count("\n") < 4, "pictures that fail alike share a line"
    with (workplace / "little" / "failures.csv").open(newline="") as file:
        failures = list(csv.DictReader(file))
    assert [one["what"].partition(", ")[2] for one in failures] == ["paper"] * 4
    assert all("Traceback" in one["traceback"] for one in failures)
    assert (workplace / "little" / "table.csv").read_text().count("\n") == 1 + 4 * 2


def test_interrupted_it_says_so_and_goes_on(workplace: Path, table: str) -> None:
    process = start(workplace, *ASKED, "--out", "interrupted")
    while not units(workplace / "interrupted") and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "every finished unit is kept in interrupted" in err
    for part in ("1/2", "2/2"):
        finished(workplace, *ASKED, "--out", "interrupted", "--part", part)
    assert (workplace / "interrupted" / "table.csv").read_text() == table


def test_the_matrix_of_fills_is_written(command: Usu, workplace: Path) -> None:
    fills = ("blur", "mean", "noise")
    code, _, err = command(
        workplace, "evaluate", "pictures/coffee0.png", "--model", "model.py:small", "--layer", "2", "--evaluations",
        "40", "--upsamplers", ",".join(f"cell:{fill}" for fill in fills), "--metrics",
        ",".join(f"half-deletion:{fill}" for fill in fills), "--out", "fills", "--quiet",
    )  # fmt: skip
    assert code == 0, err
    lines = (workplace / "fills" / "fills.csv").read_text().splitlines()
    assert [line.split(",")[:3] for line in lines[1:]] == [["cell", "half-deletion", fill] for fill in fills]


def test_an_unreadable_picture_is_named_and_the_others_are_measured(command: Usu, workplace: Path) -> None:
    (workplace / "mixed").mkdir()
    (workplace / "mixed" / "broken.png").write_bytes(b"not a picture")
    Image.fromarray(data.coffee()[:64, :64]).save(workplace / "mixed" / "coffee.png")
    code, _, err = command(
        workplace, "evaluate", "mixed", "--model", "model.py:small", "--layer", "2", "--upsamplers", "nearest,bilinear",
        "--metrics", "mass-error", "--out", "mixed-out",
    )  # fmt: skip
    assert code == 1
    assert "broken" in err
    assert (workplace / "mixed-out" / "table.csv").read_text().count("\n") == 3


PLAN = """
title = "Two networks"
evaluations = 40
upsamplers = ["bilinear", "cell"]
metrics = ["half-deletion", "mass-error", "seed-correlation"]
sources = ["gradcam", "own.py:flat"]

[models.small]
load = "model.py:small"
layer = "2"

[models.again]
load = "model.py:small"
layer = "2"
datasets = ["boxed"]
limit = 1

[datasets.photographs]
path = "${PLACE}/pictures"
limit = 2

[datasets.boxed]
path = "boxed"
truth = "boxes"
"""
OWN = """
import torch
from usu import CoarseMap


def flat(model, image, target, layer):
    return CoarseMap(torch.ones(1, 3, 3), "", "a user's own", (target,), 0)
"""


def test_a_plan_is_a_grid(command: Usu, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (workplace / "plan.toml").write_text(PLAN)
    (workplace / "own.py").write_text(OWN)
    (workplace / "boxed").mkdir()
    for name in ("a", "b"):
        shutil.copy(workplace / "pictures" / "coffee0.png", workplace / "boxed" / f"{name}.png")
    (workplace / "boxed" / "labels.csv").write_text("file,class,x,y,width,height\na.png,1,4,5,20,30\nb.png,2,0,0,9,9\n")
    code, _, err = command(workplace, "evaluate", "plan.toml", "--dry-run")
    assert (code, "PLACE" in err) == (2, True)
    monkeypatch.setenv("PLACE", str(workplace))
    code, out, _ = command(workplace, "evaluate", "plan.toml", "--dry-run", "--out", "planned")
    assert code == 0
    assert out.startswith("5 units, 60 rows, at most ")
    assert "small: 4 units, at most " in out
    assert not (workplace / "planned").exists()
    assert command(workplace, "evaluate", "plan.toml", "--out", "planned", "--quiet", "--part", "1/2")[0] == 0
    assert "photographs, small: 1 of 2 pictures" in command(workplace, "evaluate", "status", "planned")[1]
    code, out, err = command(workplace, "evaluate", "plan.toml", "--out", "planned", "--quiet")
    assert (code, out) == (0, "60 rows -> planned/table.csv\n"), err
    with (workplace / "planned" / "table.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert {(one["dataset"], one["model"]) for one in lines} == {
        ("photographs", "small"), ("boxed", "small"), ("boxed", "again")
    }  # fmt: skip
    assert {one["source"] for one in lines} == {"gradcam", "flat"}
    assert {one["picture"] for one in lines if one["model"] == "again"} == {"a"}
    # the same model under another name: the same numbers
    own = [{**one, "model": ""} for one in lines if one["dataset"] == "boxed" and one["picture"] == "a"]
    assert all(own.count(one) == 2 for one in own)
    code, out, _ = command(workplace, "evaluate", "status", "planned")
    assert "boxed, again: 1 of 1 pictures" in out


RAISING = """

class Raising(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = small()[0]

    def forward(self, x):
        raise ArithmeticError("the cable is loose")


def raising():
    return Raising().eval(), small()[1]
"""


def test_a_model_that_always_raises_is_said_and_costs_the_code(command: Usu, workplace: Path) -> None:
    (workplace / "raising.py").write_text(MODEL + RAISING)
    code, out, err = command(
        workplace, "evaluate", "pictures/coffee0.png", "--model", "raising.py:raising", "--layer", "inner.2",
        "--upsamplers", "nearest,bilinear", "--metrics", "mass-error", "--out", "raised", "--quiet",
    )  # fmt: skip
    assert (code, out) == (1, "0 rows -> raised/table.csv\n")
    assert "the cable is loose" in err
    with Store(workplace / "raised") as store:
        (failure,) = store.failures()
    assert "raise ArithmeticError" in failure.traceback
