"""``usu evaluate`` as a person types it: tables and reports, and a run that is killed again and again."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from skimage import data

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


def rows(folder: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in folder.glob("rows-*.jsonl"))


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
    wanted = {"table.csv", "table.parquet", "seconds.csv", "report.txt", "report.md", "report.tex", "report.png"}
    assert wanted | {"report.pdf", "run.json"} <= {path.name for path in folder.iterdir()}
    assert table.count("\n") == 1 + 7 * (3 * 9 + 3 * 8)  # three pictures without outlines
    assert "half-deletion" in (folder / "report.txt").read_text()
    assert r"\toprule" in (folder / "report.tex").read_text()
    with Image.open(folder / "report.png") as figure:
        assert min(figure.size) > 300
    assert json.loads((folder / "run.json").read_text())["seed"] == 0


@pytest.mark.parametrize("kills", [5, pytest.param(40, marks=pytest.mark.soak)])
def test_killed_again_and_again_it_is_the_same_table(workplace: Path, table: str, kills: int) -> None:
    dice, folder, number, inside = random.Random(0), workplace / f"killed-{kills}", 0, 0
    while number < kills:
        process = start(workplace, *ASKED, "--out", folder.name)
        if number % 5 == 0:
            time.sleep(dice.uniform(0, 3))  # anywhere, also before the first row
        else:
            goal, patience = rows(folder) + dice.randrange(12), time.monotonic() + 60
            while rows(folder) < goal and process.poll() is None and time.monotonic() < patience:
                time.sleep(0.001)
            time.sleep(dice.uniform(0, 0.05))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        if process.returncode == 0:  # a fast machine was done before the kill: the next kills get a new run
            assert_same(folder, table)
            folder = folder.with_name(folder.name + "-again")
            continue
        assert process.returncode == -signal.SIGKILL
        number += 1
        inside += 0 < rows(folder) < table.count("\n") - 1
    assert inside >= kills // 2, "the kills must come in the middle of the work"
    before = {line for path in folder.glob("rows-*.jsonl") for line in path.read_text().splitlines() if line}
    finished(workplace, *ASKED, "--out", folder.name)
    assert_same(folder, table)
    after = set((folder / "rows-1-of-1.jsonl").read_text().splitlines())
    assert len(before & after) >= len(before) - 1, "no finished row again"


def test_another_model_under_the_same_name_is_refused(command: Usu, workplace: Path, table: str) -> None:
    other = workplace / "other"
    shutil.copytree(workplace, other, ignore=shutil.ignore_patterns("killed*", "interrupted"))
    (other / "model.py").write_text(MODEL.replace("manual_seed(0)", "manual_seed(1)"))
    code, _, err = command(other, *ASKED, "--out", "whole")
    assert code == 2
    assert "made with another model." in err
    assert (other / "whole" / "table.csv").read_text() == table


def test_an_upsampler_that_cannot_do_with_so_little_is_named(command: Usu, workplace: Path) -> None:
    code, _, err = command(
        workplace, "evaluate", "pictures/c*", "--model", "model.py:small", "--layer", "2", "--evaluations", "20",
        "--upsamplers", "bilinear,paper,cell", "--metrics", "mass-error", "--out", "little", "--quiet",
    )  # fmt: skip
    assert code == 1
    assert ", paper: `evaluations` must be at least" in err or ", paper and " in err
    assert err.count("\n") < 4, "pictures that fail alike share a line"
    failures = (workplace / "little" / "failures.csv").read_text().splitlines()
    assert [line.split(",")[1] for line in failures[1:]] == [' paper"'] * 4
    assert (workplace / "little" / "table.csv").read_text().count("\n") == 1 + 4 * 2


def assert_same(folder: Path, table: str) -> None:
    assert sorted((folder / "table.csv").read_text().splitlines()) == sorted(table.splitlines())
    journal = (folder / "rows-1-of-1.jsonl").read_text().splitlines()
    assert len(journal) == table.count("\n") - 1, "no row twice"


def test_interrupted_it_says_so_and_goes_on(workplace: Path, table: str) -> None:
    process = start(workplace, *ASKED, "--out", "interrupted")
    while rows(workplace / "interrupted") < 3 and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "every finished row is kept in interrupted" in err
    for part in ("1/2", "2/2"):
        out, _ = finished(workplace, *ASKED, "--out", "interrupted", "--part", part)
        assert ("still to come" in out) == (part == "1/2")
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
