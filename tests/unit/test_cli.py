"""The command line, called inside this process: what is refused and how, and what counts as the same question."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from skimage import data
from torch import nn

import usu
from usu.bench.table import Row, Table, read_table
from usu.cli import run

MODEL = """
import torch
from torch import nn


def small():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 5, 4, 2), nn.ReLU(), nn.Conv2d(8, 8, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(8, 5),
    )
    return net.eval(), lambda pixels: torch.from_numpy(pixels[:64, :64].copy()).permute(2, 0, 1).float() / 255
"""
SMALL = ("--model", "model.py:small", "--layer", "2", "--quiet")
FEW = (*SMALL, "--evaluations", "12")

Answer = tuple[int, str, str]
Usu = Callable[..., Answer]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that do not change."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "model.py").write_text(MODEL)
    Image.fromarray(data.chelsea()[100:164, 100:164]).save(folder / "cat.png")
    (folder / "outlines").mkdir()
    for name in ("outlines", "twins"):
        (folder / name).mkdir(exist_ok=True)
        Image.fromarray(data.chelsea()[100:164, 100:164]).save(folder / name / "cat.png")
    (folder / "wrong.py").write_text("def net(:\n")
    (folder / "raising.py").write_text("def net():\n    raise KeyError('weights')\n")
    (folder / "junk.onnx").write_bytes(b"junk")
    (folder / "empty.onnx").write_bytes(b"")
    np.save(folder / "complex.npy", np.ones((2, 2), complex))
    np.save(folder / "objects.npy", np.array([[None, {}]]), allow_pickle=True)
    np.save(folder / "cube.npy", np.ones((2, 2, 2)))
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (10000000, 1000000), }"
    size = (len(header) + 1 + 10 + 63) // 64 * 64 - 10
    start = b"\x93NUMPY\x01\x00" + size.to_bytes(2, "little")
    (folder / "huge.npy").write_bytes(start + header.ljust(size - 1) + b"\n" + b"\0" * 64)
    state = nn.Conv2d(3, 8, 5, 4, 2).state_dict()
    torch.save({0: torch.zeros(1)}, folder / "numbered.pth")
    torch.save({key: value.long() for key, value in state.items()}, folder / "whole.pth")
    (folder / "conv.py").write_text("from torch import nn\ndef net():\n    return nn.Conv2d(3, 8, 5, 4, 2)\n")
    return folder


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("explain", "missing.png"), "missing.png"),
        (("explain", "cat.png", "--preset", "best"), "`preset`"),
        (("explain", "cat.png", "--budget", "big"), "`budget`"),
        (("explain", "cat.png", "--layer", "_bn7"), "_bn7"),
        (("explain", "cat.png", "--target", "unicorn"), "`target`"),
        (("explain", "cat.png", "--temperature", "0"), "`temperature`"),
        (("explain", "cat.png", "--evaluations", "0"), "`evaluations`"),
        (("explain", "cat.png", "--seed", "1" + "0" * 23), "`seed`"),
        (("explain", "cat.png", "--device", "nope"), "`device` .*'nope'"),
        (("explain", "cat.png", "--device", "meta"), "`device` .*'meta'"),
        (("explain", "cat.png", "--model", "nothing.onnx"), "nothing.onnx"),
        (("explain", "cat.png", "--model", "junk.onnx"), "junk.onnx"),
        (("explain", "cat.png", "--model", "empty.onnx"), "empty.onnx"),
        (("explain", "cat.png", "--model", "wrong.py:net"), r"wrong\.py .*SyntaxError: .*line 1"),
        (("explain", "cat.png", "--model", "raising.py:net"), r"raising\.py:net .*KeyError: 'weights'"),
        (("explain", "cat.png", "--model", "conv.py:net", "--weights", "numbered.pth"), "`weights`.*without names"),
        (("explain", "cat.png", "--model", "conv.py:net", "--weights", "whole.pth"), "`weights`.*such as bias"),
        (("explain", "cat.png", "--out", "cat.png"), "`--out` .*cat.png, which is a file"),
        (("explain", "cat.png", "--out", "cat.png/deeper", "--layer", "2", "--preset", "fast"), "cat.png"),
        (("evaluate", "cat.png", "--out", "cat.png", "--layer", "2"), "cat.png"),
        (("explain", "cat.png", "--source", "cat.png"), "`--source` .*'cat.png'"),
        (("explain", "cat.png", "--source", "absent.npy"), "`--source` .*absent.npy"),
        (("explain", "cat.png", "--source", "huge.npy"), "`--source` .*huge.npy"),
        (("explain", "cat.png", "--source", "complex.npy"), "`--source` .*complex128"),
        (("explain", "cat.png", "--source", "objects.npy"), "`--source` .*objects.npy"),
        (("explain", "cat.png", "--source", "cube.npy"), "`--source` .*2, 2, 2"),
        (("compare", "cat.png", "--evaluations", "0"), "`evaluations`"),
        (("evaluate", "cat.png", "--upsamplers", "bilinaer"), "`upsamplers` .*'bilinaer'"),
        (("evaluate", "cat.png", "--metrics", "faith"), "`metrics` .*'faith'"),
        (("evaluate", "cat.png", "--truth", "nowhere"), "`truth` .*nowhere"),
        (("evaluate", "cat.png", "--part", "3/2"), "`--part`"),
        (("evaluate", "cat.png", "--limit", "0"), "`limit`"),
        (("evaluate", "cat.png", "--against", "bilinaer"), "`--against` .*'bilinaer'"),
        (("evaluate", "cat.png", "--evaluations", "0"), "`evaluations`"),
        (("evaluate", "cat.png", "--seed", "-1"), "`seed`"),
        (("evaluate", "cat.png", "--forward", "junk.onnx"), "junk.onnx"),
        (("evaluate", "cat.png", "--forward", "warp"), "`forward` .*'warp'"),
        (("evaluate", "cat.png", "--source", "gradcma"), "`source` .*'gradcma'"),
        (("evaluate", "cat.png", "--engine", "cloud"), "`--engine` .*'cloud'"),
        (("evaluate", "cat.png", "--workers", "0"), "`--workers`"),
        (("evaluate", "cat.png", "--address", "auto"), "`--address`"),
        (("evaluate", "status", "nowhere"), "`run` .*nowhere"),
        (("evaluate", "nowhere.toml"), "nowhere.toml"),
        (("evaluate", "cat.png", "twins/cat.png", "--truth", "outlines"), "`truth`"),
    ],
)
def test_a_wrong_request_is_one_sentence_and_code_two(
    command: Usu, home: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    more = () if "--model" in arguments else ("--model", "model.py:small")
    more = more if "--out" in arguments else (*more, "--out", "never")
    code, out, err = command(home, *arguments, *more, "--quiet")
    assert (code, out) == (2, "")
    assert re.fullmatch(f"usu: .*{sentence}.*\n", err)
    assert not (home / "never").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_is_not_there_is_named(command: Usu, home: Path) -> None:
    code, _, err = command(home, "explain", "cat.png", *SMALL, "--device", "cuda")
    assert code == 2
    assert re.fullmatch("usu: `device` .*'cuda'.*\n", err)


@pytest.mark.parametrize("line", ["explain", "compare"])
def test_a_missing_matplotlib_is_said_before_the_work(
    command: Usu, home: Path, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr("usu.models.pictures._upright", lambda *given: pytest.fail("the work has begun"))
    code, _, err = command(home, line, "cat.png", *SMALL, "--out", "never")
    assert code == 2
    assert "usu-xai[plot]" in err


@pytest.fixture
def place(home: Path, tmp_path: Path) -> Path:
    """A copy of the files that a test may change."""
    for name in ("model.py", "cat.png"):
        (tmp_path / name).write_bytes((home / name).read_bytes())
    np.save(tmp_path / "map.npy", np.array([[0.0, 1.0], [2.0, 3.0]]))
    return tmp_path


def folders(place: Path) -> list[str]:
    return sorted(path.name for path in (place / "out").iterdir())


def test_changed_contents_are_another_question(command: Usu, place: Path) -> None:
    state = {}
    exec(MODEL, state)
    torch.save(state["small"]()[0].state_dict(), place / "w.pth")
    asked = ("explain", "cat.png", *FEW, "--source", "map.npy", "--weights", "w.pth", "--json")
    asked = (*(part for part in asked if part not in ("--layer", "2")), "--out", "out")

    def answer() -> str:
        code, out, err = command(place, *asked)
        assert code == 0, err
        return str(json.loads(out)["explained"][0]["folder"])

    assert [answer(), answer()] == ["out/cat"] * 2, "the same question"
    Image.fromarray(data.coffee()[100:164, 100:164]).save(place / "cat.png")
    assert [answer(), answer()] == ["out/cat-2"] * 2, "another picture of the same name"
    np.save(place / "map.npy", np.array([[0.0, 1.0], [2.0, 4.0]]))
    assert [answer(), answer()] == ["out/cat-3"] * 2, "another coarse map"
    weights = torch.load(place / "w.pth", weights_only=True)
    torch.save(weights | {"6.bias": weights["6.bias"] + 1}, place / "w.pth")
    assert [answer(), answer()] == ["out/cat-4"] * 2, "other weights"
    (place / "model.py").write_text(MODEL.replace("[:64, :64]", "[:60, :64]"))
    assert [answer(), answer()] == ["out/cat-5"] * 2, "the same tensors, prepared in another way"


@pytest.mark.parametrize("damage", ["manifest", "a list", "maps"])
def test_a_damaged_result_is_not_an_answer(command: Usu, place: Path, damage: str) -> None:
    asked = ("explain", "cat.png", *FEW, "--preset", "fast", "--out", "out")
    assert command(place, *asked)[0] == 0
    if damage == "maps":
        maps = place / "out/cat/maps.npz"
        maps.write_bytes(maps.read_bytes()[:-100])
    else:
        (place / "out/cat/manifest.json").write_text('{"a":' if damage == "manifest" else "[]")
    code, out, _ = command(place, *asked)
    assert code == 0
    assert "-> out/cat-2" in out
    assert folders(place) == ["cat", "cat-2"]


def test_a_name_taken_meanwhile_costs_no_work(
    command: Usu, place: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Another process finishes first: with the same answer, then with another one."""
    asked = ("explain", "cat.png", *FEW, "--preset", "fast", "--out", "out")
    rename = Path.rename

    def late(mine: Callable[[Path], object]) -> None:
        def move(self: Path, other: Path) -> Path:
            monkeypatch.setattr(Path, "rename", rename)
            mine(other)
            return rename(self, other)

        monkeypatch.setattr(Path, "rename", move)

    late(lambda folder: (folder.mkdir(), (folder / "thesis.txt").write_text("ten years")))
    code, out, err = command(place, *asked)
    assert code == 0, err
    assert "-> out/cat-2" in out
    assert folders(place) == ["cat", "cat-2"], "and no draft"
    kept = tmp_path_factory.mktemp("kept") / "cat"
    (place / "out/cat-2").rename(kept)
    late(lambda folder: kept.rename(folder))
    code, out, err = command(place, *asked)
    assert code == 0, err
    assert "-> out/cat-2" in out
    assert folders(place) == ["cat", "cat-2"]


@pytest.mark.soak
def test_three_at_once_in_one_folder(place: Path) -> None:
    line = [sys.executable, "-m", "usu.cli", "explain", "cat.png", *FEW, "--preset", "fast", "--out", "out"]
    running = [subprocess.Popen(line, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(3)]
    for process in running:
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
        assert b"-> out/cat\n" in out
    assert folders(place) == ["cat"]


def test_names_reach_the_terminal_without_their_escape_codes(command: Usu, place: Path) -> None:
    evil = "\x1b[2J\x9b31m\n[red].png"
    (place / "cat.png").rename(place / evil)
    code, out, err = command(place, "explain", place, "absent\x1b[2J.png", *FEW)
    assert code == 2
    assert "\x1b" not in err
    assert "absent\\x1b[2J.png" in err
    code, out, err = command(place, "explain", place, *FEW, "--preset", "fast")
    assert code == 0, err
    assert r"\x1b[2J\x9b31m\n[red].png: class" in out
    assert not {"\x1b", "\x9b"} & set(out + err)
    assert out.count("\n") == 1


def test_a_name_is_no_formula_in_a_table(tmp_path: Path) -> None:
    names = ["=HYPERLINK(1)", "+1", "-1", "@x", "'quoted", "cat"]
    table = Table(tuple(Row(name, 0, "bilinear", "iou", 0.5, 0, 0) for name in names), {})
    cells = [line[0] for line in csv.reader(table.csv().splitlines()[1:])]
    assert cells == ["'=HYPERLINK(1)", "'+1", "'-1", "'@x", "''quoted", "cat"]
    (tmp_path / "table.csv").write_text(table.csv())
    assert [row.picture for row in read_table(tmp_path / "table.csv").rows] == names


def test_compare_keeps_to_the_budget_and_writes_what_was_asked(command: Usu, place: Path) -> None:
    code, out, err = command(place, "compare", "cat.png", *SMALL, "--evaluations", "16", "--out", "cmp1")
    assert code == 0, err
    lines = {line[:20].strip(): line for line in out.splitlines()}
    assert "moved 0.0% of the mass" in lines["nearest"]
    assert "moved 0.0% of the mass" not in lines["bilinear"]
    spent = {name: int(re.search(r"(\d+) evaluations", line)[1]) for name, line in lines.items() if ";" in line}
    assert {name: spent[name] for name in ("nearest", "USU fast", "USU cell")} == {
        "nearest": 0, "USU fast": 0, "USU cell": 16,
    }  # fmt: skip
    assert max(spent.values()) == 16
    assert "parts" in lines["USU paper"]
    assert all(float(share) <= 100 for share in re.findall(r"moved ([\d.]+)%", out))
    with Image.open(place / "cmp1") as figure:
        assert figure.format == "PNG"
    assert not (place / "cmp1.png").exists()
    for link, target in (("cmp1", None), ("link.png", "nowhere.png")):
        if target is not None:
            (place / link).symlink_to(place / target)
        code, _, err = command(place, "compare", "cat.png", *SMALL, "--out", link)
        assert code == 2
        assert "`--out` must not exist yet" in err
    assert not (place / "nowhere.png").exists()


def test_compare_with_too_little_says_why(command: Usu, place: Path) -> None:
    code, out, err = command(place, "compare", "cat.png", *SMALL, "--evaluations", "1", "--out", "cmp.pdf")
    assert code == 0, err
    assert re.search("USU paper +`evaluations` must be at least", out)
    assert re.search("USU fast +moved .* 0 evaluations", out)
    assert (place / "cmp.pdf").read_bytes().startswith(b"%PDF")


def test_sanity_tells_what_is_left_when_the_weights_are_shuffled(command: Usu, place: Path) -> None:
    asked = ("explain", "cat.png", *SMALL, "--preset", "fast", "--target", "3", "--sanity")
    code, out, err = command(place, *asked, "--json")
    assert code == 0, err
    (result,) = json.loads(out)["explained"]
    state = {}
    exec(MODEL, state)
    net, prepare = state["small"]()
    wanted = usu.sanity(net, place / "cat.png", 3, layer="2", preset="fast", prepare=prepare)
    assert result["sanity"] == {"passed": wanted.passed, "sentence": wanted.sentence, "trials": wanted.rows()}
    assert result["sanity"]["trials"][-1]["name"] == "all layers shuffled"
    code, out, _ = command(place, *asked)
    assert code == 0, "the map is there already; what it is worth is asked again"
    assert f"  {result['sanity']['sentence']}\n" in out
    code, _, err = command(place, "explain", "cat.png", "--model", "model.py:small", "--source", "map.npy", "--sanity")
    assert (code, "`--source` must be a name with --sanity" in err) == (1, True)
    assert "sanity" not in json.loads(command(place, *asked[:-1], "--json")[1])["explained"][0]


def test_the_likeliest_classes(command: Usu, place: Path) -> None:
    code, out, err = command(place, "explain", "cat.png", *FEW, "--top", "3", "--json", "--out", "out")
    assert code == 0, err
    (result,) = json.loads(out)["explained"]
    state = {}
    exec(MODEL, state)
    net, prepare = state["small"]()
    logits = net(prepare(np.asarray(Image.open(place / "cat.png")))[None])[0]
    assert result["targets"] == logits.topk(3).indices.tolist()
    assert result["probabilities"] == pytest.approx(logits.softmax(0).topk(3).values.tolist())
    assert len(result["labels"]) == 3
    with np.load(place / "out" / "cat" / "maps.npz") as maps:
        assert maps["pixel_map"].shape == (3, 64, 64)
    assert command(place, "explain", "cat.png", *FEW, "--top", "2", "--out", "out")[0] == 0
    assert folders(place) == ["cat", "cat-2"], "another question"
    code, _, err = command(place, "explain", "cat.png", *FEW, "--top", "0", "--out", "never")
    assert (code, "`top`" in err) == (2, True)


def test_explain_and_compare_count_alike(command: Usu, place: Path) -> None:
    _, out, _ = command(place, "explain", "cat.png", *SMALL, "--preset", "fast", "--json")
    (result,) = json.loads(out)["explained"]
    assert (result["evaluations"], result["source"]["evaluations"]) == (0, 1)


@pytest.mark.parametrize(
    "change",
    [{"temperature": 0.7}, {"depth": 4}, {"evaluations": 33}, {"seed": 9}, {"engine": "auto"}, {"budget": "iwmr"}],
    ids=lambda change: next(iter(change)),
)
def test_every_option_reaches_the_settings(change: dict[str, Any]) -> None:
    assert run.settings_from("paper", **change) == replace(usu.PRESETS["paper"], **change)
    assert run.settings_from("paper") == usu.PRESETS["paper"]


def test_doctor_shows_what_to_type(command: Usu, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from usu.cli import doctor

    known = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: None if name == "captum" else known(name))
    told = {"devices": {"cpu": "1 core"}, "torchvision": None, "embedded network": "yes"}
    monkeypatch.setattr(doctor, "_told", lambda: told)
    _, out, _ = command(home, "doctor")
    assert "pip install 'usu-xai[captum]'" in out
    assert "cpu" in out


def test_an_upsampler_that_cannot_be_imported_is_named(command: Usu, home: Path) -> None:
    code, _, err = command(home, "audit", "nowhere:nothing")
    assert code == 2
    assert re.fullmatch("usu: `upsampler` .*nowhere:nothing.*\n", err)


def test_an_interruption_while_torch_is_loaded_ends_at_once(place: Path) -> None:
    """An exception raised inside torch's native code would end the process with a message of C++."""
    program = f"""
import os, signal, sys
class Native:
    def find_spec(self, name, path=None, target=None):
        if name == "torch._C":
            try:
                os.kill(os.getpid(), signal.SIGINT)
                for _ in range(1000): pass
            except KeyboardInterrupt:
                os.abort()
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Native())
sys.argv = ["usu", "explain", "cat.png", *{FEW!r}]
from usu.cli import main
main()
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=place, capture_output=True, text=True, check=False)
    assert done.returncode == 130
    assert re.fullmatch("usu: interrupted; .*\n", done.stderr)


@pytest.mark.parametrize("where", ["usu.cli.explain", "usu.pipeline"])
def test_an_interruption_while_modules_are_loaded_is_one_sentence(place: Path, where: str) -> None:
    program = f"""
import sys
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == {where!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Slow())
sys.argv = ["usu", "explain", "cat.png", *{FEW!r}]
from usu.cli import main
main()
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=place, capture_output=True, text=True, check=False)
    assert done.returncode == 130
    assert re.fullmatch("usu: interrupted; .*\n", done.stderr)


@pytest.mark.parametrize("times", [1, 2])
def test_an_interruption_keeps_the_map_as_it_stands_and_a_second_one_does_not(place: Path, times: int) -> None:
    """The model itself presses Ctrl-C, once or twice, in its 100th pass."""
    program = f"""
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
import usu.models
load = usu.models.load
def pressing(*given, **named):
    found = load(*given, **named)
    seen = [0]
    def hook(module, inputs, output):
        seen[0] += len(inputs[0])
        for _ in range({times} if 100 <= seen[0] < 100 + len(inputs[0]) else 0):
            os.kill(os.getpid(), signal.SIGINT)
            sum(range(10**6))  # the handler runs between two steps of the interpreter
    found.model.register_forward_hook(hook)
    return found
usu.models.load = pressing
sys.argv = ["usu", "explain", "cat.png", *{SMALL!r}, "--evaluations", "2000", "--out", "kept"]
from usu.cli import main
main()
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=place, capture_output=True, text=True, check=False)
    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr
    assert (place / "kept" / "cat").exists() == (times == 1)
    if times == 1:
        manifest = json.loads((place / "kept" / "cat" / "manifest.json").read_text())
        assert manifest["stop_reason"] == "STOPPED"
        assert 100 <= manifest["evaluations"] < 1000
        assert manifest["stability"] is not None
        assert "stopped early" in done.stdout


def test_drafts_of_dead_processes_are_swept(place: Path) -> None:
    from usu.results import written

    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    host = os.uname().nodename
    dead, alive = (place / f".usu-draft.{host}.{pid}.x" for pid in (ended.pid, os.getppid()))
    far, old = (place / f".usu-draft.elsewhere-{name}.1.x" for name in ("far", "old"))
    for draft in (dead, alive, far, old):
        draft.mkdir()
        (draft / "maps.npz").write_bytes(b"PK")
    os.utime(old, (time.time() - 90_000,) * 2)
    written(place / "x.txt", b"x")
    assert [draft.exists() for draft in (dead, alive, far, old)] == [False, True, True, False]
    assert sorted(path.name for path in place.glob(".usu*")) == sorted([alive.name, far.name])


def test_printable() -> None:
    assert run.printable("Äpfel [x] \udce9\x7f\u2028") == "Äpfel [x] \\udce9\\x7f\\u2028"


def test_figures_of_an_audit_do_not_follow_links_and_want_matplotlib_first(
    command: Usu, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "drawn").mkdir()
    (place / "drawn" / "audit_nearest.png").symlink_to(place / "elsewhere.png")
    command(place, "audit", "nearest", "--trials", "2", "--figure", "drawn")
    assert not (place / "elsewhere.png").exists()
    with Image.open(place / "drawn" / "audit_nearest.png") as figure:
        assert figure.format == "PNG"
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr("usu.auditor.audit", lambda *_, **__: pytest.fail("the work was begun"))
    code, _, err = command(place, "audit", "nearest", "--figure", "drawn")
    assert code == 2
    assert "usu-xai[plot]" in err
