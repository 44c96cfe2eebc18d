"""What is compared: plain upsamplers, presets, and the controls: presets with one ingredient replaced."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product, starmap
from typing import Any, Literal, Protocol, TypeAlias, TypeGuard

import numpy as np
import torch

from usu import _checks as check
from usu.bench.scene import Scene, SceneScores
from usu.metrics.catalogue import FILLS, seeded
from usu.operator.interpolate import follow_picture
from usu.operator.redistribute import Hybrid, SoftIWMR
from usu.pipeline import map_of
from usu.settings import PRESETS, Settings
from usu.types import NDArray
from usu.upsamplers import BUILT_IN, Upsampler

Coarse: TypeAlias = Literal["real", "uniform", "shuffled"]
Scores: TypeAlias = Literal["real", "constant", "permuted", "random"]


@dataclass(frozen=True, eq=False)
class Made:
    """A map, and what it took: as if nothing had been shared with others."""

    pixel_map: NDArray
    evaluations: int
    seconds: float


class Contender(Protocol):
    """Anything that makes a map of a scene; its name is for tables."""

    @property
    def name(self) -> str:
        """Different from all others'."""

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
    coarse: Coarse = "real"
    scores: Scores = "real"

    def __call__(self, scene: Scene) -> Made:
        """Scores, as shared with others, and one redistribution."""
        found = scene.scored(self.settings, everywhere=self.coarse != "real")
        finer = scene.finer() if self.settings.base == "layers" else ()
        start = time.perf_counter()
        coarse, field = self._coarse(scene), self._field(scene, found)
        pixel_map = map_of(torch.from_numpy(coarse), torch.from_numpy(field), self.settings, finer=finer).numpy()
        taken = time.perf_counter() - start + (scene.finer_seconds if finer else 0.0)
        spent = scene.finer_evaluations if finer else 0
        if self.scores in ("constant", "random"):
            return Made(pixel_map, spent, taken)
        return Made(pixel_map, found.evaluations + spent, found.seconds + taken)

    def _coarse(self, scene: Scene) -> NDArray:
        if self.coarse == "uniform":
            return np.full_like(scene.coarse, scene.coarse.mean())
        if self.coarse == "shuffled":
            order = torch.randperm(scene.coarse.size, generator=seeded(scene.seed, "cells")).numpy()
            return np.asarray(scene.coarse.ravel()[order].reshape(scene.coarse.shape))
        return scene.coarse

    def _field(self, scene: Scene, found: SceneScores) -> NDArray:
        if self.scores == "real":
            return found.field
        if self.scores == "constant":
            return np.full_like(found.field, 0.5)
        segments, dice = found.scored.segments[-1], seeded(scene.seed, "scores")
        count = int(segments.max()) + 1
        if self.scores == "random":
            each = torch.rand(count, generator=dice, dtype=torch.float64).numpy()
        else:
            flat, unfiltered = segments.ravel(), found.scored.fields[-1][0].numpy().ravel()
            means = np.bincount(flat, unfiltered) / np.maximum(np.bincount(flat), 1)
            each = means[torch.randperm(count, generator=dice).numpy()]
        replaced = np.asarray(each[segments])
        if self.settings.edges == "picture":
            replaced = follow_picture(torch.from_numpy(replaced)[None], scene.picture)[0].numpy()
        return replaced


@dataclass(frozen=True)
class ScoresAlone:
    """The segments' scores as the map: what the model says of the parts, and no coarse map at all."""

    name: str
    settings: Settings

    def __call__(self, scene: Scene) -> Made:
        """Scores of every segment, also where the coarse map is empty and nobody else has a use for them."""
        alone = scene if scene.coarse.any() else replace(scene, coarse=np.ones_like(scene.coarse))
        found = alone.scored(replace(self.settings, base=None), everywhere=True)  # no layers, so no pass for them
        return Made(found.field, found.evaluations, found.seconds)


def _control(preset: str, coarse: Coarse = "real", scores: Scores = "real") -> Guided:
    replaced = [f"{kind}-{what}" for kind, what in ((coarse, "coarse"), (scores, "scores")) if kind != "real"]
    return Guided("-".join([preset, *replaced]), PRESETS[preset], coarse, scores)


_SCORES: tuple[Scores, ...] = ("constant", "permuted", "random")
_COARSE: tuple[Coarse, ...] = ("uniform", "shuffled")
_CELL, _SOFT, _PAPER, _AREA = PRESETS["cell"], PRESETS["soft"], PRESETS["paper"], SoftIWMR(prior="area")
#: Kernels, filters and their mass-corrected forms.
PLAIN: tuple[Plain, ...] = tuple(Plain(u) for u in BUILT_IN if not u.needs_scores)
GUIDED: tuple[Guided, ...] = tuple(Guided(name, settings) for name, settings in PRESETS.items())
#: The protocol's: coarse maps and scores replaced, scores alone, kernel SHAP on the same segments and budget.
CONTROLS: tuple[Guided | ScoresAlone, ...] = (
    Guided("paper-iwmr", replace(_PAPER, budget=_AREA)),
    Guided("paper-hybrid", replace(_PAPER, budget=Hybrid(0.5))),
    Guided("area-iwmr", replace(_CELL, budget=_AREA, base=None, max_gain=None, temperature=0.1)),
    ScoresAlone("scores-alone", _SOFT),
    ScoresAlone("kernel-shap", replace(_SOFT, fit="kernel_shap", scale="range", evaluations=_SOFT.ceiling)),
    *(_control("cell", scores=scores) for scores in _SCORES),
    *(_control("cell", coarse) for coarse in _COARSE),
    *(_control("soft", scores=scores) for scores in _SCORES),
    *(_control("soft", coarse) for coarse in _COARSE),
)
#: The other controls of the cross product: coarse map and scores both replaced.
CROSSED: tuple[Guided, ...] = tuple(starmap(_control, product(("cell", "soft"), _COARSE, _SCORES)))
_GROUPS: dict[str, tuple[Plain | Guided | ScoresAlone, ...]] = {
    "plain": PLAIN, "presets": GUIDED, "controls": CONTROLS, "crossed": CROSSED, "all": (*PLAIN, *GUIDED, *CONTROLS),
}  # fmt: skip


def contenders(upsamplers: Sequence[Any] | str, *, evaluations: int = 300, seed: int = 0) -> list[Contender]:
    """Whatever names an upsampler, as contenders with names of their own, on equal budgets.

    A built-in name, a preset or a control (``"cell:noise"``: with another fill, ``"cell@50"``: with another budget), a
    group (``"plain"``, ``"presets"``, ``"controls"``; ``"all"`` is these three; ``"crossed"``), an `Upsampler`, a pair
    of a name and `Settings`, or a contender.

    >>> [one.name for one in contenders(["nearest", "cell:mean", "cell@50"])]
    ['nearest', 'cell:mean', 'cell@50']
    """
    check.whole_number("evaluations", evaluations, least=1)
    if isinstance(upsamplers, str) or not isinstance(upsamplers, Iterable):
        upsamplers = [upsamplers]
    found: dict[str, Contender] = {}
    for one in upsamplers:
        for contender in _named(one, evaluations, seed) if isinstance(one, str) else [_given(one)]:
            if found.setdefault(contender.name, contender) != contender:
                raise ValueError(f"`upsamplers` must have different names; got two called {contender.name!r}.")
    if not found:
        raise ValueError("`upsamplers` must name at least one; got none.")
    return list(found.values())


def _given(one: Any) -> Contender:
    """What is no name."""
    if isinstance(one, tuple) and len(one) == 2 and isinstance(one[1], Settings):
        return Guided(str(one[0]), one[1])
    if getattr(one, "needs_scores", False):
        raise TypeError(
            f"`upsamplers` must not be driven by a score field; got {one.name}. Pass (name, usu.Settings(...)) and the "
            "scores are made for each picture."
        )
    if callable(one) and hasattr(one, "guarantees"):  # a plain upsampler need not say that it needs no scores
        return Plain(one)
    if callable(one) and hasattr(one, "name"):
        return one  # type: ignore[no-any-return]
    raise TypeError(f"`upsamplers` must be names, upsamplers or (name, usu.Settings); got {type(one).__name__}.")


def _named(name: str, evaluations: int, seed: int) -> list[Contender]:
    """A group, or one: its name, then perhaps another fill, then perhaps another budget, as in ``cell:noise@50``."""
    if name in _GROUPS:
        return [_equal(one, evaluations, seed) for one in _GROUPS[name]]
    known = {one.name: one for one in (*_GROUPS["all"], *CROSSED)}
    filled, at, own = name.partition("@")
    plain, colon, fill = filled.partition(":")
    one = known.get(plain)
    budgeted = own.isdecimal() and int(own) > 0 and one is not None and _asks(one)
    if filled in _GROUPS or (at and one is not None and not budgeted):
        raise ValueError(f"`upsamplers` must name a budget for one that spends it, as in cell:noise@50; got {name!r}.")
    if one is None or (colon and (isinstance(one, Plain) or fill not in FILLS)):
        raise ValueError(
            f"`upsamplers` must be names of upsamplers; got {name!r}. Choose from {', '.join((*known, *_GROUPS))}, "
            "or a preset or control with another fill or budget, as in cell:noise and cell@50."
        )
    if not isinstance(one, Plain):
        one = replace(one, name=name, settings=replace(one.settings, fill=FILLS[fill]) if colon else one.settings)
    return [_equal(one, int(own) if at else evaluations, seed)]


def _asks(contender: Contender) -> TypeGuard[Guided | ScoresAlone]:
    """Whether it makes evaluations beyond one backward pass."""
    return isinstance(contender, (Guided, ScoresAlone)) and contender.settings.scoring in ("sampled", "delete")


def _equal(contender: Contender, evaluations: int, seed: int) -> Contender:
    """The same with this budget: at most so many evaluations, for whoever makes any."""
    if not _asks(contender):
        return contender
    return replace(contender, settings=replace(contender.settings, evaluations=evaluations, seed=seed))


def reseeded(contender: Contender) -> Contender | None:
    """The same with the next seed for its groups of segments; None for what draws none."""
    if not _asks(contender) or contender.settings.scoring != "sampled":
        return None
    return replace(contender, settings=replace(contender.settings, seed=contender.settings.seed + 1))
