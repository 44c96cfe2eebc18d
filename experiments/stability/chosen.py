"""Steps at even places, where things are chosen: what each way gains in stability and costs in faithfulness."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from experiments.stability.cases import SETTINGS, Case, agreement
from experiments.stability.steps import FEW, Row, after_shift, shifted_by_one
from torch import Tensor, nn

import usu
from usu.pipeline.certainty import segment_scores
from usu.pipeline.halves import base_of, field_of, map_of
from usu.score.posterior import fit, kernels, segment_sums
from usu.segment import split
from usu.settings import PRESETS, Settings

#: Of `cell`: what a softer map gains in stability and costs in faithfulness.
TEMPERATURES = (0.5, 0.7, 0.8, 1.0)
#: Coarse maps are averaged to so many cells a side: how sharply is a cell of many segments to be shared out?
SIDES, SHARPER = (4, 2, 1), (0.3, 0.4, 0.5, 0.8)
#: Evaluations that maps of few of them are compared with.
MANY = 600


def softer(case: Case, _: Path) -> Row:
    shifted = shifted_by_one(case)
    plain = case.made(PRESETS["fast"], None, 0).pixel_map
    row = after_shift("fast", plain, shifted, PRESETS["fast"], None)
    for temperature in TEMPERATURES:
        settings = replace(SETTINGS["cell"], temperature=temperature, sharpest=None)
        at = f"ordered cell@{temperature}"
        one, other = (case.made(settings, 300, seed).pixel_map for seed in (0, 1))
        row[f"{at} iou"], row[f"{at} pearson"] = agreement(one, other)
        row |= {f"{at} {metric}": value for metric, value in case.faithful(one).items()}
        row |= after_shift(at, one, shifted, settings, 300)
    return row


def coarser(case: Case, _: Path) -> Row:
    """`cell` at several temperatures where cells are larger: the coarse map averaged, the finer layers as they are."""
    row: Row = {}
    for side in SIDES:
        if side > case.coarse.shape[0]:
            continue
        values = nn.functional.adaptive_avg_pool2d(case.source.values[None], side)[0]
        large = replace(case, source=replace(case.source, values=values))
        for temperature in SHARPER:
            settings = replace(SETTINGS["cell"], temperature=temperature, sharpest=None)
            row |= _twice(large, f"{side}@{temperature}", [large.made(settings, 300, s).pixel_map for s in (0, 1)])
    return row


def fewer(case: Case, _: Path) -> Row:
    """`soft` with few evaluations, with all segments and with larger ones; and how near both are to a longer run."""
    row: Row = {}
    far = case.made(SETTINGS["soft"], MANY, 7).pixel_map
    for budget in FEW[:-1]:
        for name, settings in (("all", replace(SETTINGS["soft"], per_segment=0)), ("fewer", SETTINGS["soft"])):
            maps = [case.made(settings, budget, seed).pixel_map for seed in (0, 1)]
            row |= _twice(case, f"{name}@{budget}", maps)
            row[f"{name}@{budget} far"] = agreement(far, maps[0])[0]
    return row


def refined(case: Case, _: Path) -> Row:
    """`soft` with further rounds on what is undecided, and with pieces that no group tells apart."""
    row: Row = {}
    for name, depth in (("plain", 0), ("one round", 1), ("two rounds", 2)):
        settings = replace(SETTINGS["soft"], depth=depth)
        runs = [case.made(settings, 300, seed) for seed in (0, 1)]
        maps = [one.pixel_map for one in runs]
        row |= {f"{name} predicted": float(runs[0].stability), f"{name} segments": len(runs[0].effects.start)}
        row |= _twice(case, name, maps)
        if name == "plain":
            row |= _twice(case, "pieces", [in_pieces(case, one, settings) for one in runs])
    return row


def _twice(case: Case, name: str, maps: list[Any]) -> Row:
    iou, pearson = agreement(*maps)
    told = {f"{name} iou": iou, f"{name} pearson": pearson}
    return told | {f"{name} {metric}": value for metric, value in case.faithful(maps[0]).items()}


def in_pieces(case: Case, result: usu.Upsampled, settings: Settings) -> Tensor:
    """The map of the same groups, fitted to four pieces of every segment: their prior alone tells these apart."""
    coarse, finer = case.coarse.double(), [level[0] for level in case.source.finer]
    labels = result.segments[-1]
    pieces = split(labels, range(int(labels.max()) + 1), case.picture, settings.segmenter)
    lineage, groups, values = result.effects.on(torch.from_numpy(pieces))
    prior = kernels(torch.from_numpy(pieces), torch.from_numpy(case.picture), lineage=lineage)
    base = base_of(coarse, torch.zeros(case.size).double(), settings, finer=finer)
    hoped = None if base is None else segment_sums(base, torch.from_numpy(pieces))
    scores = segment_scores(fit(groups, values, covariances=prior, evidence=hoped).mean, pieces, settings)
    field = field_of(scores[:, torch.from_numpy(pieces)], case.picture, settings)[0]
    return map_of(coarse, field, settings, finer=finer)


STEPS: dict[str, Callable[[Case, Path], Row]] = {
    "softer": softer, "coarser": coarser, "fewer": fewer, "refined": refined,
}  # fmt: skip
