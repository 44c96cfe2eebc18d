"""What is shown of what is known, without asking the model: pixel maps by any upsampler and with any settings, what
they keep of D1 to D4, and the frames in which the browser gets them.

A frame is a few values as JSON and arrays as bytes, little-endian: u32 length of the header, u32 length of the body,
the header, the body. Real numbers are sent as 16 bits of their range, which a screen cannot tell from all of them;
exports have them all.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from usu import _checks as check
from usu._checks import as_numpy
from usu.app.looking import BUDGETS, Between, Explained, Glass, Opened
from usu.auditor import measures
from usu.auditor.measures import Trial
from usu.pipeline.halves import map_of
from usu.pipeline.run import mass_error_of
from usu.refine.fields import heterogeneity
from usu.settings import PRESETS, Settings
from usu.types import Array, NDArray
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
        given = known.given
        return self.made(given.coarse, known.field, given.picture, given.finer or ())

    def made(self, coarse: Tensor, scores: Tensor | None, picture: NDArray, finer: Sequence[Tensor]) -> Tensor:
        """The map of any input."""
        blank = torch.zeros(picture.shape[:2], dtype=torch.float64)
        if self.way == OWN and scores is not None:
            return map_of(coarse, scores, self.settings, finer=finer)
        if self.way in (OWN, FAST):
            return map_of(coarse, blank, PRESETS["fast"], finer=finer)
        one = by_name(self.way)
        return one(coarse, picture, (blank if scores is None else scores) if one.needs_scores else None)


def masses(known: Explained, pixel_map: Tensor) -> dict[str, float]:
    """D1: the largest relative error of a cell's mass. And of the total, relative to the mass there is."""
    blank, promises = torch.zeros_like(pixel_map), {"D1": PRESETS["cell"], "mass": PRESETS["soft"]}
    return {name: mass_error_of(pixel_map, known.given.coarse, blank, own) for name, own in promises.items()}


def desiderata(known: Explained, view: Look, between: Between) -> dict[str, float]:
    """How far the map on the screen is from D1 to D4; NaN where one does not apply. Others may go ``between`` maps."""
    pixel_map, given, scores = view.of(known), known.given, known.field
    found, result = masses(known, pixel_map), as_numpy(pixel_map)
    trial = Trial(as_numpy(given.coarse), np.zeros_like(result) if scores is None else as_numpy(scores), "")

    def run(coarse: NDArray, field: NDArray) -> NDArray:
        """The same way on another input; another size gets a grey picture, and no finer layers."""
        between()
        same = field.shape == result.shape
        picture = given.picture if same else np.repeat(field[..., None], 3, axis=-1)
        asked = None if scores is None else torch.from_numpy(field)
        return as_numpy(view.made(torch.from_numpy(coarse), asked, picture, given.finer or () if same else ()))

    found["D2"] = measures.wrong_pairs(result, trial) if scores is not None else math.nan
    found["D3"] = measures.conditioning_spread(run) if scores is not None else math.nan
    found["D4"] = measures.outside_influence(run, result, trial, np.random.default_rng(0), shares=False)
    return found


def first_frame(glass: Glass, opened: Opened, begun: Explained) -> bytes:
    """At once: the coarse map, and what bilinear and the layers make of it."""
    coarse = begun.given.coarse
    values = {
        "target": begun.target,
        "name": glass.name(begun.target),
        "notes": begun.source.notes,
        "instead": begun.instead,
        "passes": opened.passes.count,
    }
    maps = {"bilinear": Look("bilinear").of(begun), "map": Look(FAST).of(begun), "coarse": coarse}
    return frame("first", values, {**maps, "masses": coarse.reshape(-1) * begun.given.partition.sizes})


def look_frame(kind: str, opened: Opened, known: Explained, view: Look) -> bytes:
    """The map so far, and what it follows."""
    scored, pixel_map = known.scored, view.of(known)
    values: dict[str, Any] = {
        "target": known.target,
        "evaluations": known.evaluations,
        "passes": opened.passes.count,
        "seconds": round(known.seconds, 2),
        "stability": known.stability,
        "remark": known.remark,
        **masses(known, pixel_map),
    }
    arrays: dict[str, Any] = {"map": pixel_map}
    if scored is not None:
        arrays |= {"scores": scored.field[0], "segments": scored.segments[-1]}
        if scored.effects is not None:
            arrays |= {"effects": scored.effects.mean[0], "errors": scored.effects.stderr[0]}
        if kind == "done":
            arrays |= {f"heterogeneity_{d}": heterogeneity(f[0]).abs() for d, f in enumerate(scored.fields)}
    if known.stderr is not None:
        arrays["uncertainty"] = known.stderr
    return frame(kind, values, arrays)


def map_frame(known: Explained, view: Look) -> bytes:
    """A map, and what it keeps."""
    pixel_map = view.of(known)
    values = {"target": known.target, "promised": view.promised, **masses(known, pixel_map)}
    return frame("map", values, {"map": pixel_map})


def frame(kind: str, values: Mapping[str, Any], arrays: Mapping[str, Array] | None = None) -> bytes:
    """One message.

    >>> made = frame("look", {"stability": 0.5}, {"labels": np.array([7, 8], np.uint8)})
    >>> json.loads(made[8:-4])["stability"], list(made[-4:])
    (0.5, [7, 8, 0, 0])
    """
    described, body = [], b""
    for name, array in (arrays or {}).items():
        sent, low, step = _packed(as_numpy(array))
        described.append(
            {"name": name, "type": sent.dtype.name, "shape": sent.shape, "start": len(body), "low": low, "step": step}
        )
        data = sent.astype(sent.dtype.newbyteorder("<")).tobytes()
        body += data + bytes(-len(data) % 4)
    header = json.dumps({"kind": kind, "arrays": described, **plain_values(values)}, allow_nan=False).encode()
    return struct.pack("<II", len(header), len(body)) + header + body


def plain_values(value: Any) -> Any:
    """For JSON, which knows neither NaN nor infinity: None stands for them.

    >>> plain_values({"a": (1, float("nan"))})
    {'a': [1, None]}
    """
    if isinstance(value, Mapping):
        return {str(name): plain_values(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_values(one) for one in value]
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else None
    return int(value) if isinstance(value, np.integer) else value


def _packed(values: NDArray) -> tuple[NDArray, float, float | None]:
    """Numbers of 8, 16 or 32 bits, and what they stand for: low + step * number, or themselves where step is None."""
    if values.dtype == np.uint8:
        return values, 0.0, None
    if not np.issubdtype(values.dtype, np.floating):
        return values.astype(np.uint16 if values.max(initial=0) < 2**16 else np.uint32), 0.0, None
    known = np.nan_to_num(values.astype(np.float64))
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 0.0)
    step = (high - low) / 65535 or 1.0
    return np.rint((known - low) / step).astype(np.uint16), low, step
