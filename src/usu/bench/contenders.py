"""What is compared: plain upsamplers, presets, and the controls that take exactly one ingredient away.

A contender makes a map of a `Scene` and says what it cost. Every control is a preset with its coarse map or its scores
replaced, so that a gain can be traced to what caused it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np
import torch

from usu._checks import as_numpy
from usu.bench.scene import Scene
from usu.metrics.asking import seeded
from usu.metrics.declared import FILLS
from usu.presets import PRESETS, Settings
from usu.redistribute import Hybrid, SoftIWMR
from usu.results import Upsampled
from usu.spread import follow_picture, spread
from usu.types import NDArray, Upsampler
from usu.upsamplers import BUILT_IN, Redistribution


@dataclass(frozen=True, eq=False)
class Made:
    """A map, and what it took: as if nothing had been shared with others."""

    pixel_map: NDArray
    evaluations: int
    seconds: float


class Contender(Protocol):
    """Anything that makes a map of a scene."""

    @property
    def name(self) -> str:
        """A short name for tables."""

    def __call__(self, scene: Scene) -> Made:
        """The map."""


@dataclass(frozen=True)
class Plain:
    """An upsampler that needs the coarse map and the picture, and no model."""

    upsampler: Upsampler

    @property
    def name(self) -> str:
        """The upsampler's own."""
        return self.upsampler.name

    def __call__(self, scene: Scene) -> Made:
        """One call."""
        start = time.perf_counter()
        pixel_map = self.upsampler(scene.coarse, scene.picture)
        return Made(pixel_map, 0, time.perf_counter() - start)


@dataclass(frozen=True)
class Guided:
    """A preset; or a control: the same with one ingredient replaced.

    ``coarse``: ``"uniform"``: every cell holds the same; ``"shuffled"``: the cells change places.
    ``scores``: ``"constant"``; ``"permuted"``: the segments exchange theirs; ``"random"``: uniform, one per segment.
    """

    name: str
    settings: Settings
    coarse: Literal["real", "uniform", "shuffled"] = "real"
    scores: Literal["real", "constant", "permuted", "random"] = "real"

    def __call__(self, scene: Scene) -> Made:
        """Scores, as shared with others, and one redistribution."""
        found = scene.scored(self.settings, everywhere=self.coarse != "real")
        finer = scene.finer() if self.settings.base == "layers" else ()
        start = time.perf_counter()
        coarse, field = self._coarse(scene), self._field(scene, found)
        pixel_map = spread(torch.from_numpy(coarse), torch.from_numpy(field), self.settings, finer=finer).numpy()
        taken, heard = time.perf_counter() - start, int(bool(finer))
        taken += scene.finer_seconds if finer else 0.0
        if self.scores in ("constant", "random"):
            return Made(pixel_map, heard, taken)
        return Made(pixel_map, found.evaluations + heard, found.seconds + taken)

    def _coarse(self, scene: Scene) -> NDArray:
        match self.coarse:
            case "uniform":
                return np.full_like(scene.coarse, scene.coarse.mean())
            case "shuffled":
                order = torch.randperm(scene.coarse.size, generator=seeded(scene.seed, "cells")).numpy()
                return np.asarray(scene.coarse.ravel()[order].reshape(scene.coarse.shape))
        return scene.coarse

    def _field(self, scene: Scene, found: Upsampled[NDArray]) -> NDArray:
        segments = found.segments[-1]
        count, dice = int(segments.max()) + 1, seeded(scene.seed, "scores")
        match self.scores:
            case "real":
                return found.scores
            case "constant":
                return np.full_like(found.scores, 0.5)
            case "random":
                each = torch.rand(count, generator=dice, dtype=torch.float64).numpy()
            case "permuted":
                flat, field = segments.ravel(), as_numpy(found.depth_scores[-1]).ravel()
                means = np.bincount(flat, field) / np.maximum(np.bincount(flat), 1)
                each = means[torch.randperm(count, generator=dice).numpy()]
        field = np.asarray(each[segments])
        if self.settings.edges == "picture":
            field = follow_picture(torch.from_numpy(field)[None], scene.picture)[0].numpy()
        return field


@dataclass(frozen=True)
class ScoresAlone:
    """The segments' scores as the map: what the model says of the parts, and no coarse map at all."""

    name: str
    settings: Settings

    def __call__(self, scene: Scene) -> Made:
        """Scores of every segment."""
        found = scene.scored(self.settings, everywhere=True)
        return Made(found.scores, found.evaluations, found.seconds)


def _controls() -> tuple[Contender, ...]:
    cell, soft, paper = PRESETS["cell"], PRESETS["soft"], PRESETS["paper"]
    area = replace(cell, budget=SoftIWMR(prior="area"), base=None, max_gain=None, temperature=0.1)
    made: list[Contender] = [
        Guided("paper-iwmr", replace(paper, budget=SoftIWMR(prior="area"))),
        Guided("paper-hybrid", replace(paper, budget=Hybrid(0.5))),
        Guided("area-iwmr", area),
        ScoresAlone("scores-alone", soft),
        ScoresAlone("kernel-shap", replace(soft, fit="kernel_shap")),
    ]
    for name, settings in (("cell", cell), ("soft", soft)):
        made += [
            Guided(f"{name}-constant-scores", settings, scores="constant"),
            Guided(f"{name}-permuted-scores", settings, scores="permuted"),
            Guided(f"{name}-random-scores", settings, scores="random"),
            Guided(f"{name}-uniform-coarse", settings, coarse="uniform"),
            Guided(f"{name}-shuffled-coarse", settings, coarse="shuffled"),
        ]
    return tuple(made)


#: Kernels, filters and their mass-corrected forms.
PLAIN: tuple[Contender, ...] = tuple(Plain(u) for u in BUILT_IN if not isinstance(u, Redistribution))
GUIDED: tuple[Contender, ...] = tuple(Guided(name, settings) for name, settings in PRESETS.items())
#: The protocol's: coarse maps and scores replaced, scores alone, kernel SHAP on the same segments and budget.
CONTROLS: tuple[Contender, ...] = _controls()
_GROUPS = {"plain": PLAIN, "presets": GUIDED, "controls": CONTROLS, "all": (*PLAIN, *GUIDED, *CONTROLS)}


def contenders(upsamplers: Sequence[Any] | str, *, evaluations: int = 300) -> list[Contender]:
    """Whatever names an upsampler, as contenders with names of their own, on equal budgets.

    A built-in name, a preset or a control (``"cell:noise"`` scores it with another fill), a group (``"plain"``,
    ``"presets"``, ``"controls"``, ``"all"``), an `Upsampler`, a pair of a name and `Settings`, or a contender.

    >>> [one.name for one in contenders(["nearest", "cell:mean"])]
    ['nearest', 'cell:mean']
    """
    found: dict[str, Contender] = {}
    for one in [upsamplers] if isinstance(upsamplers, str) else upsamplers:
        for contender in _contenders(one, evaluations):
            if found.setdefault(contender.name, contender) != contender:
                raise ValueError(
                    f"`upsamplers` must have different names; got two called {contender.name!r}. Rename one."
                )
    if not found:
        raise ValueError("`upsamplers` must name at least one; got none. Pass 'all' for every one of them.")
    return list(found.values())


def _contenders(one: Any, evaluations: int) -> Sequence[Contender]:
    if isinstance(one, str):
        named = _GROUPS[one] if one in _GROUPS else [_named(one)]
        return [_equal(contender, evaluations) for contender in named]
    if isinstance(one, tuple) and len(one) == 2 and isinstance(one[1], Settings):
        return [Guided(str(one[0]), one[1])]
    if isinstance(one, (Guided, ScoresAlone, Plain)):
        return [one]
    if isinstance(one, Redistribution):
        raise TypeError(
            f"`upsamplers` must not be driven by a score field; got {one.name}. Pass (name, usu.Settings(...)) and the "
            "scores are made for each picture."
        )
    if isinstance(one, Upsampler):
        return [Plain(one)]
    if callable(one) and hasattr(one, "name"):
        return [one]
    raise TypeError(
        f"`upsamplers` must be names, upsamplers or pairs of a name and usu.Settings; got {type(one).__name__}. "
        "See usu.bench.contenders."
    )


def _equal(contender: Contender, evaluations: int) -> Contender:
    """The same with this budget: at most so many evaluations, for whoever makes any beyond one backward pass."""
    if isinstance(contender, (Guided, ScoresAlone)) and contender.settings.scoring in ("sampled", "delete"):
        return replace(contender, settings=replace(contender.settings, evaluations=evaluations))
    return contender


def _named(name: str) -> Contender:
    known = {one.name: one for one in _GROUPS["all"]}
    if name in known:
        return known[name]
    plain, _, fill = name.partition(":")
    one = known.get(plain)
    if isinstance(one, (Guided, ScoresAlone)) and fill in FILLS:
        return replace(one, name=name, settings=replace(one.settings, fill=FILLS[fill]))
    raise ValueError(
        f"`upsamplers` must be names of upsamplers; got {name!r}. Choose from {', '.join((*known, *_GROUPS))}, or a "
        "preset or control with another fill, as in cell:noise."
    )
