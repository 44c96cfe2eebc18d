"""Can a map be trusted? It must change with what the model has learnt, and stay when something else is changed."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from html import escape
from typing import Any, Literal

import torch
from torch import nn

from usu import _checks as check
from usu.errors import UsuWarning
from usu.forward import Progress
from usu.inputs import pictured
from usu.metrics.curves import spearman
from usu.models.libraries import known
from usu.pipeline.certainty import mean_iou
from usu.pipeline.explain import explain, line_of
from usu.results import Explanation
from usu.segment.felzenszwalb import Felzenszwalb
from usu.segment.segmenter import Segmenter
from usu.segment.tiles import Tiles
from usu.settings import EXPLAIN_DEFAULT, Settings, settings_of
from usu.sources import LAYER_SOURCES

#: The pixels that count as highlighted, as in ``stability``.
_TOP = 0.05
#: A map follows the model where, with all its weights shuffled, less than this part of the agreement is left.
_LEFT = 0.5


@dataclass(frozen=True)
class SanityTrial:
    """One thing that was changed, and what is left of the map."""

    name: str
    #: Whether the map has to change with it, or to stay.
    wanted: Literal["other", "same"]
    #: Of the 5 % highest pixels with those of the map as it was; 0.026 for two maps that have nothing in common.
    iou: float
    #: Spearman's, over all pixels.
    correlation: float


@dataclass(frozen=True, repr=False)
class Sanity:
    """What is left of one map when the model, or the way of asking it, is changed."""

    explanation: Explanation
    trials: tuple[SanityTrial, ...]

    @property
    def passed(self) -> bool:
        """Whether most of the map goes away with the model's weights, and not with another seed."""
        return self._of("all layers shuffled") < _LEFT * self._of("another seed")

    @property
    def sentence(self) -> str:
        """The conclusion."""
        gone, kept = self._of("all layers shuffled"), self._of("another seed")
        same = [trial.iou for trial in self.trials if trial.wanted == "same" and trial.name != "another seed"]
        asked = f", asked in other ways {min(same):.2f} to {max(same):.2f}" if same else ""
        found = "follows" if self.passed else "does not depend on"
        advice = "" if self.passed else "; do not rely on it"
        agreement = f"{gone:.2f} with all weights shuffled, {kept:.2f} with another seed{asked}"
        return f"IoU of the highlighted pixels: {agreement}: the map {found} what the model has learnt{advice}."

    def rows(self) -> list[dict[str, Any]]:
        """The trials as plain values."""
        return [asdict(trial) for trial in self.trials]

    def __repr__(self) -> str:
        width = max(len(trial.name) for trial in self.trials)
        lines = [f"{'changed':<{width}}  should be  IoU   correlation"]
        lines += [f"{t.name:<{width}}  {t.wanted:<9}  {t.iou:.2f}  {t.correlation:+.2f}" for t in self.trials]
        return "\n".join([*lines, self.sentence])

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{escape(t.name)}</td><td>{t.wanted}</td><td>{t.iou:.2f}</td><td>{t.correlation:+.2f}</td></tr>"
            for t in self.trials
        )
        head = "<tr><th>changed</th><th>should be</th><th>IoU</th><th>correlation</th></tr>"
        return f"<table>{head}{rows}</table><p>{escape(self.sentence)}</p>"

    def _of(self, name: str) -> float:
        return next(trial.iou for trial in self.trials if trial.name == name)


def sanity(
    model: Any,
    image: Any,
    target: Any = None,
    *,
    source: str = "gradcam",
    layer: str | None = None,
    preset: str | Settings | None = None,
    evaluations: int = 150,
    steps: int = 4,
    prepare: Any = None,
    classes: Sequence[str] | None = None,
    progress: Progress | bool | None = None,
) -> Sanity:
    """What is left of a map when the model is spoiled, and when the same is asked in another way.

    The weights are shuffled from the last layer to the first (within each tensor, so that its numbers stay the same),
    in ``steps`` steps; the map must change. Another seed, other fills, segmenters and another source are tried; the
    map should stay. About ``steps`` + 6 explanations of ``evaluations`` each.

    Args:
        model: an ``nn.Module``, or what `usu.explain` takes with one inside. It is not touched: a copy is spoiled.
        image: and the other arguments: as in `usu.explain`.
        target: one class index or name, a callable on the output, or None for the model's top class.
        evaluations: of each explanation.
        steps: how many stages of shuffling, from the last layer alone to all layers; at most as many as there are.
        progress: True shows a line on standard error; or a function, called with the explanations done and to do.

    >>> net = nn.Sequential(nn.Conv2d(1, 2, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    >>> found = sanity(net, torch.rand(1, 9, 9), 1, evaluations=8, steps=1)
    >>> [trial.name for trial in found.trials][:2]
    ['another seed', 'fill mean']
    """
    check.whole_number("steps", steps, least=1)
    about = known(model, prepare)
    if not isinstance(about.model, nn.Module):
        got = type(about.model).__name__
        raise TypeError(f"`model` must be an nn.Module, whose weights can be shuffled; got {got}.")
    given = pictured(image, about)
    settings = settings_of(preset, default=EXPLAIN_DEFAULT, evaluations=evaluations)
    ways, trials = list(_ways(settings, source, given.image.ndim - 1)), list[SanityTrial]()
    layers = [name for name, module in about.model.named_modules() if list(module.parameters(recurse=False))][::-1]
    if not layers:
        raise ValueError("`model` must have weights to shuffle; got one without.")
    steps = min(steps, len(layers))  # more would show the same model twice
    told, count = line_of(progress, what="explanations"), 1 + len(ways) + steps
    with warnings.catch_warnings():  # a spoiled model finds no evidence as often as not; nobody has to be told
        warnings.simplefilter("ignore", UsuWarning)
        first = explain(
            model, image, target, source=source, layer=layer, preset=settings, prepare=prepare, classes=classes
        )
        goal = first.source.targets[0] if first.source.targets else target

        def tried(name: str, wanted: Literal["other", "same"], net: nn.Module, own: Settings, source: str) -> None:
            place = first.source.layer if source in LAYER_SOURCES else None
            second = explain(
                net, given.image, goal, source=source, layer=place or None, preset=own, picture=first.picture
            )
            maps = [first.first_map, second.first_map]
            iou = mean_iou(torch.stack([torch.from_numpy(one).double() for one in maps]), share=_TOP)
            trials.append(SanityTrial(name, wanted, iou, spearman(*(one.ravel() for one in maps))))
            told(len(trials) + 1, count)

        for name, changed, other in ways:
            tried(name, "same", about.model, changed, other)
        for name, net in _spoiled(about.model, layers, steps):
            tried(name, "other", net, settings, source)
    return Sanity(first, tuple(trials))


def _ways(settings: Settings, source: str, dims: int) -> Iterator[tuple[str, Settings, str]]:
    """The same question, asked differently."""
    scored = settings.scoring in ("sampled", "delete")
    yield "another seed", replace(settings, seed=settings.seed + 1), source
    for fill in ("mean", "noise") if scored else ():
        if settings.fill != fill:
            yield f"fill {fill}", replace(settings, fill=fill), source
    segmenters: list[Segmenter] = [Tiles()] if dims == 3 else [Felzenszwalb(), Tiles()]  # which cuts no volumes
    for segmenter in segmenters if scored else ():
        yield f"segments {type(segmenter).__name__}", replace(settings, segmenter=segmenter), source
    if source in LAYER_SOURCES:
        other = "layercam" if source != "layercam" else "gradcam"
        yield f"source {other}", settings, other


def _spoiled(model: nn.Module, layers: Sequence[str], steps: int) -> Iterator[tuple[str, nn.Module]]:
    """Copies of the model, more and more of whose ``layers`` are shuffled, in this order."""
    spoiled = copy.deepcopy(model)
    dice, done = torch.Generator().manual_seed(0), 0
    for step in range(1, steps + 1):
        # from the last layer alone to all of them
        upto = 1 + round((len(layers) - 1) * (step - 1) / (steps - 1)) if steps > 1 else len(layers)
        for name in layers[done:upto]:
            for weights in spoiled.get_submodule(name).parameters(recurse=False):
                order = torch.randperm(weights.numel(), generator=dice).to(weights.device)
                weights.data.copy_(weights.flatten()[order].reshape(weights.shape))
        done = upto
        title = "all layers shuffled" if done == len(layers) else f"last {done} of {len(layers)} layers shuffled"
        yield title, spoiled
