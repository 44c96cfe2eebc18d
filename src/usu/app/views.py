"""Pixel maps of what is known, by any upsampler and with any settings; and what they keep of D1 to D4. No model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from usu import _checks as check
from usu._checks import as_numpy
from usu.app.looking import BUDGETS, Explained
from usu.auditor import measures
from usu.auditor.trials import Trial
from usu.pipeline.halves import map_of, mass_error_of
from usu.settings import PRESETS, Settings
from usu.types import NDArray
from usu.upsamplers import BUILT_IN, by_name

#: The page's own ways: with the scores, and without them.
OWN, FAST = "usu", "fast"
#: Everything that can be put on one side of the divider.
WAYS = (OWN, FAST, *(one.name for one in BUILT_IN if one.name != OWN))


@dataclass(frozen=True)
class Look:
    """How a map is made of what is known: the way, and for the page's own way its settings."""

    way: str = OWN
    budget: str = "soft"
    temperature: float = 0.3

    def __post_init__(self) -> None:
        check.choice("way", self.way, WAYS)
        check.choice("budget", self.budget, tuple(BUDGETS))
        check.real_number("temperature", self.temperature, least=0.01, most=10)

    @property
    def settings(self) -> Settings:
        """Of the page's own way."""
        return PRESETS["fast"] if self.way == FAST else replace(BUDGETS[self.budget], temperature=self.temperature)

    @property
    def promised(self) -> list[str]:
        """Which of the desiderata hold by construction."""
        if self.way in (OWN, FAST):
            return ["mass", "D1"] if self.way == OWN and self.budget == "cell" else ["mass"]
        return sorted(by_name(self.way).guarantees)

    def of(self, known: Explained) -> Tensor:
        """The map (H, W) in float64. A way that needs scores shows what the layers say until there are some."""
        given, field = known.given, known.field
        if self.way in (OWN, FAST):
            finer = [level[0] for level in known.finer]
            if field is None or self.way == FAST:
                blank = torch.zeros(given.image.shape[-2:], dtype=torch.float64)
                return map_of(given.coarse, blank, PRESETS["fast"], finer=finer)
            return map_of(given.coarse, field, self.settings, finer=finer)
        one = by_name(self.way)
        scores = field if field is not None else torch.zeros(given.image.shape[-2:], dtype=torch.float64)
        return one(given.coarse, given.picture, scores if one.needs_scores else None)


def masses(known: Explained, pixel_map: Tensor) -> dict[str, float]:
    """D1: the largest relative error of a cell's mass. And of the total, relative to the mass there is."""
    given = known.given
    blank = torch.zeros_like(pixel_map)
    total, wanted = float(pixel_map.sum()), given.coarse.reshape(-1) * given.partition.sizes
    return {
        "D1": mass_error_of(pixel_map, given.coarse, blank, PRESETS["cell"]),
        "mass": abs(total - float(wanted.sum())) / (float(wanted.abs().sum()) or 1.0),
    }


def desiderata(known: Explained, view: Look) -> dict[str, float]:
    """How far the map on the screen is from D1 to D4; NaN where one does not apply."""
    pixel_map = view.of(known)
    found = masses(known, pixel_map)
    given, scores = known.given, known.field
    trial = Trial(as_numpy(given.coarse), as_numpy(torch.zeros_like(pixel_map) if scores is None else scores), "")
    result = as_numpy(pixel_map)

    def run(coarse: NDArray, field: NDArray) -> NDArray:
        return as_numpy(_again(known, view, coarse, field))

    found["D2"] = measures.wrong_pairs(result, trial) if scores is not None else float("nan")
    found["D3"] = measures.conditioning_spread(run) if scores is not None else float("nan")
    found["D4"] = measures.outside_influence(run, result, trial, np.random.default_rng(0), shares=False)
    return found


def _again(known: Explained, view: Look, coarse: NDArray, scores: NDArray) -> Any:
    """The same way on another input; another size gets a grey picture, and no finer layers."""
    values, field = torch.from_numpy(coarse), torch.from_numpy(scores)
    if tuple(field.shape) == tuple(known.given.image.shape[-2:]):
        picture, finer = known.given.picture, [level[0] for level in known.finer]
    else:
        picture, finer = np.repeat(scores[..., None], 3, axis=-1), []
    if view.way in (OWN, FAST):
        return map_of(values, field, view.settings, finer=finer)
    one = by_name(view.way)
    return one(values, picture, field if one.needs_scores else None)
