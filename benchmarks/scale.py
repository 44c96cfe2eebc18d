"""Time and peak memory over the size of a question, a process for each point: python -m benchmarks.scale OUT [KIND ...]

OUT is a CSV file, of which the rows of these kinds (all, if none is named) are made anew. Passes are those of the
embedded network in the engine ``auto``. Time is the processor's, of a process with one thread for its arithmetic, which
other work on the machine changes little; beside it what the clock said. Memory is the process's own peak, libraries and
network included; before it is read, the smallest question of the kind is asked once, and a point of size 0 is that
alone. A point under two seconds is taken three times.
"""

from __future__ import annotations

import csv
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

#: Sizes of each kind. A picture has so many pixels to its longer side and three quarters of them to the other.
SIZES: dict[str, tuple[int, ...]] = {
    "interpolate": (0, 1200, 4000, 8000, 12000),
    "redistribute": (0, 1200, 4000, 8000, 12000),
    "redistribute, soft": (0, 1200, 4000, 8000, 12000),
    "explain a file and save": (0, 1200, 4000, 8000, 12000),
    "explain pixels and save": (0, 1200, 4000, 8000, 12000),
    "classes": (0, 1, 20, 100, 500),
    "depth": (0, 1, 2, 3, 4),
    "segments": (30, 125, 500, 2000),
    "batch": (0, 1, 16, 64, 256),
}
EVALUATIONS = 60
FIELDS = ("kind", "size", "seconds", "least", "most", "by_the_clock", "megabytes", "evaluations", "command")
#: Seconds below which a point is repeated.
_SHORT = 2.0


def peak() -> float:
    """Megabytes at the highest so far."""
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used / (2**20 if sys.platform == "darwin" else 2**10)


def pixels_of(side: int) -> Any:
    """A photograph of 4 : 3, enlarged."""
    import numpy as np
    from PIL import Image
    from skimage import data

    return np.asarray(Image.fromarray(data.chelsea()).resize((side, side * 3 // 4), Image.Resampling.BICUBIC))


def question(kind: str, size: int, folder: Path) -> Callable[[], int]:
    """The call to be measured, ready to run; it returns the evaluations it made."""
    import torch

    import usu
    from usu.settings import PRESETS

    if kind in ("interpolate", "redistribute", "redistribute, soft"):
        dice = torch.Generator().manual_seed(0)
        coarse = torch.rand(7, 7, generator=dice)
        height, width = max(size * 3 // 4, 21), max(size, 28)
        scores = None if kind == "interpolate" else torch.rand(height, width, generator=dice)
        budget: Any = "cell" if kind == "redistribute" else PRESETS["soft"].budget

        def operator() -> int:
            if scores is None:
                usu.interpolate(coarse, (height, width))
            else:
                usu.redistribute(coarse, scores, budget=budget)
            return 0

        return operator
    net = usu.models.load()
    soft = replace(PRESETS["soft"], evaluations=EVALUATIONS, engine="auto")
    if kind.startswith("explain"):
        given: Any = pixels_of(max(size, 28))
        if kind == "explain a file and save":
            from PIL import Image

            path = folder / "picture.jpg"
            Image.fromarray(given).save(path, quality=90)
            given = path

        def explain() -> int:
            found = usu.explain(net, given, preset=soft)
            found.save(folder / "result")
            return found.evaluations

        return explain
    pixels = pixels_of(400)
    if kind == "classes":
        classes = list(range(max(size, 1)))
        return lambda: usu.explain(net, pixels, classes, preset=soft).evaluations
    if kind == "depth":  # everything is split at every depth
        deep = replace(soft, depth=size, evaluations=5 * EVALUATIONS, threshold=0.0, tolerance=0.0)
        return lambda: usu.explain(net, pixels, preset=deep).evaluations
    if kind == "segments":
        fine = replace(soft, parts=size)
        return lambda: usu.explain(net, pixels, preset=fine).evaluations
    image = net.prepare(pixels)[0]
    batch = torch.stack([image.roll(step, -1) for step in range(max(size, 1))])
    found = usu.gradcam(net.model, batch, layer=net.layer, finer=True)
    return lambda: usu.upsample(found, batch, net.model, preset=soft).evaluations


def measured(kind: str, size: int) -> dict[str, float]:
    """In this process: seconds, the peak in megabytes, evaluations. The smallest question comes first, untimed."""
    with tempfile.TemporaryDirectory() as folder:
        small = {"segments": 30}.get(kind, 0)
        (Path(folder) / "small").mkdir()
        spent = question(kind, small, Path(folder) / "small")()
        seconds = processor = 0.0
        if size > small or kind in ("segments", "depth"):
            call = question(kind, size, Path(folder))
            start, used = time.perf_counter(), time.process_time()
            spent = call()
            seconds, processor = time.perf_counter() - start, time.process_time() - used
        return {"seconds": processor, "clock": seconds, "megabytes": peak(), "evaluations": spent}


def point(kind: str, size: int) -> dict[str, object]:
    """A row: the median of three processes, or one where it is long."""
    runs: list[dict[str, float]] = []
    while len(runs) < (1 if runs and runs[0]["seconds"] > _SHORT else 3):
        told = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "benchmarks.scale", "--one", kind, str(size)],
            capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        if told.returncode:
            raise SystemExit(f"{kind} {size}: {told.stderr[-2000:]}")
        runs.append(json.loads(told.stdout.splitlines()[-1]))
    seconds = [run["seconds"] for run in runs]
    return {
        "kind": kind, "size": size, "seconds": f"{median(seconds):.3g}", "least": f"{min(seconds):.3g}",
        "most": f"{max(seconds):.3g}", "by_the_clock": f"{median(run['clock'] for run in runs):.3g}",
        "megabytes": f"{median(run['megabytes'] for run in runs):.0f}",
        "evaluations": f"{runs[0]['evaluations']:.0f}", "command": "python -m benchmarks.scale docs/results/scale.csv",
    }  # fmt: skip


def main(out: Path, kinds: list[str]) -> None:
    """The rows of these kinds, or of all, made anew in the table."""
    rows: list[dict[str, Any]] = []
    if out.is_file():
        with out.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    for kind in kinds or SIZES:
        rows = [row for row in rows if row["kind"] != kind]
        for size in SIZES[kind]:
            rows.append(point(kind, size))
            print(*list(rows[-1].values())[:-1], flush=True)
            rows.sort(key=lambda row: [*SIZES].index(row["kind"]))
            with out.open("w", encoding="utf-8", newline="") as file:
                table = csv.DictWriter(file, FIELDS, lineterminator="\n")
                table.writeheader()
                table.writerows(rows)


if __name__ == "__main__":
    if sys.argv[1] == "--one":
        print(json.dumps(measured(sys.argv[2], int(sys.argv[3]))))
    else:
        main(Path(sys.argv[1]), sys.argv[2:])
