"""What each step measures of one picture: a row of numbers."""

from __future__ import annotations

import copy
import functools
import io
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch
from experiments.stability.cases import SETTINGS, Case, DrawnFill, agreement, case_of, pixels_of
from experiments.stability.rivals import RIVALS, SHAPIQ, shapiq_map
from experiments.stability.rivals import rise as rise_map
from PIL import Image
from scipy.stats import spearmanr
from torch import nn

import usu
from usu.forward.fills import FILLS
from usu.metrics import cell_auroc
from usu.models.pictures import seen
from usu.segment import Felzenszwalb, Tiles, Watershed
from usu.settings import PRESETS, Settings

BUDGETS = (30, 60, 100, 150, 300, 600, 1200)
#: Where the coarse map should pay most: compared with the same estimator without it.
FEW = (30, 60, 100, 300)
#: Evaluations of the map that the others are compared with.
LONG = 3000
#: Seeds whose agreement, pair by pair, the prediction of one run is compared with.
RUNS = 6
Row = dict[str, float]


def seeds(case: Case, _: Path) -> Row:
    row: Row = {}
    for name in case.asked("soft", "cell", "former soft", "former cell", "scores alone"):
        one, other = (case.made(SETTINGS[name], 300, seed) for seed in (0, 1))
        row[f"{name} iou"], row[f"{name} pearson"] = agreement(one.pixel_map, other.pixel_map)
        row |= {f"{name} {metric}": value for metric, value in case.faithful(one.pixel_map).items()}
        if isinstance(one.stability, float):
            row[f"{name} predicted"] = one.stability
    return row


def repeats(case: Case, _: Path) -> Row:
    """What seed 0 predicts, and how any two of several runs agree: one pair alone is a noisy answer."""
    row: Row = {}
    for name in case.asked("soft", "cell"):
        runs = [case.made(SETTINGS[name], 300, seed) for seed in range(RUNS)]
        found = [agreement(one.pixel_map, other.pixel_map) for one, other in combinations(runs, 2)]
        row[f"{name} iou"], row[f"{name} pearson"] = (float(value) for value in np.mean(found, axis=0))
        row[f"{name} predicted"] = float(runs[0].stability)
    return row


def long(case: Case, _: Path) -> Row:
    row: Row = {}
    for name in case.asked("soft", "cell"):
        far, near, other = (case.made(SETTINGS[name], n, seed) for n, seed in ((LONG, 7), (300, 0), (300, 1)))
        row[f"{name} iou"], row[f"{name} pearson"] = agreement(far.pixel_map, near.pixel_map)
        row[f"{name} other iou"], row[f"{name} other pearson"] = agreement(far.pixel_map, other.pixel_map)
        row[f"{name} covered"] = covered(near, far)
    return {**row, **auto(case, _)}


def default(case: Case, _: Path) -> Row:
    """What a user gets who says nothing."""
    return auto(case, _, ceiling=PRESETS["soft"].ceiling)


def auto(case: Case, _: Path, ceiling: int = 1200) -> Row:
    """Two seeds that end by themselves."""
    row: Row = {}
    for name in case.asked("soft", "cell"):
        settings = replace(SETTINGS[name], ceiling=ceiling)
        one, two = (case.made(settings, "auto", seed) for seed in (0, 1))
        row[f"{name} auto evaluations"] = (one.evaluations + two.evaluations) / 2
        row[f"{name} auto predicted"], row[f"{name} auto level"] = float(one.stability), settings.stability
        row[f"{name} auto iou"], row[f"{name} auto pearson"] = agreement(one.pixel_map, two.pixel_map)
    return row


def covered(short: usu.Upsampled, far: usu.Upsampled) -> float:
    """The part of the segments whose 90 % interval around the short run's effect holds the long run's."""
    one, other = short.effects, far.effects
    return float(((one.mean - other.mean).abs() <= 1.645 * (one.stderr**2 + other.stderr**2).sqrt()).double().mean())


def curve(case: Case, _: Path) -> Row:
    row: Row = {}
    for name in case.asked("soft", "cell"):
        for budget in BUDGETS:
            one, other = (case.made(SETTINGS[name], budget, seed) for seed in (0, 1))
            at = f"{name}@{budget}"
            row[f"{at} iou"], row[f"{at} pearson"] = agreement(one.pixel_map, other.pixel_map)
            row[f"{at} predicted"] = float(one.stability)
    return row


def few(case: Case, _: Path) -> Row:
    """`soft` beside those that do not know the coarse map; of shapiq also two seeds of the largest number."""
    row: Row = {}
    for budget in FEW:
        maps = {
            name: case.made(SETTINGS[name], budget, 0).pixel_map for name in ("soft", "scores alone", "kernel SHAP")
        }
        maps |= {f"shapiq {name}": shapiq_map(case, name, budget, 0) for name in SHAPIQ}
        for name, pixel_map in maps.items():
            if pixel_map is not None:
                row |= {f"{name}@{budget} {metric}": value for metric, value in case.faithful(pixel_map).items()}
    for name in SHAPIQ:
        one, other = maps[f"shapiq {name}"], shapiq_map(case, name, FEW[-1], 1)
        if one is not None and other is not None:
            at = f"shapiq {name}@{FEW[-1]}"
            row[f"{at} iou"], row[f"{at} pearson"] = agreement(one, other)
    return row


def moved(case: Case, path: Path) -> Row:
    """The same class of the picture saved again, and of the picture one pixel to the left."""
    row: Row = {}
    pixels = pixels_of(path)
    kept = io.BytesIO()
    Image.fromarray(pixels).save(kept, "JPEG", quality=95)
    again = case_of(case.loaded, pixels_of(kept), case.target, answers=case.model)
    shifted = shifted_by_one(case)
    for name in case.asked("soft", "cell", "fast"):
        settings = PRESETS["fast"] if name == "fast" else SETTINGS[name]
        evaluations = None if name == "fast" else 300
        first = case.made(settings, evaluations, 0).pixel_map
        if again is not None:
            found = again.made(settings, evaluations, 0).pixel_map
            row[f"{name} jpeg iou"], row[f"{name} jpeg pearson"] = agreement(first, found)
        row |= after_shift(name, first, shifted, settings, evaluations)
    return row


def shifted_by_one(case: Case) -> Case:
    """The picture one pixel to the left, with a coarse map of its own."""
    image, model = torch.roll(case.image, -1, -1), case.loaded.model
    source = usu.gradcam(model, image[None], case.target, layer=case.loaded.layer, finer=True)
    return replace(case, image=image, picture=np.roll(case.picture, -1, 1), source=source)


def after_shift(name: str, first: Any, shifted: Case, settings: Settings, evaluations: int | None) -> Row:
    """The agreement of a map with that of the shifted picture, moved back."""
    if not bool(shifted.coarse.any()):
        return {}
    found = torch.roll(shifted.made(settings, evaluations, 0).pixel_map, 1, -1)[:, 1:]
    iou, pearson = agreement(first[:, 1:], found)
    return {f"{name} shift iou": iou, f"{name} shift pearson": pearson}


def rivals(case: Case, _: Path) -> Row:
    row: Row = {}
    for name in case.asked("soft", "cell", "scores alone", "kernel SHAP"):
        found = case.faithful(case.made(SETTINGS[name], 300, 0).pixel_map)
        row |= {f"{name} {metric}": value for metric, value in found.items()}
    coarse = case.coarse.double()
    resized = {
        "bilinear": lambda _: usu.interpolate(coarse, case.size, "bilinear"),
        "guided filter": lambda _: torch.as_tensor(usu.upsamplers.by_name("guided")(coarse, case.picture)),
        "fast": lambda _: case.made(PRESETS["fast"], None, 0).pixel_map,
    }
    every: dict[str, Callable[[Case], Any]] = {**resized, **RIVALS}
    for name in case.asked(*every):
        pixel_map = every[name](case)
        if pixel_map is not None:
            row |= {f"{name} {metric}": value for metric, value in case.faithful(pixel_map).items()}
    return row


def rise(case: Case, _: Path) -> Row:
    maps = {"soft": case.made(SETTINGS["soft"], 300, 0).pixel_map, "RISE": rise_map(case)}
    return {f"{name} {metric}": value for name, one in maps.items() for metric, value in case.faithful(one).items()}


def choices(case: Case, _: Path) -> Row:
    """Agreement of maps that differ in the fill or the segmenter alone; faithfulness of the fills."""
    soft = SETTINGS["soft"]
    drawn = replace(case, model=DrawnFill(case.model, case.image))
    ways: dict[str, Any] = {f"fill {fill}": (case, replace(soft, fill=fill)) for fill in FILLS}
    ways["fill drawn"] = (drawn, replace(soft, fill=DrawnFill.MARK))
    for segmenter in (Felzenszwalb(), Tiles(), Watershed()):
        ways[f"segments {type(segmenter).__name__}"] = (case, replace(soft, segmenter=segmenter))
    maps = {name: one.made(settings, 600, 0).pixel_map for name, (one, settings) in ways.items()}
    row: Row = {}
    for name in ways:
        one, settings = ways[name]
        if name != "fill blur":
            row[f"{name} iou"], row[f"{name} pearson"] = agreement(maps[name], maps["fill blur"])
        if name in ("fill mean", "fill noise"):
            row[f"drawn-{name} iou"], row[f"drawn-{name} pearson"] = agreement(maps[name], maps["fill drawn"])
        if name in ("fill blur", "fill drawn"):
            again = one.made(settings, 600, 1).pixel_map
            row[f"{name} seed iou"], row[f"{name} seed pearson"] = agreement(maps[name], again)
        if name.startswith("fill"):
            row |= {f"{name} {metric}": value for metric, value in case.faithful(maps[name]).items()}
    row["mean-noise iou"], row["mean-noise pearson"] = agreement(maps["fill mean"], maps["fill noise"])
    return row


def outlines(case: Case, path: Path) -> Row:
    _, geometry = case.loaded.prepare(pixels_of(path))
    outline = np.asarray(Image.open(path.parents[1] / "masks" / f"{path.stem}.png").convert("L")) > 127
    truth = seen(np.repeat(outline[..., None], 3, -1).astype(np.float32), geometry)[..., 0] > 0.5
    if not truth.any() or truth.all():
        return {}
    coarse = case.coarse.double()
    ways: dict[str, Callable[[], Any]] = {
        "bilinear": lambda: usu.interpolate(coarse, case.size, "bilinear"),
        "guided": lambda: torch.as_tensor(usu.upsamplers.by_name("guided")(coarse, case.picture)),
        "fast": lambda: case.made(PRESETS["fast"], None, 0).pixel_map,
        "soft": lambda: case.made(SETTINGS["soft"], 300, 0).pixel_map,
        "cell": lambda: case.made(SETTINGS["cell"], 300, 0).pixel_map,
    }
    grid = (coarse.shape[0], coarse.shape[1])
    return {f"{name} auroc": float(cell_auroc(ways[name](), truth, grid)) for name in case.asked(*ways)}


def randomised(case: Case, path: Path) -> Row:
    """Maps of the network, and of one in which every weight is elsewhere in its tensor: is it the model that is shown?

    A map of zeros has no order, so its picture is left out.
    """
    row: Row = {}
    spoiled = case_of(replace(case.loaded, model=shuffled(case.loaded.model)), pixels_of(path), case.target)
    if spoiled is None:
        return row
    for name in ("bilinear", "fast", "soft", "cell"):
        maps = [
            usu.interpolate(one.coarse.double(), one.size, "bilinear") if name == "bilinear"
            else one.made(PRESETS[name], None if name == "fast" else 300, 0).pixel_map
            for one in (case, spoiled)
        ]  # fmt: skip
        ranks = spearmanr(*(one.numpy().ravel() for one in maps)).statistic
        row[f"{name} rank"], row[f"{name} iou"] = float(ranks), agreement(*maps)[0]
    return row


@functools.cache
def shuffled(model: nn.Module) -> nn.Module:
    """A copy with the numbers of every weight tensor in random order."""
    spoiled, generator = copy.deepcopy(model), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weights in spoiled.parameters():
            flat = weights.flatten()
            weights.copy_(flat[torch.randperm(len(flat), generator=generator)].reshape(weights.shape))
    return spoiled


def fast(case: Case, _: Path) -> Row:
    """What the middle block of a transformer, or a finer layer, gives without any evaluation."""
    maps = {
        "bilinear": usu.interpolate(case.coarse.double(), case.size, "bilinear"),
        "fast": case.made(PRESETS["fast"], None, 0).pixel_map,
    }
    return {f"{name} {metric}": value for name, one in maps.items() for metric, value in case.faithful(one).items()}


#: By name. Those at even places, where things are chosen, are in `chosen`.
STEPS: dict[str, Callable[[Case, Path], Row]] = {
    "seeds": seeds, "repeats": repeats, "long": long, "auto": auto, "default": default, "curve": curve, "few": few,
    "moved": moved, "rivals": rivals, "rise": rise, "choices": choices, "outlines": outlines, "fast": fast,
    "randomised": randomised,
}  # fmt: skip
