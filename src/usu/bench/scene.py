"""One picture at work: its coarse map, its target, and all about it that several upsamplers would compute twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from usu import _checks as check
from usu.bench.datasets import Sample
from usu.forward import Model, engine
from usu.inputs import Input, displayable
from usu.metrics.catalogue import Case, Memory, seeded
from usu.metrics.maps import checked_truth
from usu.pipeline import Scored, scores_of
from usu.segment import Slic
from usu.settings import Settings
from usu.sources import SOURCES, CoarseMap, coarse_map
from usu.sources.finer import finer_maps, module_of
from usu.types import NDArray

#: The segments of metrics that ask for some; no preset's, so that tables can be compared when presets change.
_SEGMENTER, _PARTS = Slic(smoothing=1.0), 150
#: What the scores do not depend on.
_OF_THE_OPERATOR = (
    "temperature",
    "sharpest",
    "potential",
    "budget",
    "base",
    "of_coarse",
    "signed",
    "max_gain",
    "trace",
)
#: (model, image (C, H, W), target or None, layer or None) -> the coarse map of this picture, a batch of one.
Source: TypeAlias = Callable[[Any, Tensor, "int | None", "str | None"], CoarseMap]


class Remembered(nn.Module):
    """A model that is not asked twice about the same batch: scores of one picture serve every source.

    A whole batch or none: what a picture gives may depend, in the last digit, on what it is passed together with.
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.inner = model  # a module shows its layers and keeps its mode
        self.memory = Memory()

    def forward(self, batch: Tensor) -> Any:
        """The model's own output."""
        content = batch.detach().cpu().movedim(1, -1).flatten().view(torch.uint8).numpy()
        key = (tuple(batch.shape), batch.dtype, blake2b(content.tobytes(), digest_size=16).digest())
        return self.memory.once(key, lambda: self.inner(batch))


@dataclass(frozen=True, eq=False)
class SceneScores:
    """What the model says of a scene's parts, and what it took: as if nothing had been shared with others."""

    scored: Scored
    evaluations: int
    seconds: float

    @property
    def field(self) -> NDArray:
        """(H, W) in [0, 1]."""
        return self.scored.field[0].numpy()


@dataclass(frozen=True, eq=False)
class Scene:
    """A picture with its coarse map, ready to be upsampled and measured."""

    name: str
    #: (C, H, W), as the model takes it.
    image: Tensor
    #: H x W x 3 in [0, 1].
    picture: NDArray
    #: (h, w) in float64.
    coarse: NDArray
    target: int
    truth: NDArray | None
    #: For gradients, and for all other passes.
    model: Model
    forward: Model
    #: ``forward`` for scores, and answers that do not depend on the coarse map: what sources share.
    scorer: Remembered
    #: Of everything random about this picture.
    seed: int
    #: Maps of finer layers from the pass that made the coarse map; none where nobody looked.
    heard: tuple[Tensor, ...] = ()
    memory: Memory = field(default_factory=Memory)
    of_picture: Memory = field(default_factory=Memory)

    def scored(self, settings: Settings, *, everywhere: bool = False) -> SceneScores:
        """Scores as the settings have them; contenders that differ in the operator alone share them.

        ``everywhere``: also where cells of no mass make scores needless, for those who will move the masses.
        """
        local = settings.budget == "cell" and not everywhere and settings.edges == "segments" and not settings.trace
        left = settings.limit
        if left is not None and settings.base == "layers":
            left -= self.finer_evaluations
        choices = tuple(value for name, value in vars(settings).items() if name not in _OF_THE_OPERATOR)
        # a posterior also depends on what the coarse map and the layers let expect; everywhere, that is nothing
        expects = (None if everywhere else settings.base, everywhere) if settings.fit == "posterior" else ()
        key = (*choices, left, local, bool(self.coarse.any()), *expects)

        def made() -> tuple[Scored, int, float]:
            model = self.model if settings.scoring == "gradient" else self.scorer
            asked = engine(model, self.target, link=settings.link, limit=left)
            finer = [level[None] for level in self.finer()] if settings.base == "layers" else []
            given = Input(torch.from_numpy(self.coarse), self.image, self.picture, self.target)
            lent = self.scorer.memory.lent
            scored = scores_of(given, asked, settings, finer=finer, everywhere=everywhere)
            return scored, asked.meter.spent, self.scorer.memory.lent - lent

        scored, spent, lent = self.memory.once(key, made)
        return SceneScores(scored, spent, self.memory.seconds(key) + lent)

    def finer(self) -> tuple[Tensor, ...]:
        """Maps of the model's finer layers, for whoever has them as base measure; empty where it has none."""

        def made() -> tuple[Tensor, ...]:
            module = module_of(self.model)
            if module is None:
                return ()
            found = finer_maps(engine(self.model, self.target), module, self.image, self.coarse.size)
            return tuple(level[0] for level in found.maps)

        return self.heard or self.of_picture.once(("finer", self.coarse.size), made)

    @property
    def finer_evaluations(self) -> int:
        """What they take beside the coarse map's own pass, as in `usu.explain`: nothing where that pass heard them."""
        return int(not self.heard and bool(self.finer()))

    @property
    def finer_seconds(self) -> float:
        """How long that took, for each of those who have them."""
        return self.of_picture.seconds(("finer", self.coarse.size))

    def case(self, pixel_map: NDArray) -> Case:
        """A map of this picture, to be measured."""
        segments = self.of_picture.once("parts", lambda: np.asarray(_SEGMENTER(self.picture, _PARTS)))
        return Case(
            pixel_map=pixel_map, image=self.image, model=self.forward, target=self.target, coarse=self.coarse,
            truth=self.truth, segments=segments, seed=self.seed, of_picture=self.of_picture,
        )  # fmt: skip


def scene_of(
    sample: Sample, model: Model, forward: Model, *, source: str | Source, layer: str | None, seed: int
) -> Scene:
    """A picture with its own coarse map or the source's, for its target or the model's top class."""
    image = check.as_tensor("image", sample.image)
    if image.ndim != 3:
        raise ValueError(f"`image` must be one picture, C x H x W; got {check.shape(image)}.")
    own = None if sample.coarse is None else check.as_numpy(sample.coarse).astype(np.float64)
    if own is not None and own.ndim != 2:
        raise ValueError(f"`coarse` must be one map, h x w; got {own.ndim} dimensions.")
    target = sample.target
    if target is None and own is None and not isinstance(source, str):  # it has to be told
        target = _top_class(model, image)
    found = None if own is not None else mapped(source, model, image, target, layer)
    if found is not None and found.targets:
        target = found.targets[0]
    if target is None:
        target = _top_class(forward, image)
    if not isinstance(target, int):
        raise TypeError(f"`target` must be a class index or None; got {type(target).__name__}.")
    picture = check.as_numpy(displayable(image) if sample.picture is None else sample.picture)
    size, truth = tuple(image.shape[-2:]), None
    if sample.truth is not None:
        truth = checked_truth(sample.truth, size, needed=False, like="its image").numpy()
    # a picture's random numbers do not depend on which pictures came before it
    dice = seeded(seed, sample.name).initial_seed() % 2**31
    coarse = np.zeros((1, 1)) if own is None else own
    scene = Scene(sample.name, image, picture, coarse, target, truth, model, forward, Remembered(forward), dice)
    return scene if found is None else with_map(scene, found)


def _top_class(model: Model, image: Tensor) -> int:
    aimed = engine(model).aim(image).engine.target
    if not isinstance(aimed, tuple):
        raise TypeError(f"`target` must be a class index; got {type(aimed).__name__}.")
    return aimed[0]


def with_map(scene: Scene, found: CoarseMap) -> Scene:
    """The same picture and target with another source's map; what does not depend on that is shared."""
    coarse = check.as_numpy(found.values[0]).astype(np.float64)
    heard = tuple(level[0].cpu().double() for level in found.finer)
    return replace(scene, coarse=coarse, heard=heard, memory=Memory())


def mapped(source: str | Source, model: Model, image: Tensor, target: int | None, layer: str | None) -> CoarseMap:
    """The source's map of one picture."""
    if not isinstance(source, str):
        return source(model, image, target, layer)
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"`model` must be an nn.Module for the source {source!r}; got {type(model).__name__}. Pass `coarse` "
            "with every sample, or a module as `model` and the other as `forward`."
        )
    check.choice("source", source, SOURCES)
    return coarse_map(source, model, image[None], target, layer=layer, finer=True)
