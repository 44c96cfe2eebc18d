"""The methods of the study as contenders of `usu.evaluate`: what the paper compares, its oracles, and the protocol's
rivals and controls.

Names in the tables: ``usu``, ``iwmr`` and ``hybrid`` are the paper's operator with its three budgets and the scores of
this study (`studied`, `Memory`); ``printed-*`` are the same budgets with the preset ``paper``, made for photographs;
``cell`` and ``soft`` are our presets. Three oracles take the pipeline apart:

- ``oracle-scores-*``: the true outline *as* scores. Nothing is explained, the answer is handed in: a tautology, shown
  because the paper's captions name it and because what it lacks to 1 is lost by the operator.
- ``oracle-shares-*``: the pipeline's own segments, each with its part of the true outline as score. What it lacks to
  the first is lost by the segments, and what the pipeline lacks to it is lost by the scores. (``-printed-*``: of the
  preset ``paper``.)
- ``oracle-segments-*``: the true outline as segments, scores measured by the model. There are two of them and scores
  are scaled to [0, 1], so the model is asked for one bit: which side matters more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

import usu
from usu.bench import CONTROLS, PLAIN, Guided, Made, ScoresAlone
from usu.bench.scene import SceneScores
from usu.inputs import Input
from usu.pipeline import scores_of

#: Segments to start from: a few for the shape, the rest for what is around it.
PARTS = 10
#: What a scorer may spend; the paper's own pipeline takes as many as its segments ask for.
EVALUATIONS = 300
#: And kernel SHAP on the segments that ``usu`` starts from: about as many as its pipeline takes on the CNN.
SHAP = 80
#: Between a picture's name and the side of its coarse map: grids of one picture share their scores.
AT = "@"
INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "lanczos3")
#: The three budgets of the paper; the hybrid is named in it and defined by us.
BUDGETS = {"usu": "cell", "iwmr": usu.SoftIWMR(prior="area"), "hybrid": usu.Hybrid(0.5)}
GROUPS = ("interpolations", "redistributions", "oracles", "rivals", "controls")


def paper(budget: str) -> usu.Settings:
    """The pipeline as printed, with one of the paper's budgets."""
    return replace(usu.PRESETS["paper"], budget=BUDGETS[budget])


def studied(budget: str) -> usu.Settings:
    """The same from few segments, and the mean as fill; chosen on validation pictures (`choice`).

    A blurred shape is the same shape inside, so blurring asks for its outline alone; and many segments of one evenly
    coloured shape differ in their scores for no reason that the outline knows of.
    """
    return replace(paper(budget), parts=PARTS, fill="mean")


def magnitude(model: Any, image: Tensor, label: int) -> Callable[[Tensor], Tensor]:
    """A target that falls by as much as the label's score moves, up or down.

    The coarse map of this study is |gradient|, which says how much a pixel matters and not in whose favour; its scores
    must mean the same.
    """
    with torch.no_grad():
        known = model(image[None])[0, label]
    return lambda output: -(output[:, label] - known).abs()


def scored(
    model: Any, image: Tensor, label: int, settings: usu.Settings, *, picture: np.ndarray, unsigned: bool
) -> SceneScores:
    """Segments and scores of a whole picture; ``unsigned``: how much a segment moves the label's score."""
    target, start = magnitude(model, image, label) if unsigned else label, time.perf_counter()
    even = torch.ones(1, 1, dtype=torch.float64)  # a coarse map would excuse segments in cells without mass
    engine = usu.forward.engine(model, target, link=settings.link, limit=settings.evaluations)
    found = scores_of(Input(even, image, picture, target), engine, settings, everywhere=True)
    # the target has asked for the score of the whole picture, too
    return SceneScores(found, engine.meter.spent + unsigned, time.perf_counter() - start)


class Memory:
    """Scores of the picture at work. They are the model's answers and know no coarse map, so grids share them.

    ``unsigned``: scores say how much a segment moves the label's score (`magnitude`), not in which direction.
    """

    def __init__(self, *, unsigned: bool = False) -> None:
        self.unsigned, self._picture, self._known = unsigned, "", {}

    def scored(self, scene: Any, settings: usu.Settings) -> Any:
        """Segments and scores of the scene's picture under the settings, made on first demand."""
        name = scene.name.rpartition(AT)[0] or scene.name
        if name != self._picture:
            self._picture, self._known = name, {}
        # what the operator does with scores is left out, so that budgets share them, too
        scoring = replace(
            settings, budget="iwmr", temperature=1.0, sharpest=None, potential=None, base=None,
            of_coarse=0.5, max_gain=None, signed="flip", trace=0.0,
        )  # fmt: skip
        if scoring not in self._known:
            model = scene.model if scoring.scoring == "gradient" else scene.forward
            self._known[scoring] = scored(
                model, scene.image, scene.target, scoring, picture=scene.picture, unsigned=self.unsigned
            )
        return self._known[scoring]


@dataclass(frozen=True, eq=False)
class _Remembered:
    """What a guided contender asks of a scene, with the scores out of the memory."""

    scene: Any
    memory: Memory

    @property
    def coarse(self) -> Any:
        return self.scene.coarse

    @property
    def seed(self) -> int:
        return self.scene.seed

    @property
    def picture(self) -> Any:
        return self.scene.picture

    def finer(self) -> Any:
        return self.scene.finer()

    @property
    def finer_seconds(self) -> float:
        return self.scene.finer_seconds

    @property
    def finer_evaluations(self) -> int:
        return self.scene.finer_evaluations

    def scored(self, settings: usu.Settings, *, everywhere: bool = False) -> Any:
        return self.memory.scored(self.scene, settings)


@dataclass(frozen=True, eq=False)
class Shared:
    """A guided contender of `usu.bench` that shares its scores; it reports the evaluations it takes alone."""

    inner: Guided | ScoresAlone
    memory: Memory

    @property
    def name(self) -> str:
        """The contender's own."""
        return self.inner.name

    def __call__(self, scene: Any) -> Made:
        """Its map."""
        return self.inner(_Remembered(scene, self.memory))


@dataclass(frozen=True, eq=False)
class OracleSegments:
    """The study's pipeline on the true outline: two segments, each deleted once; no refinement."""

    budget: Literal["usu", "iwmr"]
    memory: Memory = field(default_factory=partial(Memory, unsigned=True))

    @property
    def name(self) -> str:
        """Marked as an oracle."""
        return f"oracle-segments-{self.budget}"

    def __call__(self, scene: Any) -> Made:
        """Scores of the two sides, and one redistribution."""
        outline = usu.segment.from_labels(scene.truth.astype(np.int64))
        settings = replace(studied(self.budget), segmenter=outline, depth=0)
        return Guided(self.name, settings)(_Remembered(scene, self.memory))


@dataclass(frozen=True, eq=False)
class OracleShares:
    """The segments that a pipeline ends with, the part of each that is truth as its score."""

    budget: Literal["usu", "iwmr"]
    memory: Memory
    #: The segments of the preset ``paper`` instead.
    printed: bool = False

    @property
    def name(self) -> str:
        """Marked as an oracle."""
        return f"oracle-shares-{'printed-' if self.printed else ''}{self.budget}"

    @property
    def settings(self) -> usu.Settings:
        """Of the pipeline whose segments these are."""
        return paper(self.budget) if self.printed else studied(self.budget)

    def __call__(self, scene: Any) -> Made:
        """Segments, shared with the pipeline, and one redistribution."""
        found = self.memory.scored(scene, self.settings)
        segments = found.scored.segments[-1]
        start, flat = time.perf_counter(), segments.ravel()
        share = np.bincount(flat, scene.truth.ravel()) / np.maximum(np.bincount(flat), 1)
        pixel_map = redistributed(scene.coarse, share[segments], self.budget)
        return Made(pixel_map, found.evaluations, found.seconds + time.perf_counter() - start)


@dataclass(frozen=True)
class OracleScores:
    """The truth as scores, 1 inside and 0 outside: a tautology, and the operator's ceiling."""

    budget: Literal["usu", "iwmr"]

    @property
    def name(self) -> str:
        """Marked as an oracle."""
        return f"oracle-scores-{self.budget}"

    def __call__(self, scene: Any) -> Made:
        """One redistribution; the model is not asked."""
        start = time.perf_counter()
        return Made(redistributed(scene.coarse, scene.truth.astype(float), self.budget), 0, time.perf_counter() - start)


def redistributed(coarse: np.ndarray, scores: np.ndarray, budget: str) -> np.ndarray:
    """The paper's operator with one of its budgets."""
    settings = paper(budget)
    return usu.redistribute(
        coarse, scores, temperature=settings.temperature, budget=settings.budget, signed=settings.signed
    )


def described(one: Any) -> dict[str, Any]:
    """All that decides a method's maps, as plain values: what rows are kept for."""
    if isinstance(one, Shared):
        replaced = {name: getattr(one.inner, name, "real") for name in ("coarse", "scores")}
        return replaced | {"unsigned": one.memory.unsigned} | one.inner.settings.described()
    if isinstance(one, (OracleSegments, OracleShares, OracleScores)):
        return {"kind": type(one).__name__} | getattr(one, "settings", studied(one.budget)).described()
    return {"kind": type(one).__name__}


def methods(groups: Sequence[str] = GROUPS, *, evaluations: int = EVALUATIONS) -> list[Any]:
    """Contenders for `usu.evaluate`, in the order of the tables.

    Args:
        groups: of `GROUPS`.
        evaluations: of every sampled score. The paper's pipelines delete each of their segments, as printed.
    """
    unknown = [name for name in groups if name not in GROUPS]
    if unknown or not groups:
        raise ValueError(f"`groups` must be of {', '.join(GROUPS)}; got {unknown or 'none'}. Name at least one.")
    memory, unsigned = Memory(), Memory(unsigned=True)

    def sampled(name: str) -> usu.Settings:
        return replace(usu.PRESETS[name], evaluations=evaluations)

    def budgeted(one: Guided | ScoresAlone) -> Guided | ScoresAlone:
        return replace(one, settings=replace(one.settings, evaluations=evaluations))

    plain = {one.name: one for one in PLAIN}
    # of the paper's operator as of ours: which ingredient made the gain
    replaced = [
        Guided(f"usu-{name}", studied("usu"), coarse=coarse, scores=scores)
        for name, coarse, scores in (
            ("permuted-scores", "real", "permuted"), ("random-scores", "real", "random"),
            ("uniform-coarse", "uniform", "real"), ("shuffled-coarse", "shuffled", "real"),
        )
    ]  # fmt: skip
    # the same segments to start from, and about the evaluations that the pipeline takes
    shap = replace(studied("usu"), depth=0, scoring="sampled", mode="delete", fit="kernel_shap", evaluations=SHAP)
    alone = [ScoresAlone("usu-scores-alone", studied("usu")), ScoresAlone("usu-kernel-shap", shap)]
    # those that are the paper's methods under another name are in the tables already
    theirs = [budgeted(one) for one in CONTROLS if not one.name.startswith("paper-")]
    made = {
        "interpolations": [plain[name] for name in INTERPOLATIONS],
        "redistributions": [
            *(Shared(Guided(name, studied(name)), unsigned) for name in BUDGETS),
            *(Shared(Guided(f"printed-{name}", paper(name)), memory) for name in ("usu", "iwmr")),
            *(Shared(Guided(name, sampled(name)), memory) for name in ("cell", "soft")),
        ],
        "oracles": [
            *map(OracleSegments, ("usu", "iwmr")),
            *(OracleShares(name, unsigned) for name in ("usu", "iwmr")),
            *(OracleShares(name, memory, printed=True) for name in ("usu", "iwmr")),
            *map(OracleScores, ("usu", "iwmr")),
        ],
        "rivals": [one for name, one in plain.items() if name not in INTERPOLATIONS],
        "controls": [
            *(Shared(one, unsigned) for one in (*replaced, *alone)),
            *(Shared(one, memory) for one in theirs),
        ],
    }
    return [one for group in GROUPS if group in groups for one in made[group]]
