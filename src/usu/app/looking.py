"""One picture under the glass: its classes, its coarse maps, and scores that get sharper while somebody watches."""

from __future__ import annotations

import secrets
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from torch import Tensor

from usu._checks import as_numpy
from usu.errors import UsuWarning
from usu.forward import engine as engine_of
from usu.forward import undisturbed
from usu.forward.calls import logits_of
from usu.forward.fills import apply, filled
from usu.inputs import Input
from usu.models import Geometry, Loaded
from usu.models.pictures import Picture, prepared
from usu.operator.redistribute import Hybrid
from usu.pipeline.certainty import certainty_of, segment_scores, sentence, stability_so_far
from usu.pipeline.explain import coarse_of, remarks_on, shown_of
from usu.pipeline.halves import Scored, field_of, scores_of
from usu.refine import StopReason
from usu.score.groups import Effects
from usu.settings import PRESETS, Settings
from usu.sources import LAYER_SOURCES
from usu.sources.cams import CoarseMap
from usu.types import NDArray

#: What the page calls a budget, as settings. They share their scores, so that one set serves all three.
BUDGETS: Mapping[str, Settings] = {
    "cell": PRESETS["cell"],
    "hybrid": replace(PRESETS["cell"], budget=Hybrid(0.5), trace=0.0),
    "soft": PRESETS["soft"],
}
#: Looks before those of the scoring itself: the first sharpening is on the screen after two dozen groups.
EARLY = (24, 48)
#: Classes whose scores are kept for one picture.
_KEPT = 8
#: Called between two pieces of work, for others to have their turn: will do what there is? May raise, which ends it.
Between = Callable[[], bool]


@dataclass(eq=False)
class Passes:
    """A model that is not asked twice: every output is kept by the picture it belongs to, all classes of it.

    >>> passes = Passes(lambda batch: batch.sum((1, 2, 3))[:, None])
    >>> pictures = torch.stack([torch.zeros(1, 2, 2), torch.ones(1, 2, 2)])
    >>> passes(pictures).flatten().tolist(), passes(pictures[1:]).item(), passes.count
    ([0.0, 4.0], 4.0, 2)
    """

    model: Callable[[Tensor], Any]
    #: Pictures passed through the model.
    count: int = 0
    _kept: dict[bytes, Tensor] = field(default_factory=dict)

    def __call__(self, batch: Tensor) -> Tensor:
        """The logits (N, classes) of a batch."""
        keys = [blake2b(row.contiguous().numpy(), digest_size=16).digest() for row in batch.detach().cpu()]
        new = {key: row for row, key in enumerate(keys) if key not in self._kept}
        if new:
            with undisturbed(self.model), torch.no_grad():
                found = logits_of(self.model(batch[list(new.values())])).float().cpu()
            self.count += len(new)
            self._kept.update(zip(new, found, strict=True))
        return torch.stack([self._kept[key] for key in keys])


@dataclass(frozen=True, eq=False)
class Explained:
    """What is known of one class in one picture."""

    target: int
    given: Input
    source: CoarseMap
    #: What is shown where the source's map is zero; None where it is not.
    instead: str | None
    #: None until the first look.
    scored: Scored | None = None
    stability: float | None = None
    #: (H, W): the standard deviation of each pixel's value, and what a person should know; of a finished map.
    stderr: Tensor | None = None
    remark: str = ""
    evaluations: int = 0
    seconds: float = 0.0
    #: False while it gets sharper.
    finished: bool = False

    @property
    def finer(self) -> list[Tensor]:
        """(1, h, w) of each finer layer."""
        return [level[None] for level in self.given.finer or ()]

    @property
    def field(self) -> Tensor | None:
        """(H, W) in [0, 1]: the scores that mass follows."""
        return None if self.scored is None else self.scored.field[0]


@dataclass(eq=False)
class Opened:
    """A picture somebody opened, with all that was learnt about it. Nothing of it is on a disk."""

    picture: Picture
    #: What the model takes, how that sits in the picture, and the same part as a person sees it.
    image: Tensor
    geometry: Geometry
    view: NDArray
    passes: Passes
    logits: Tensor
    id: str = field(default_factory=lambda: secrets.token_urlsafe(12))
    explained: OrderedDict[int, Explained] = field(default_factory=OrderedDict)
    #: Groups that were evaluated: whatever class is asked about next, these serve it.
    sampled: int = 0
    #: Of the whole picture, by the number of parts that was asked for.
    partitions: dict[int, NDArray] = field(default_factory=dict)

    @property
    def about(self) -> dict[str, Any]:
        """What the log says of it."""
        return {"pixels": list(self.picture.size)}

    def keep(self, one: Explained) -> Explained:
        """Remember it; of many classes, those looked at last."""
        self.explained[one.target] = one
        self.explained.move_to_end(one.target)
        while len(self.explained) > _KEPT:
            self.explained.popitem(last=False)
        return one

    def cut(self, picture: NDArray, parts: int, region: NDArray | None = None) -> Any:
        """The presets' segmenter, which does not cut the whole picture twice."""
        segmenter = PRESETS["soft"].segmenter
        if region is not None:
            return segmenter(picture, parts, region=region)
        if parts not in self.partitions:
            self.partitions[parts] = segmenter(picture, parts)
        return self.partitions[parts]


@dataclass(frozen=True, eq=False)
class Glass:
    """A model and how to ask it: the same for all visitors."""

    loaded: Loaded
    #: What runs the model for scores.
    runs: Callable[[Tensor], Any]
    #: Its name, and why it is not a faster one.
    engine: str = "torch"
    note: str = ""
    source: str | NDArray = "gradcam"

    def opened(self, picture: Picture) -> Opened:
        """The picture ready to be asked about; one pass tells its classes."""
        image, geometry, view = prepared(picture, self.loaded.prepare)
        passes = Passes(self.runs)
        return Opened(picture, image, geometry, view, passes, passes(image[None])[0])

    def name(self, target: int) -> str:
        """The class as a person reads it."""
        classes = self.loaded.classes
        return classes[target] if classes is not None and target < len(classes) else f"class {target}"

    def likeliest(self, logits: Tensor) -> list[dict[str, Any]]:
        """The five top classes with their probabilities; of a model of one output, its sigmoid."""
        chances = probabilities(logits)
        top = chances.topk(min(5, len(chances)))
        return [
            {"index": int(i), "name": self.name(int(i)), "probability": float(p)}
            for p, i in zip(top.values, top.indices, strict=True)
        ]

    def begun(self, opened: Opened, target: int) -> Explained:
        """The coarse map and the finer layers of a class: one forward and one backward pass."""
        known = opened.explained.get(target)
        if known is not None:
            return opened.keep(known)
        layer = self.loaded.layer if isinstance(self.source, str) and self.source in LAYER_SOURCES else None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UsuWarning)
            source = coarse_of(self.loaded.model, opened.image[None], target, self.source, layer, None, finer=True)
        values, levels, instead = shown_of(source, PRESETS["soft"])
        finer = tuple(level.double() for level in levels or ())
        given = Input(torch.from_numpy(values), opened.image, opened.view, target, finer=finer)
        return opened.keep(Explained(target, given, replace(source, notes=remarks_on(source, instead)), instead))

    def sharpened(
        self, opened: Opened, begun: Explained, settings: Settings, between: Between, look: Callable[[Explained], None]
    ) -> Explained:
        """Scores that get sharper: ``look`` is told every now and then, and what is returned knows its uncertainty.

        Ends where it is stable, at the settings' evaluations, or where ``between`` says that what there is will do.
        """
        start, given, finer = time.perf_counter(), begun.given, begun.finer
        # all segments, however early it ends: a longer run begins with the groups of a shorter one
        settings = replace(settings, segmenter=opened.cut, per_segment=0)

        def known(scored: Scored, spent: int, stability: float | None) -> Explained:
            now = replace(begun, scored=scored, evaluations=spent, stability=stability, stderr=None, remark="")
            return replace(now, seconds=time.perf_counter() - start)

        def asked(own: Settings, enough: Any) -> tuple[Scored, int]:
            engine = engine_of(opened.passes, begun.target, link=own.link, limit=own.limit)
            scored = scores_of(given, engine, own, finer=finer, enough=enough, progress=lambda done, total: between())
            return scored, engine.meter.spent

        def shown(effects: Effects, labels: NDArray) -> bool:
            stability = stability_so_far(effects, labels, given, settings, finer)
            field = field_now(effects, labels, given, settings)
            scored = Scored(field, (), (labels,), StopReason.EVALUATIONS, None, effects)
            look(known(scored, len(effects.groups), stability))
            return stability >= settings.stability

        soon = settings.evaluations == "auto" and settings.depth == 0
        for groups in [n for n in EARLY if soon and n < settings.ceiling]:
            early, _ = asked(replace(settings, evaluations=groups), None)
            if early.effects is not None:
                shown(early.effects, early.segments[-1])
        scored, spent = asked(settings, shown)
        opened.sampled = max(opened.sampled, 0 if settings.depth else spent)
        if scored.effects is None:
            return opened.keep(replace(known(scored, spent, None), finished=True))
        certainty = certainty_of(scored, given, settings, finer)
        done, remark = known(scored, spent, certainty.stability), sentence(certainty, settings.stability)
        return opened.keep(replace(done, stderr=certainty.stderr, remark=remark, finished=True))

    def without(self, opened: Opened, keep: Tensor) -> tuple[Tensor, NDArray]:
        """What if only ``keep`` (H, W) were there? The logits, and the picture as the model then sees it."""
        fill = PRESETS["soft"].fill
        image = apply(opened.image, filled(opened.image, fill), keep)
        shown = torch.from_numpy(opened.view).movedim(-1, 0)
        view = apply(shown, filled(shown, fill), keep).clamp(0, 1).movedim(0, -1)
        return opened.passes(image[None])[0], np.rint(255 * as_numpy(view)).astype(np.uint8)


def field_now(effects: Effects, labels: NDArray, given: Input, settings: Settings) -> Tensor:
    """(T, H, W): the scores that `scores_of` would make of these effects, were they the last."""
    scores = segment_scores(effects.mean, labels, settings)
    return field_of(scores[:, torch.from_numpy(labels)], given.picture, settings)


def probabilities(logits: Tensor) -> Tensor:
    """Of every class."""
    return logits.double().sigmoid() if len(logits) == 1 else logits.double().softmax(0)
