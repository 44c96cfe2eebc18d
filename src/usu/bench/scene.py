"""One picture at work: its coarse map, its target, and all about it that several upsamplers would compute twice."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

import numpy as np
import torch
from torch import Tensor, nn

from usu import _checks as check
from usu._checks import as_numpy
from usu.bench.sample import Sample
from usu.forward import Model, engine
from usu.inputs import Input, displayable
from usu.metrics.catalogue import Case
from usu.metrics.maps import checked_truth
from usu.metrics.passes import Memory, seeded
from usu.pipeline import Scored, scores_of
from usu.segment import Slic
from usu.settings import Settings
from usu.sources import coarse_map
from usu.sources.finer import finer_maps, module_of
from usu.types import NDArray

#: The segments of metrics that ask for some; no preset's, so that tables can be compared when presets change.
_SEGMENTER, _PARTS = Slic(smoothing=1.0), 150
#: What the scores do not depend on.
_OF_THE_OPERATOR = ("temperature", "potential", "budget", "base", "signed", "max_gain", "trace")


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
    #: Of everything random about this picture.
    seed: int
    #: Maps of finer layers from the pass that made the coarse map; none where nobody looked.
    heard: tuple[Tensor, ...] = ()
    memory: Memory = field(default_factory=Memory)

    def scored(self, settings: Settings, *, everywhere: bool = False) -> SceneScores:
        """Scores as the settings have them; contenders that differ in the operator alone share them.

        ``everywhere``: also where cells of no mass make scores needless, for those who will move the masses.
        """
        local = settings.budget == "cell" and not everywhere and settings.edges == "segments" and not settings.trace
        left = settings.limit
        if left is not None and settings.base == "layers":
            left -= self.finer_evaluations
        choices = tuple(getattr(settings, one.name) for one in fields(settings) if one.name not in _OF_THE_OPERATOR)
        # a posterior also depends on what the coarse map and the layers let expect; everywhere, that is nothing
        expects = (None if everywhere else settings.base, everywhere) if settings.fit == "posterior" else ()
        key = (*choices, left, local, bool(self.coarse.any()), *expects)

        def made() -> tuple[Scored, int]:
            asked = engine(
                self.model if settings.scoring == "gradient" else self.forward, self.target, link=settings.link,
                limit=left,
            )  # fmt: skip
            finer = [level[None] for level in self.finer()] if settings.base == "layers" else []
            scored = scores_of(self.given, asked, settings, finer=finer, everywhere=everywhere)
            return scored, asked.meter.spent

        return SceneScores(*self.memory.once(key, made), self.memory.seconds(key))

    @property
    def given(self) -> Input:
        """What the pipeline is given."""
        return Input(torch.from_numpy(self.coarse), self.image, self.picture, self.target)

    def finer(self) -> tuple[Tensor, ...]:
        """Maps of the model's finer layers, for whoever has them as base measure; empty where it has none."""

        def made() -> tuple[Tensor, ...]:
            module = module_of(self.model)
            if module is None:
                return ()
            found = finer_maps(engine(self.model, self.target), module, self.image, self.coarse.size)
            return tuple(level[0] for level in found.maps)

        return self.heard or self.memory.once("finer", made)

    @property
    def finer_evaluations(self) -> int:
        """What they take beside the coarse map's own pass, as in `usu.explain`: nothing where that pass heard them."""
        return int(not self.heard and bool(self.finer()))

    @property
    def finer_seconds(self) -> float:
        """How long that took, for each of those who have them."""
        return self.memory.seconds("finer")

    def segments(self) -> NDArray:
        """The picture's parts, for metrics that ask for them."""
        return self.memory.once("parts", lambda: np.asarray(_SEGMENTER(self.picture, _PARTS)))

    def case(self, pixel_map: NDArray) -> Case:
        """A map of this picture, to be measured."""
        return Case(
            pixel_map=pixel_map, image=self.image, model=self.forward, target=self.target, coarse=self.coarse,
            truth=self.truth, segments=self.segments(), seed=self.seed, of_picture=self.memory,
        )  # fmt: skip


def scene_of(sample: Sample, model: Model, forward: Model, *, source: str, layer: str | None, seed: int) -> Scene:
    """A picture's coarse map from the source (or its own), for its target or the model's top class."""
    image = check.as_tensor("image", sample.image)
    if image.ndim != 3:
        raise ValueError(f"`image` must be one picture, C x H x W; got {check.shape(image)}.")
    target = sample.target
    heard: tuple[Tensor, ...] = ()
    if sample.coarse is not None:
        coarse = as_numpy(sample.coarse).astype(np.float64)
        if coarse.ndim != 2:
            raise ValueError(f"`coarse` must be one map, h x w; got {coarse.ndim} dimensions.")
    else:
        if not isinstance(model, nn.Module):
            raise TypeError(
                f"`model` must be an nn.Module for the source {source!r}; got {type(model).__name__}. Pass `coarse` "
                "with every sample, or a module as `model` and the other as `forward`."
            )
        found = coarse_map(source, model, image[None], target, layer=layer, finer=True)
        heard = tuple(level[0].cpu().double() for level in found.finer)
        coarse = as_numpy(found.values[0]).astype(np.float64)
        target = found.targets[0] if found.targets else target
    if target is None:
        aimed = engine(forward).aim(image).engine.target
        target = aimed[0] if isinstance(aimed, tuple) else None
    if not isinstance(target, int):
        raise TypeError(f"`target` must be a class index or None; got {type(target).__name__}.")
    picture = as_numpy(displayable(image)) if sample.picture is None else as_numpy(sample.picture)
    size = tuple(image.shape[-2:])
    truth = None if sample.truth is None else checked_truth(sample.truth, size, needed=False, like="its image").numpy()
    # a picture's random numbers do not depend on which pictures came before it
    own = seeded(seed, sample.name).initial_seed() % 2**31
    return Scene(sample.name, image, picture, coarse, target, truth, model, forward, own, heard)
