"""``usu evaluate``: two Ray workers beside one, the driver's memory over 10,000 units, and how soon it goes on."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from usu.bench import Ray, Row, Sample, Store, contenders
from usu.bench.evaluate import asked_metrics, network_of, run
from usu.bench.units import Outcome, Unit, UnitGrid

UNITS, FAKE = 24, 10_000


class Slow(nn.Module):
    """Work for one thread, half a second a unit, about; or as much waiting, which no busy machine makes longer."""

    def __init__(self, waits: bool = False) -> None:
        super().__init__()
        self.waits = waits
        self.body = nn.Sequential(nn.Conv2d(3, 48, 3, 2, 1), nn.ReLU(), nn.Conv2d(48, 48, 3, 2, 1), nn.ReLU())
        self.head = nn.Linear(48, 4)

    def forward(self, x: Tensor) -> Tensor:
        if self.waits:
            time.sleep(0.01 * len(x))
            x = x[:, :, ::8, ::8]
        return self.head(self.body(x).mean((2, 3)))


class Fake:
    """An engine that computes nothing."""

    def __init__(self, stop: int | None = None) -> None:
        self.stop, self.first = stop, 0.0

    def run(self, grid: UnitGrid, units: Iterable[Unit]) -> Iterator[tuple[Unit, Outcome]]:
        for number, unit in enumerate(units):
            self.first = self.first or time.perf_counter()
            if number == self.stop:
                return
            rows = [Row(unit.sample.name, 0, up, metric, 0.5, 0, 0, 0.0, 0.0) for _, up, metric in unit.todo]
            yield unit, Outcome(tuple(rows), ())


def grid_of(pictures: int, size: int, metrics: list[str], *, waits: bool = False) -> UnitGrid:
    image = torch.rand(3, size, size, generator=torch.Generator().manual_seed(0))
    samples = [
        Sample(f"{number:05d}", image.roll(number, 2) if pictures < 100 else image) for number in range(pictures)
    ]
    torch.manual_seed(0)
    rivals = contenders(["bilinear", "cell"], evaluations=60)
    return UnitGrid(
        {"": samples}, {"": network_of(Slow(waits).eval(), layer="body.2")}, {"": "gradcam"}, tuple(rivals),
        tuple(asked_metrics(metrics)),
    )  # fmt: skip


def resident() -> float:
    """Megabytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


def speed(workers: int, *, waits: bool = False) -> float:
    """Units a second, from the first that is finished: starting Ray and its workers is not counted."""
    grid, ends = grid_of(UNITS, 128, ["infidelity", "insertion-deletion"], waits=waits), []
    for _ in run(grid, None, Ray(workers=workers)):
        ends.append(time.perf_counter())
    return (len(ends) - workers) / (ends[-1] - ends[workers - 1])


def store() -> dict[str, float]:
    """A store of many small units: how large it gets, how soon it is written and how soon a run goes on."""
    with tempfile.TemporaryDirectory() as folder:
        grid = grid_of(FAKE, 8, ["half-deletion", "mass-error", "infidelity"])
        marks, begun = {}, time.perf_counter()
        with Store(folder, write=True) as kept:
            for number, _ in enumerate(run(grid, kept, Fake(FAKE - 1))):
                if number in (999, FAKE - 2):
                    marks[number] = resident()
        written = time.perf_counter() - begun
        rows = (FAKE - 1) * len(grid.rivals) * len(grid.metrics)
        size = sum(file.stat().st_size for file in Path(folder).iterdir())
        start, fake = time.perf_counter(), Fake()
        with Store(folder, write=True) as kept:
            for _ in run(grid, kept, fake):
                pass
        first, last = marks.values()
        return {
            "rows": rows, "bytes a row": size / rows, "units written a second": (FAKE - 1) / written,
            "seconds until a run of so many rows goes on": fake.first - start,
            "megabytes of the driver after 1,000 units": first, f"megabytes of the driver after {FAKE:,}": last,
        }  # fmt: skip


def main() -> None:
    for what, waits in (("compute", False), ("wait", True)):
        one, two = speed(1, waits=waits), speed(2, waits=waits)
        print(
            f"Ray, units that {what}: one worker {one:.2f} a second, two {two:.2f}: {two / one:.2f} times (wanted: 1.7)"
        )
    for what, value in store().items():
        print(f"{what}: {value:,.1f}")


if __name__ == "__main__":
    # python -m benchmarks.evaluation docs/results/store.csv: the store alone, kept
    lines = [f"{what.replace(',', '')},{value:.6g}" for what, value in store().items()]
    Path(sys.argv[1]).write_text("\n".join(["what,value", *lines, ""]), encoding="utf-8")
