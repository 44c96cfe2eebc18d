"""The real command, real pictures, the real network: what a person types and what they get.

Where a process of its own proves nothing more, the command runs inside this one (`command`): starting it takes longer
than its work.
"""

from __future__ import annotations

import json
import os
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

FEW = ("--evaluations", "24", "--quiet")
Usu = Callable[..., tuple[int, str, str]]


def usu(*arguments: object, cwd: Path, expect: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "usu.cli", *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=300, env=environment())
    assert done.returncode == expect, f"{command}\n{done.stdout}\n{done.stderr}"
    return done


def arrays(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as stored:
        return dict(stored)


def size(path: Path) -> tuple[int, int]:
    with Image.open(path) as picture:
        return picture.size


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "100"}


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photographs")
    Image.fromarray(data.chelsea()).save(folder / "chelsea.png")
    Image.fromarray(data.coffee()).save(folder / "coffee.jpg", quality=92)
    return folder


@pytest.fixture(scope="module")
def explained(photographs: Path) -> Path:
    """One run that several tests look at."""
    done = usu("explain", "chelsea.png", "coffee.jpg", "--out", "out", "--json", *FEW, cwd=photographs)
    (photographs / "answer.json").write_text(done.stdout)
    assert not done.stderr  # silent in pipes
    return photographs


def test_classes_masses_and_files(explained: Path) -> None:
    answer = json.loads((explained / "answer.json").read_text())
    assert answer["failed"] == []
    cat, cup = answer["explained"]
    assert "cat" in cat["label"]
    assert any(word in cup["label"] for word in ("espresso", "cup"))
    for result in (cat, cup):
        folder = explained / result["folder"]
        assert sorted(p.name for p in folder.iterdir()) == ["manifest.json", "maps.npz", "overlay.png", "panel.png"]
        maps = arrays(folder / "maps.npz")
        assert maps["pixel_map"].shape == (224, 224)
        mass = maps["coarse"].sum() * (224 / 7) ** 2
        assert maps["pixel_map"].sum() == pytest.approx(mass, rel=1e-9)
        assert result["evaluations"] == 24
        assert result["mass_error"] < 1e-9
        assert result["source"]["layer"] == "_bn1"
        assert result["settings"]["evaluations"] == 24
        assert result["versions"]["torch"]
    assert size(explained / "out/chelsea/overlay.png") == (451, 300)  # the photograph's own size
    assert size(explained / "out/coffee/overlay.png") == (600, 400)
    assert size(explained / "out/coffee/panel.png")[0] > 1000


def test_a_second_run_goes_on_where_the_first_was(command: Usu, explained: Path) -> None:
    before = (explained / "out/chelsea/manifest.json").stat().st_mtime_ns
    code, out, err = command(explained, "explain", "chelsea.png", "coffee.jpg", "--out", "out", *FEW)
    assert code == 0, err
    assert (explained / "out/chelsea/manifest.json").stat().st_mtime_ns == before
    assert "-> out/chelsea" in out
    assert sorted(p.name for p in (explained / "out").iterdir()) == ["chelsea", "coffee"]


def test_another_request_gets_a_folder_of_its_own(command: Usu, explained: Path) -> None:
    for name in ("tabby", "lynx"):
        asked = ("--out", "out2", "--preset", "fast", "--target", name, "--quiet")
        code, out, err = command(explained, "explain", "chelsea.png", *asked)
        assert code == 0, err
        assert name in out
    assert sorted(p.name for p in (explained / "out2").iterdir()) == ["chelsea", "chelsea-2"]
    maps = arrays(explained / "out2/chelsea/maps.npz")
    total = maps["coarse"].sum() * 1024
    np.testing.assert_allclose(maps["pixel_map"].sum(), total, rtol=1e-12)  # `fast` keeps the total alone
    cells = maps["pixel_map"].reshape(7, 32, 7, 32).sum((1, 3))
    assert np.abs(cells - maps["coarse"] * 1024).max() > 0.01 * total
    assert maps["coarse"].min() >= 0
    assert maps["pixel_map"].min() >= 0


def test_bad_pictures_are_reported_and_the_good_ones_kept(command: Usu, explained: Path) -> None:
    mixed = explained / "mixed"
    mixed.mkdir()
    (mixed / "a_text.jpg").write_text("not a picture")
    whole = (explained / "coffee.jpg").read_bytes()
    (mixed / "b_truncated.jpg").write_bytes(whole[: len(whole) // 3])
    Image.fromarray(data.camera()).save(mixed / "c_grey.png")
    Image.fromarray(np.dstack([data.chelsea(), np.full((300, 451), 128, np.uint8)])).save(mixed / "d_rgba.png")
    Image.new("RGB", (1, 1), "red").save(mixed / "e_pixel.png")
    Image.fromarray(np.tile(data.chelsea()[:17], (1, 9, 1))[:, :4001]).save(mixed / "f_thin.png")
    upright = Image.fromarray(data.chelsea())
    exif = upright.getexif()
    exif[0x0112] = 6
    upright.rotate(90, expand=True).save(mixed / "g_rotated.jpg", exif=exif, quality=95)
    code, _, err = command(explained, "explain", "mixed", "--out", "out3", "--preset", "fast", "--quiet")
    assert code == 1
    assert sorted(p.name for p in (explained / "out3").iterdir()) == [
        "c_grey",
        "d_rgba",
        "e_pixel",
        "f_thin",
        "g_rotated",
    ]
    assert err.count("\n") == 2
    assert "a_text.jpg cannot be read" in err
    assert "b_truncated.jpg cannot be read" in err
    assert size(explained / "out3/g_rotated/overlay.png") == (451, 300)
    assert size(explained / "out3/f_thin/overlay.png") == (4001, 17)
    assert "cat" in json.loads((explained / "out3/g_rotated/manifest.json").read_text())["label"]


def test_a_wrong_request_is_one_sentence_and_code_two(photographs: Path) -> None:
    done = usu("explain", "chelsea.png", "--target", "1000", "--out", "never", "--quiet", cwd=photographs, expect=2)
    assert "`target` must be a class index from 0 to 999; got 1000." in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (photographs / "never").exists()


def test_interrupting_keeps_what_is_finished(photographs: Path) -> None:
    for index in range(6):
        Image.fromarray(data.chelsea()).resize((300 + index, 300)).save(photographs / f"long_{index}.png")
    command = [sys.executable, "-m", "usu.cli", "explain", "long_*.png", "--out", "long", "--evaluations", "60"]
    process = subprocess.Popen(
        command,
        cwd=photographs,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
        # a test run in the background ignores SIGINT, and so would its children
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 200
    # when the second is there the first has been noted
    while not (photographs / "long/long_1/manifest.json").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    output, complaint = process.communicate(timeout=100)
    assert process.returncode == 130, complaint
    assert "interrupted; " in complaint
    assert "Traceback" not in complaint
    kept = sorted(p.name for p in (photographs / "long").iterdir())
    assert kept
    assert len(kept) < 6
    for name in kept:  # whole folders, no drafts
        assert (photographs / "long" / name / "manifest.json").exists()
    assert "long_0" in output


def test_own_model_and_own_map(command: Usu, photographs: Path) -> None:
    (photographs / "mine.py").write_text(
        "import torch\n"
        "from torch import nn\n"
        "def bright():\n"
        "    model = nn.Sequential(nn.Conv2d(3, 2, 3, stride=8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())\n"
        "    torch.nn.init.constant_(model[0].weight, 0.1)\n"
        "    prepare = lambda pixels: torch.from_numpy(pixels[:96, :128].copy()).permute(2, 0, 1).float() / 255\n"
        "    return model, prepare\n"
    )
    mine = ("explain", "chelsea.png", "--model", "mine.py:bright", *FEW)
    code, out, err = command(photographs, *mine, "--out", "mine", "--json")
    assert code == 0, err
    (result,) = json.loads(out)["explained"]
    assert result["label"].startswith("class ")
    assert arrays(photographs / "mine/chelsea/maps.npz")["pixel_map"].shape == (96, 128)
    np.save(photographs / "map.npy", np.array([[0.0, 1.0], [2.0, 3.0]]))
    code, _, err = command(photographs, *mine, "--source", "map.npy", "--preset", "cell", "--out", "own")
    assert code == 0, err
    maps = arrays(photographs / "own/chelsea/maps.npz")
    cells = maps["pixel_map"].reshape(2, 48, 2, 64).sum((1, 3))
    wanted = np.array([[0, 1], [2, 3]]) * 48 * 64
    np.testing.assert_allclose(cells, wanted, rtol=1e-12, atol=1e-12 * wanted.mean())  # a trace where there is nothing


def test_doctor(command: Usu, photographs: Path) -> None:
    found = json.loads(command(photographs, "doctor", "--json")[1])
    assert found["required"]["torch"].startswith("2.")
    assert found["extras"]["plot"]["version"]
    assert found["embedded network"] == "efficientnet_lite0, 1000 classes"


def test_audit_of_ones_own_upsampler(command: Usu, photographs: Path) -> None:
    (photographs / "ours.py").write_text(
        "import usu\n"
        "def leaky(coarse, picture):\n"
        "    return 0.999 * usu.redistribute(coarse, picture)\n"
        "class Promising:\n"
        "    name = 'promising'\n"
        "    guarantees = frozenset({'D1'})\n"
        "    def __call__(self, coarse, picture):\n"
        "        return leaky(coarse, picture)\n"
    )
    code, out, _ = command(photographs, "audit", "ours:leaky", "--trials", "5")
    assert code == 0
    assert "leaky: every promise kept" in out  # it promised nothing
    code, out, _ = command(photographs, "audit", "ours:Promising", "--trials", "5", "--json", "--figure", "drawn")
    assert code == 1
    assert json.loads(out)[0]["findings"]["D1"]["verdict"] == "violated"
    assert (photographs / "drawn/audit_promising.png").exists()


def test_version_and_help(command: Usu, photographs: Path) -> None:
    assert command(photographs, "--version")[1].startswith("usu-xai ")
    assert all(name in command(photographs, "--help")[1] for name in ("explain", "compare", "audit", "doctor"))
