"""Quantus' metrics against ours in seconds, same maps and network: python -m benchmarks.peer_metrics RESULTS

Written is ``peers-metrics.csv``: the processor's seconds with one thread, the median of three runs in turns, and how
far the numbers differ. Quantus' IROF and ROAD stop with an error at pictures of three channels.
"""

from __future__ import annotations

import csv
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from skimage import data

import usu
from benchmarks.metrics import FEATURES, PATCH
from benchmarks.peers import declare_operators
from usu import metrics

PICTURES, RUNS, PERCENTAGES = ("chelsea", "coffee"), 3, (20, 40, 60, 80)


def main(results: Path) -> None:
    """The table."""
    declare_operators()
    import quantus

    torch.set_num_threads(1)
    net = usu.models.load()
    images = torch.stack([net.prepare(getattr(data, name)())[0] for name in PICTURES])
    source = usu.gradcam(net.model, images, layer=net.layer)
    targets = [int(target) for target in source.targets or ()]
    maps = usu.interpolate(source.values, tuple(images.shape[-2:]), "bilinear").numpy()
    steps, quiet = images[0].numel() // FEATURES, {"disable_warnings": True, "display_progressbar": False}

    def theirs(metric: Any) -> Callable[[], Any]:
        return lambda: metric(
            net.model, images.numpy(), np.array(targets), a_batch=maps[:, None], device="cpu", channel_first=True
        )

    def ours(metric: Callable[..., Any]) -> Callable[[], Any]:
        return lambda: [metric(m, x, net.model, y) for m, x, y in zip(maps, images, targets, strict=True)]

    rows = {
        "PixelFlipping": (
            quantus.PixelFlipping(features_in_step=FEATURES, **quiet),
            lambda m, x, f, y: metrics.pixel_flipping(m, x, f, y, steps=steps, compat="quantus").curve,
        ),
        "MonotonicityCorrelation": (
            quantus.MonotonicityCorrelation(
                features_in_step=FEATURES, perturb_baseline="black", nr_samples=10, **quiet
            ),
            lambda m, x, f, y: (
                metrics.monotonicity_correlation(m, x, f, y, steps=steps, fill="black", compat="quantus").value
            ),
        ),
        "Infidelity": (
            quantus.Infidelity(perturb_patch_sizes=[PATCH], **quiet),
            lambda m, x, f, y: metrics.infidelity(m, x, f, y, compat="quantus", patch_sizes=(PATCH,)).value,
        ),
        "Sparseness": (
            quantus.Sparseness(**quiet),
            lambda m, x, f, y: metrics.sparseness(m, compat="quantus"),
        ),
        "ROAD": (
            quantus.ROAD(percentages=list(PERCENTAGES), **quiet),
            lambda m, x, f, y: metrics.road(m, x, f, y, percentages=PERCENTAGES, order="most").value,
        ),
        "IROF": (
            quantus.IROF(perturb_baseline="mean", return_aggregate=False, **quiet),
            lambda m, x, f, y: metrics.irof(m, x, f, y).value,
        ),
    }
    table = []
    for name, (metric, own) in rows.items():
        taken: dict[str, list[float]] = {"quantus": [], "ours": []}
        values: dict[str, Any] = {}
        for _ in range(RUNS):
            for who, call in (("quantus", theirs(metric)), ("ours", ours(own))):
                start = time.process_time()
                try:
                    values[who] = call()
                except (AssertionError, IndexError):
                    continue
                taken[who].append(time.process_time() - start)
        same = _same(name, values)
        times = [median(taken[who]) if taken[who] else None for who in ("quantus", "ours")]
        ratio = "" if times[0] is None or times[1] is None else f"{times[0] / times[1]:.1f}"
        shown = ["stops at three channels" if value is None else f"{value:.3g}" for value in times]
        table.append({"metric": name, "quantus": shown[0], "ours": shown[1], "ratio": ratio, "same": same})
        print(*table[-1].values(), flush=True)
    with (results / "peers-metrics.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(table[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)


def _same(name: str, values: dict[str, Any]) -> str:
    """How far the numbers are apart, of the largest."""
    if name in ("ROAD", "IROF"):
        return "not compared"
    one, other = (np.asarray(values[who], dtype=float).ravel() for who in ("quantus", "ours"))
    return "differ in kind" if one.shape != other.shape else f"to {np.abs(one - other).max() / np.abs(one).max():.0e}"


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(Path(sys.argv[1]))
