"""Today's presets and their rivals on 100 pictures that chose nothing: the table of docs/evidence.md.

    python -m experiments.evidence DATA RUN [--workers 2]   # RUN: the store; the same command goes on where it was
    python -m experiments.readme docs/results docs/evidence.md && python docs/figures/evidence.py

The pictures are those of the presets' confirmation. RISE knows no preset, so its 4,000 passes a picture are not made
again: its rows are those of the confirmation.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import torch
from experiments.first_table import wide
from experiments.presets.pictures import confirmation
from experiments.presets.rivals import LayerCam, RefineCam

from usu.bench import Local, Table, evaluate
from usu.models import load

RESULTS = Path(__file__).parents[1] / "docs" / "results"
RIVALS = (
    "bilinear", "bilinear-corrected", "guided", LayerCam(), RefineCam(), "kernel-shap", "scores-alone",
    "cell-permuted-scores", "paper", "fast", "soft", "cell",
)  # fmt: skip
METRICS = ("insertion-deletion", "half-deletion", "half-deletion:noise", "infidelity", "cell-auroc", "area-iou")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("run", type=Path)
    parser.add_argument("--workers", type=int, default=1)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    loaded = load("efficientnet_lite0")
    table = evaluate(
        RIVALS, confirmation(asked.data, loaded), loaded.model, METRICS, layer=loaded.layer, out=asked.run,
        engine=Local(asked.workers), forward="auto",
        progress=lambda name, done, total: print(f"{done}/{total} {name}", flush=True),
    )  # fmt: skip
    print("\n".join(f"left out: {name}: {reason}" for name, reason in table.failures.items()))
    wide(Table(tuple(row for row in table.rows if row.picture not in table.failures), {}), RESULTS / "evidence.csv")
    with_rise(RESULTS / "evidence.csv", RESULTS / "presets-confirmed.csv")


def with_rise(path: Path, confirmed: Path) -> None:
    """The rows of RISE added, of pictures that the others have, too."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    heads, pictures = list(rows[0]), {row["picture"] for row in rows}
    with confirmed.open(encoding="utf-8", newline="") as file:
        rise = [row for row in csv.DictReader(file) if row["upsampler"] == "rise" and row["picture"] in pictures]
    with path.open("a", encoding="utf-8", newline="") as file:
        csv.DictWriter(file, heads, extrasaction="ignore", lineterminator="\n").writerows(rise)


if __name__ == "__main__":
    main()
