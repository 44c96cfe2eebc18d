"""Engines: the same table whoever computes it; a worker may die, a unit may fail, the others do not notice."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from torch import nn

from usu.bench import Local, Ray, Sample, Store, contenders, evaluate
from usu.bench.engines import TRIES, packed
from usu.bench.evaluate import asked_metrics, network_of
from usu.bench.units import UnitGrid

DICE = torch.Generator().manual_seed(3)
PICTURES = [Sample(name, torch.rand(3, 24, 24, generator=DICE)) for name in ("one", "two", "three", "four")]
RIVALS, METRICS = ["nearest", "bilinear", "cell"], ["half-deletion", "infidelity", "mass-error"]


class Net(nn.Module):
    """Does something to the process when it sees a picture with a certain corner; files remember how often it did."""

    def __init__(self, folder: Path | None = None, corner: float = -1.0, what: str = "", times: int = 99) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(2)
            self.body = nn.Sequential(nn.Conv2d(3, 6, 5, 4), nn.ReLU())
            self.head = nn.Linear(6, 4)
        self.folder, self.corner, self.what, self.times = folder, corner, what, times

    def forward(self, batch):
        if self.folder is not None and bool((batch[:, 0, 0, 0] == self.corner).any()):
            seen = len(list(self.folder.iterdir()))
            if seen < self.times:
                (self.folder / f"{seen}").touch()
                if self.what == "dies":
                    os.kill(os.getpid(), signal.SIGKILL)
                if self.what == "hangs":
                    time.sleep(600)
                if self.what == "raises":
                    raise ArithmeticError("it does not add up")
                return self.head(self.body(batch).mean((2, 3))) * float("nan")
        return self.head(self.body(batch).mean((2, 3)))

    def fingerprint(self) -> str:
        return "net"


def run(engine="local", model=None, pictures=PICTURES, **more):
    return evaluate(
        RIVALS,
        pictures,
        Net() if model is None else model,
        METRICS,
        layer="body.0",
        evaluations=24,
        engine=engine,
        **more,
    )


def spoiled(tmp_path: Path, what: str, times: int = 99) -> Net:
    (tmp_path / "seen").mkdir()
    return Net(tmp_path / "seen", float(PICTURES[1].image[0, 0, 0]), what, times)


@pytest.fixture(scope="module")
def whole() -> str:
    return run().csv()


def test_two_processes_give_the_table_of_one(tmp_path, whole):
    dies = spoiled(tmp_path, "dies", times=1)  # and one of them is killed on the way
    assert run(Local(workers=2), dies, out=tmp_path / "run").csv() == whole
    assert len(list((tmp_path / "seen").iterdir())) == 1


def test_ray_gives_the_table_of_one_process(tmp_path, whole, monkeypatch):
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    dies = spoiled(tmp_path, "dies", times=1)  # and one of its workers is killed on the way
    assert run(Ray(workers=2), dies, out=tmp_path / "run").csv() == whole
    assert len(list((tmp_path / "seen").iterdir())) == 1


@pytest.mark.soak
@pytest.mark.parametrize("engine", [Local(2, patience=20), Ray(workers=2, patience=20)])
def test_a_worker_that_hangs_is_replaced(tmp_path, whole, engine):
    assert run(engine, spoiled(tmp_path, "hangs", times=1), out=tmp_path / "run").csv() == whole
    assert len(list((tmp_path / "seen").iterdir())) == 1


@pytest.mark.soak
def test_a_unit_that_always_costs_its_worker_is_given_up(tmp_path, whole):
    table = run(Local(2), spoiled(tmp_path, "dies"), out=tmp_path / "run")
    assert list(table.failures) == ["two"]
    assert f"tried {TRIES} times" in table.failures["two"]
    assert sorted(table.csv().splitlines()) == sorted(line for line in whole.splitlines() if line[:4] != "two,")
    assert run(out=tmp_path / "run").csv() == whole, "mended, it is complete"


@pytest.mark.soak
def test_who_stops_early_does_not_wait_for_a_unit(tmp_path):
    networks, rivals = {"": network_of(spoiled(tmp_path, "hangs"), layer="body.0")}, tuple(contenders(["nearest"]))
    grid = UnitGrid({"": PICTURES}, networks, {"": "gradcam"}, rivals, tuple(asked_metrics(["mass-error"])))
    outcomes = Local(2).run(grid, grid.units())
    next(outcomes)
    start = time.perf_counter()
    outcomes.close()
    assert time.perf_counter() - start < 100, "another worker was started for a unit that nobody waits for"


@pytest.mark.parametrize("what", ["raises", "returns NaN"])
def test_a_model_that_fails_on_a_picture_costs_that_picture(tmp_path, whole, what):
    table = run(model=spoiled(tmp_path, what), out=tmp_path / "run")
    assert all(name.startswith("two") for name in table.failures)
    assert {row.picture for row in table.rows} >= {"one", "three", "four"}
    with Store(tmp_path / "run") as store:
        assert all("Traceback" in failure.traceback for failure in store.failures())
    assert run(out=tmp_path / "run").csv() == whole


def test_no_finished_unit_is_computed_again(tmp_path, whole):
    run(pictures=PICTURES[:3], out=tmp_path)
    asked = []
    net = Net()
    net.register_forward_hook(lambda module, given, output: asked.extend(given[0][:, 0, 0, 0].tolist()))
    assert run(model=net, out=tmp_path).csv() == whole
    assert float(PICTURES[3].image[0, 0, 0]) in asked
    assert float(PICTURES[0].image[0, 0, 0]) not in asked


def test_what_cannot_be_sent_is_told():
    class Stuck:
        name, guarantees = "stuck", frozenset()

        def __init__(self):
            self.lock = threading.Lock()

        def __call__(self, coarse, picture):
            return picture.mean(2)

    with pytest.raises(TypeError, match="`engine` must be one process"):
        evaluate([Stuck()], PICTURES, Net(), ["mass-error"], layer="body.0", engine=Local(2))


def test_pictures_stay_behind():
    grid = UnitGrid({"": PICTURES * 1000}, {"": network_of(Net())}, {"": "gradcam"}, (), ())
    assert len(packed(grid)) < 100_000


def test_ray_that_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"usu-xai\[ray\]"):
        run(Ray())
