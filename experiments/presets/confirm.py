"""The presets against every rival and control, on pictures they were not chosen on.

    python -m experiments.presets.confirm DATA RUN --forward lite0.onnx [--workers 2] [--again]

``DATA`` holds ``imagenet/images``, ``pets/images`` and ``pets/masks``; ``RUN`` keeps rows and RISE's maps, so that the
command can be repeated to go on. RISE's 4,000 passes a picture are most of the work; ``--again``, on the pictures that
are left, does without.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from experiments.presets import FORMER
from experiments.presets.pictures import confirmation, places
from experiments.presets.rivals import LayerCam, RefineCam, Rise, Spiked

from usu.bench import Local, Table, evaluate
from usu.bench.contenders import Guided
from usu.forward import from_onnx
from usu.models import load

METRICS = (
    "half-deletion", "half-deletion:noise", "insertion-deletion", "infidelity", "infidelity-matched",
    "mass-error", "seam-energy", "cell-auroc", "energy-in-mask", "energy-in-mask-matched",
    "area-iou", "pointing-game",
)  # fmt: skip
CONTROLS = (
    "cell-constant-scores", "cell-permuted-scores", "cell-random-scores", "cell-uniform-coarse", "cell-shuffled-coarse",
)  # fmt: skip


def arguments(groups: tuple[str, ...] = ()) -> argparse.Namespace:
    """What both runs, the search and the confirmation, are told."""
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("run", type=Path)
    parser.add_argument("--forward", help="the embedded network as .onnx")
    parser.add_argument("--workers", type=int, default=1)
    if groups:
        parser.add_argument("--group", choices=groups)
    else:
        parser.add_argument("--again", action="store_true", help="the other unseen pictures, without RISE")
    return parser.parse_args()


def main() -> None:
    asked = arguments()
    torch.set_num_threads(1)
    loaded = load("efficientnet_lite0")
    rivals = [
        "plain", "presets", "scores-alone", "kernel-shap", *CONTROLS, LayerCam(), RefineCam(),
        Spiked(Guided("soft", FORMER["soft"])),
    ]  # fmt: skip
    work = [("rows", rivals)]
    if not asked.again:
        work.append(("rows-of-rise", [Rise(asked.run / "rise", places(asked.data, loaded))]))
    tables = [
        evaluate(
            some, confirmation(asked.data, loaded, again=asked.again), loaded.model, METRICS,
            forward=from_onnx(asked.forward) if asked.forward else None, layer=loaded.layer, out=asked.run / folder,
            engine=Local(asked.workers), progress=lambda name, done, total: print(f"{done}/{total} {name}", flush=True),
        )
        for folder, some in work
    ]  # fmt: skip
    failed = {name: reason for table in tables for name, reason in table.failures.items()}
    print("\n".join(f"left out: {name}: {reason}" for name, reason in failed.items()))
    Table(tuple(row for table in tables for row in table.rows if row.picture not in failed), {}).save(asked.run)


if __name__ == "__main__":
    main()
