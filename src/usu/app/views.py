"""Pixel maps of what is known, by any upsampler and with any settings; and what they keep of D1 to D4. No model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from usu import _checks as check
from usu._checks import as_numpy
from usu.app.looking import BUDGETS, Explained
from usu.auditor import measures
from usu.auditor.measures import Trial
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
        """Of the page's own ways."""
        return PRESETS["fast"] if self.way == FAST else replace(BUDGETS[self.budget], temperature=self.temperature)

    @property
    def promised(self) -> list[str]:
        """Which of the desiderata hold by construction."""
        if self.way in (OWN, FAST):
            return ["mass", "D1"] if self.way == OWN and self.budget == "cell" else ["mass"]
        return sorted(by_name(self.way).guarantees)

    def of(self, known: Explained) -> Tensor:
        """The map (H, W) in float64. A way that needs scores shows what the layers say until there are some."""
        return self.made(known.given.coarse, known.field, known.given.picture, [level[0] for level in known.finer])

    def made(self, coarse: Tensor, scores: Tensor | None, picture: NDArray, finer: Sequence[Tensor]) -> Tensor:
        """The map of any input."""
        field = torch.zeros(picture.shape[:2], dtype=torch.float64) if scores is None else scores
        if self.way == OWN and scores is not None:
            return map_of(coarse, field, self.settings, finer=finer)
        if self.way in (OWN, FAST):
            return map_of(coarse, torch.zeros_like(field), PRESETS["fast"], finer=finer)
        one = by_name(self.way)
        return one(coarse, picture, field if one.needs_scores else None)


def masses(known: Explained, pixel_map: Tensor) -> dict[str, float]:
    """D1: the largest relative error of a cell's mass. And of the total, relative to the mass there is."""
    given = known.given
    blank = torch.zeros_like(pixel_map)
    total, wanted = float(pixel_map.sum()), given.coarse.reshape(-1) * given.partition.sizes
    return {
        "D1": mass_error_of(pixel_map, given.coarse, blank, PRESETS["cell"]),
        "mass": abs(total - float(wanted.sum())) / (float(wanted.abs().sum()) or 1.0),
    }


def desiderata(known: Explained, view: Look, between: Callable[[], None]) -> dict[str, float]:
    """How far the map on the screen is from D1 to D4; NaN where one does not apply. Others may go ``between`` maps."""
    pixel_map, given, scores = view.of(known), known.given, known.field
    found, result = masses(known, pixel_map), as_numpy(pixel_map)
    trial = Trial(as_numpy(given.coarse), np.zeros_like(result) if scores is None else as_numpy(scores), "")

    def run(coarse: NDArray, field: NDArray) -> NDArray:
        """The same way on another input; another size gets a grey picture, and no finer layers."""
        between()
        picture, finer = given.picture, [level[0] for level in known.finer]
        if field.shape != result.shape:
            picture, finer = np.repeat(field[..., None], 3, axis=-1), []
        asked = None if scores is None else torch.from_numpy(field)
        return as_numpy(view.made(torch.from_numpy(coarse), asked, picture, finer))

    found["D2"] = measures.wrong_pairs(result, trial) if scores is not None else float("nan")
    found["D3"] = measures.conditioning_spread(run) if scores is not None else float("nan")
    found["D4"] = measures.outside_influence(run, result, trial, np.random.default_rng(0), shares=False)
    return found
