"""How stable are maps between seeds, how far does one run know it, and is faithfulness paid for it?

    python -m experiments.stability measure DATA NETWORK docs/results/stability [--pictures 40] [--long 12]
    python -m experiments.stability page docs/results/stability docs/stability.md

``DATA`` holds the development sets and ``models/load.py``; NETWORK is embedded, resnet50, vgg16_cifar10 or
vit_s14_cifar10. Pictures are those at odd places of their folders, on which nothing was chosen. Each is one row of
``NETWORK.csv``, written as soon as it is known; a repeated command goes on. Every output of the network is kept in
memory by the picture's bytes, so a run of 100 evaluations is the beginning of one of 300.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from experiments.pages import filled, markdown
from PIL import Image
from torch import Tensor

import usu
from usu.forward.runtime import runtime
from usu.metrics import deletion, half_deletion, insertion
from usu.models import load
from usu.models.pictures import Geometry, seen
from usu.score.posterior import tops
from usu.settings import PRESETS, Settings

#: `soft` and `cell` before scores had a posterior.
FORMER = {"parts": 150, "temperature": 0.2, "link": "logit", "fit": "ridge", "scale": "range", "evaluations": 300}
PRESETS_HERE = {
    "soft": PRESETS["soft"],
    "cell": PRESETS["cell"],
    "former soft": replace(PRESETS["soft"], **FORMER),  # type: ignore[arg-type]
    "former cell": replace(PRESETS["cell"], **FORMER),  # type: ignore[arg-type]
}
BUDGETS = (30, 60, 100, 150, 300, 600, 1200)
#: Evaluations of the map that the others are compared with.
LONG = 3000
NETWORKS = {
    "embedded": ("imagenet", "EfficientNet-Lite0, ImageNet"),
    "resnet50": ("imagenet", "ResNet-50, ImageNet"),
    "vgg16_cifar10": ("cifar10-exact", "VGG-16, CIFAR-10"),
    "vit_s14_cifar10": ("cifar10-exact", "ViT-S/14, CIFAR-10"),
}


class Remembered:
    """A model that is asked about a picture once."""

    def __init__(self, model: Any) -> None:
        self.model, self.known = model, {}

    def __call__(self, batch: Tensor) -> Tensor:
        keys = [hashlib.blake2b(one.contiguous().numpy().tobytes(), digest_size=16).digest() for one in batch]
        new = {key: row for row, key in enumerate(keys) if key not in self.known}
        if new:
            with torch.no_grad():
                found = self.model(batch[list(new.values())])
            self.known |= dict(zip(new, found.float(), strict=True))
        return torch.stack([self.known[key] for key in keys])


def agreement(one: Tensor, other: Tensor) -> tuple[float, float]:
    """IoU of exactly the 5 % highest pixels, ties by lot, and the correlation."""
    chosen = tops(torch.stack([one, other]).double(), 0.05, torch.Generator().manual_seed(0))
    iou = float((chosen[0] & chosen[1]).sum() / (chosen[0] | chosen[1]).sum())
    return iou, float(np.corrcoef(one.numpy().ravel(), other.numpy().ravel())[0, 1])


def faithful(pixel_map: Tensor, image: Tensor, model: Any, target: int, grid: tuple[int, int]) -> dict[str, float]:
    """Insertion minus deletion and half deletion within cells, by other fills than the scorer's."""
    found = {}
    for fill in ("mean", "noise"):
        curves = [one(pixel_map, image, model, target, fill=fill, steps=16).value for one in (insertion, deletion)]
        found[f"insertion-deletion {fill}"] = curves[0] - curves[1]
        found[f"half-deletion {fill}"] = half_deletion(pixel_map, image, model, grid, target, fill=fill).value
    return found


def covered(short: usu.Upsampled, long: usu.Upsampled) -> float:
    """The part of the segments whose 90 % interval around the short run's effect holds the long run's."""
    one, other = short.effects, long.effects
    return float(((one.mean - other.mean).abs() <= 1.645 * (one.stderr**2 + other.stderr**2).sqrt()).double().mean())


def measured(loaded: tuple[Any, Any], path: Path, *, long: bool, curve: bool) -> dict[str, float]:
    """Everything about one picture."""
    module, prepare = loaded
    pixels = np.asarray(Image.open(path).convert("RGB"))
    given = prepare(pixels)
    image, geometry = given if isinstance(given, tuple) else (given, None)
    coarse = usu.gradcam(module, image[None], finer=True)
    if not bool(coarse.values.any()) or coarse.targets is None:
        return {}
    target, row = coarse.targets[0], {}
    picture = _picture(pixels, image, geometry)
    model = Remembered(runtime(module, image, "auto").model)

    def made(settings: Settings, evaluations: Any, seed: int) -> usu.Upsampled:
        own = replace(settings, evaluations=evaluations, seed=seed)
        # the finer layers were heard with the coarse map: no evaluation is theirs
        return usu.upsample(coarse, image, model, target, preset=own, picture=picture)

    for name, settings in PRESETS_HERE.items():
        one, other = (made(settings, 300, seed) for seed in (0, 1))
        row[f"{name} iou"], row[f"{name} pearson"] = agreement(one.pixel_map, other.pixel_map)
        grid = (coarse.values.shape[1], coarse.values.shape[2])
        for metric, value in faithful(one.pixel_map, image, model, target, grid).items():
            row[f"{name} {metric}"] = value
        if one.stability is not None:
            row[f"{name} predicted"] = float(one.stability)
    for budget in BUDGETS if curve else ():
        one, other = (made(PRESETS["soft"], budget, seed) for seed in (0, 1))
        row[f"soft@{budget} iou"], row[f"soft@{budget} pearson"] = agreement(one.pixel_map, other.pixel_map)
        row[f"soft@{budget} predicted"] = float(one.stability)
    if long:
        for name in ("soft", "cell"):
            far, near = made(PRESETS[name], LONG, 7), made(PRESETS[name], 300, 0)
            row[f"{name} converged iou"], row[f"{name} converged pearson"] = agreement(far.pixel_map, near.pixel_map)
            row[f"{name} covered"] = covered(near, far)
        auto = replace(PRESETS["soft"], ceiling=1200)
        one, other = (made(auto, "auto", seed) for seed in (0, 1))
        row["auto evaluations"], row["auto predicted"] = (one.evaluations + other.evaluations) / 2, float(one.stability)
        row["auto iou"], row["auto pearson"] = agreement(one.pixel_map, other.pixel_map)
    return row


def _picture(pixels: np.ndarray, image: Tensor, geometry: Geometry | None) -> np.ndarray | None:
    """What a person sees of the part that the model sees; None: from the image by min-max."""
    return None if geometry is None else seen((pixels / 255).astype(np.float32), geometry)


def network(name: str, data: Path) -> tuple[Any, Any]:
    found = load() if name == "embedded" else load(f"{data / 'models' / 'load.py'}:{name}")
    return found.model, found.prepare


def measure(asked: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    folder, _ = NETWORKS[asked.network]
    files = sorted((asked.data / folder / "images").iterdir())[1::2]
    # spread over the folder, and the same first ones whatever their number
    order = [files[(place * 37) % len(files)] for place in range(len(files))][: asked.pictures]
    asked.run.mkdir(parents=True, exist_ok=True)
    path = asked.run / f"{asked.network}.csv"
    rows = _rows(path)
    done, loaded = {row["picture"] for row in rows}, network(asked.network, asked.data)
    for place, file in enumerate(order):
        if file.stem in done:
            continue
        row = measured(loaded, file, long=place < asked.long, curve=place < asked.curve)
        rows.append({"picture": file.stem, **{key: format(value, ".6g") for key, value in row.items()}})
        heads = list(dict.fromkeys(key for one in rows for key in one))
        text = io.StringIO()
        writer = csv.DictWriter(text, heads, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        path.write_text(text.getvalue(), encoding="utf-8")
        print(place, file.stem, row.get("soft iou"), row.get("former soft iou"), flush=True)


def _rows(path: Path) -> list[dict[str, str]]:
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return [{key: value for key, value in row.items() if value} for row in csv.DictReader(file)]


def column(rows: list[dict[str, str]], name: str) -> np.ndarray:
    return np.array([float(row[name]) for row in rows if name in row])


def tables(run: Path) -> dict[str, str]:
    """The page's tables, from the CSV files."""
    every = {name: _rows(run / f"{name}.csv") for name in NETWORKS if (run / f"{name}.csv").is_file()}
    presets, means = [], lambda rows, name: f"{column(rows, name).mean():.3f}" if len(column(rows, name)) else ""
    for name, rows in every.items():
        for preset in PRESETS_HERE:
            if not len(column(rows, f"{preset} iou")):
                continue
            heads = ("iou", "pearson", "insertion-deletion mean", "insertion-deletion noise", "half-deletion mean",
                     "half-deletion noise")  # fmt: skip
            cells = [means(rows, f"{preset} {head}") for head in heads]
            presets.append([NETWORKS[name][1], f"`{preset}`", str(len(column(rows, f"{preset} iou"))), *cells])
    paid = []
    for name, rows in every.items():
        for preset in ("soft", "cell"):
            for metric in ("iou", "insertion-deletion mean", "insertion-deletion noise", "half-deletion mean",
                           "half-deletion noise"):  # fmt: skip
                both = [row for row in rows if f"{preset} {metric}" in row and f"former {preset} {metric}" in row]
                if len(both) < 5:
                    continue
                new, old = column(both, f"{preset} {metric}"), column(both, f"former {preset} {metric}")
                found = usu.stats.wilcoxon(new, old)
                shift = usu.stats.hodges_lehmann(new, old)
                paid.append(
                    [NETWORKS[name][1], f"`{preset}`", metric, str(len(both)), f"{shift:+.3f}", f"{found.p:.2g}"]
                )
    known = []
    for name, rows in every.items():
        for preset in ("soft", "cell"):
            both = [row for row in rows if f"{preset} predicted" in row]
            if len(both) < 3:
                continue
            predicted, achieved = column(both, f"{preset} predicted"), column(both, f"{preset} iou")
            known.append([
                NETWORKS[name][1], f"`{preset}`", str(len(both)), f"{predicted.mean():.3f}", f"{achieved.mean():.3f}",
                f"{np.corrcoef(predicted, achieved)[0, 1]:.2f}", means(rows, f"{preset} converged iou"),
                means(rows, f"{preset} converged pearson"), means(rows, f"{preset} covered"),
                str(len(column(rows, f"{preset} covered"))),
            ])  # fmt: skip
    curve = []
    for name, rows in every.items():
        for budget in BUDGETS:
            found = column(rows, f"soft@{budget} iou")
            if len(found):
                others = [means(rows, f"soft@{budget} {head}") for head in ("pearson", "predicted")]
                curve.append([NETWORKS[name][1], str(budget), str(len(found)), f"{found.mean():.3f}", *others])
    auto = [
        [NETWORKS[name][1], str(len(column(rows, "auto iou"))), f"{column(rows, 'auto evaluations').mean():.0f}",
         means(rows, "auto predicted"), means(rows, "auto iou")]
        for name, rows in every.items() if len(column(rows, "auto iou"))
    ]  # fmt: skip
    return {
        "presets": markdown(("network", "preset", "n", "IoU", "Pearson", "ins-del mean", "ins-del noise", "half mean",
                             "half noise"), presets),
        "paid": markdown(("network", "preset", "metric", "n", "shift", "p"), paid),
        "known": markdown(("network", "preset", "n", "predicted", "achieved", "correlation", "IoU with 3,000",
                           "Pearson with 3,000", "90 % intervals hold", "n (3,000)"), known),
        "curve": markdown(("network", "evaluations", "n", "IoU", "Pearson", "predicted"), curve),
        "auto": markdown(("network", "n", "evaluations", "predicted", "achieved"), auto),
    }  # fmt: skip


def page(asked: argparse.Namespace) -> None:
    """Every table that the page has a place for."""
    text = asked.page.read_text(encoding="utf-8")
    placed = {name: table for name, table in tables(asked.run).items() if f"<!-- measured: {name} -->" in text}
    asked.page.write_text(filled(text, placed), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("measure")
    one.add_argument("data", type=Path)
    one.add_argument("network", choices=NETWORKS)
    one.add_argument("run", type=Path)
    one.add_argument("--pictures", type=int, default=40)
    one.add_argument("--long", type=int, default=12, help="of these, compared with 3,000 evaluations")
    one.add_argument("--curve", type=int, default=12, help="of these, at every budget")
    one.set_defaults(work=measure)
    two = commands.add_parser("page")
    two.add_argument("run", type=Path)
    two.add_argument("page", type=Path)
    two.set_defaults(work=page)
    asked = parser.parse_args()
    asked.work(asked)


if __name__ == "__main__":
    sys.exit(main())
