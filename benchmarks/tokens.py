"""Hidden patches as missing tokens, what it saves and changes: python -m benchmarks.tokens DATA RESULTS [PICTURES]

DATA is a folder with ``models/load.py:vit_s14_cifar10`` and the pictures of ``cifar10-exact``, at odd places. Written
are ``token-drop-seconds.csv``: passes with half of the patches hidden over those of the whole picture, in turns, in the
processor's time with one thread; and ``token-drop.csv``: for each picture how the 64 patches' effects, taken away one
by one or in random groups, agree between missing tokens and fills, and how faithful the maps are that they lead to.
"""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch
from experiments.stability.cases import case_of, files_of, network, pixels_of
from scipy.stats import spearmanr
from torch import nn

import usu
from usu import fills
from usu.settings import PRESETS
from usu.sources import token_drop

WAYS: dict[str, Any] = {"missing": fills.Drop(), "blur": "blur", "mean": "mean"}
TILES, PARTS, EVALUATIONS, PAIRS = usu.segment.Tiles(), 64, 300, 15


def seconds(name: str, model: nn.Module, side: int, grid: int, chunk: int) -> dict[str, object]:
    """Half of the patches hidden, each row others, about as many or exactly; in turns with the whole pictures."""
    dice = torch.Generator().manual_seed(0)
    picture = torch.randn(3, side, side, generator=dice)
    dropping = token_drop(model, picture)
    whole = picture.expand(chunk, -1, -1, -1).contiguous()
    ratios = []
    with torch.no_grad():
        for _ in range(PAIRS + 1):
            shown = (torch.rand(chunk, 1, grid, grid, generator=dice) < 0.5).float()
            part = torch.cat([whole, nn.functional.interpolate(shown, (side, side))], 1)
            marks = [time.process_time()]
            for call in (lambda: model(whole), lambda part=part: dropping(part)):
                call()
                marks.append(time.process_time())
            ratios.append((marks[2] - marks[1]) / (marks[1] - marks[0]))
    low, _, high = quantiles(ratios[1:], n=4)
    return {
        "model": name, "picture": side, "patches": grid * grid, "pictures_at_once": chunk, "pairs": PAIRS,
        "ratio": f"{median(ratios[1:]):.3f}", "quarter": f"{low:.3f}", "three_quarters": f"{high:.3f}",
    }  # fmt: skip


def difference(path: Path, net: Any) -> dict[str, object] | None:
    """One picture: agreement of effects, and insertion minus deletion of maps."""
    case = case_of(net, pixels_of(path))
    if case is None:
        return None
    labels = TILES(case.picture, PARTS)
    found: dict[str, Any] = {"picture": path.stem}
    effects, scored = {}, {}
    for name, fill in WAYS.items():
        model = token_drop(net.model, case.image) if name == "missing" else net.model
        asked = usu.forward.engine(model, case.target, link="log_odds")
        effects[name] = usu.score.delete(asked, case.image, labels, fill=fill).values[0].numpy()
        settings = replace(PRESETS["soft"], segmenter=TILES, parts=PARTS, fill=fill, evaluations=EVALUATIONS)
        made = usu.upsample(
            case.coarse, case.image, net.model, case.target, preset=settings, picture=case.picture,
            finer=[level[0] for level in case.source.finer],
        )  # fmt: skip
        scored[name] = made.effects.mean[0].numpy()
        faithful = case.faithful(torch.as_tensor(made.pixel_map))
        found |= {f"{name} {key}": f"{value:.4f}" for key, value in faithful.items() if "insertion" in key}
        found[f"{name} stability"] = f"{made.stability:.4f}"
    for name in ("blur", "mean"):
        for kind, every in (("one by one", effects), ("in groups", scored)):
            rank = spearmanr(every["missing"], every[name]).statistic
            found[f"missing and {name}, {kind}"] = f"{float(rank):.4f}"
    found["blur and mean, one by one"] = f"{float(spearmanr(effects['blur'], effects['mean']).statistic):.4f}"
    found["blur and mean, in groups"] = f"{float(spearmanr(scored['blur'], scored['mean']).statistic):.4f}"
    return found


def _others() -> Iterable[tuple[str, nn.Module, int, int]]:
    """With random weights, where the libraries are there."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    for operator in ("nms", "qnms"):  # declared already, by a torchvision that works
        if not hasattr(torch.ops.torchvision, operator):
            library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import timm
    import transformers

    torch.manual_seed(0)
    small = timm.create_model("vit_small_patch16_224", pretrained=False, num_classes=10).eval()
    nn.init.normal_(small.head.weight)
    yield "timm vit_small_patch16_224, random", small, 224, 14
    config = transformers.ViTConfig(hidden_size=384, num_attention_heads=6, intermediate_size=1536, num_labels=10)
    yield "transformers ViT-S/16, random", transformers.ViTForImageClassification(config).eval(), 224, 14


def _written(path: Path, rows: list[dict[str, object]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, [*rows[0]], lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def main(data: Path, results: Path, pictures: int = 12) -> None:
    """Both tables."""
    torch.set_num_threads(1)
    net = network("vit_s14_cifar10", data)
    rows = []
    for path in files_of(data / "cifar10-exact"):
        found = difference(path, net) if len(rows) < pictures else None
        if found is not None:
            rows.append(found)
            print(*found.values(), flush=True)
    _written(results / "token-drop.csv", rows)
    models: list[tuple[str, Any, int, int]] = [("ViT-S/14, CIFAR-10", net.model, 112, 8), *_others()]
    timed = [seconds(*model, chunk) for model in models for chunk in (4, 16)]
    _written(results / "token-drop-seconds.csv", timed)
    for row in timed:
        print(*row.values())


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:]))
