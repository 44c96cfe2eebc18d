"""Candidates that are not a setting of the pipeline, as contenders of `usu.evaluate`. None of them became a preset.

Evaluations are those of the scores and one for the layers: `Based` looks at more of them, and could do so in one pass.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import torch
from experiments.presets.rivals import last_layers
from torch import Tensor

import usu
from usu.bench.contenders import Made
from usu.operator.interpolate import follow_picture
from usu.pipeline import map_of
from usu.refine import unit_scale
from usu.settings import Settings


def _made(scene: Any, field: Tensor, settings: Settings, spent: int, start: float, finer: Any = None) -> Made:
    """The last step, which all of them share."""
    heard = scene.finer() if finer is None else finer
    pixel_map = map_of(torch.from_numpy(scene.coarse), field.double(), settings, finer=heard).numpy()
    return Made(pixel_map, spent + 1, time.perf_counter() - start)


@dataclass(frozen=True)
class Fitted:
    """Sampled scores with what `usu.Settings` does not offer: the size of the groups, the ridge, a control variate.

    ``controlled``: gradients predict every group's value to first order; the fit is made on what they leave
    unexplained, and they are added again with the weight that explains most.
    """

    name: str
    settings: Settings
    keep: float = 0.5
    strength: float = 0.3
    controlled: bool = False

    def __call__(self, scene: Any) -> Made:
        """Effects, scores, one redistribution."""
        start, settings = time.perf_counter(), self.settings
        segments = settings.segmenter(scene.picture, settings.parts)
        spent = (settings.evaluations or 0) - 1 - self.controlled
        known: list[tuple[Tensor, Tensor]] = []
        slope = _slope(scene) if self.controlled else torch.zeros_like(scene.image)

        def asked(batch: Tensor) -> Tensor:
            with torch.no_grad():
                values = torch.as_tensor(scene.forward(batch))[:, scene.target].double()
            known.append((values, (batch.double() * slope).sum((1, 2, 3))))
            return values[:, None]

        effects = self._effects(asked, scene.image, segments, spent)
        if self.controlled:
            values, predicted = (torch.cat(column) for column in zip(*known, strict=True))
            weight = float(torch.cov(torch.stack([values, predicted]))[0, 1] / predicted.var().clamp(min=1e-300))
            rest, at = values - weight * predicted, [0]

            def replayed(batch: Tensor) -> Tensor:
                at[0] += len(batch)
                return rest[at[0] - len(batch) : at[0], None]

            effects = self._effects(replayed, scene.image, segments, spent)
            line = usu.forward.engine(lambda batch: (batch.double() * slope).sum((1, 2, 3))[:, None], target=0)
            effects = effects + weight * usu.score.gradient(line, scene.image, segments).values
        field = unit_scale(effects)(effects)[:, torch.from_numpy(segments)]
        return _made(scene, follow_picture(field, scene.picture)[0], settings, spent + self.controlled, start)

    def _effects(self, model: Any, image: Tensor, segments: np.ndarray, evaluations: int) -> Tensor:
        engine = usu.forward.engine(model, target=0)
        return usu.score.sampled(
            engine, image, segments, evaluations=evaluations, keep_probability=self.keep, strength=self.strength,
            fill=self.settings.fill, seed=self.settings.seed,
        ).values  # fmt: skip


def _slope(scene: Any) -> Tensor:
    leaf = scene.image[None].clone().requires_grad_()
    with torch.enable_grad():
        value = scene.model(leaf)[0, scene.target]
    return torch.autograd.grad(value, leaf)[0][0].double()


@dataclass(frozen=True)
class Mixed:
    """The mean of several score fields that share the budget: fills, or segmentations of several sizes."""

    name: str
    settings: Settings
    fills: tuple[Any, ...] = ("blur",)
    parts: tuple[int, ...] = (150,)

    def __call__(self, scene: Any) -> Made:
        """Scores of each, their mean, one redistribution."""
        start, pairs = time.perf_counter(), [(fill, parts) for fill in self.fills for parts in self.parts]
        each = (self.settings.evaluations or 0) // len(pairs)
        found = [
            scene.scored(replace(self.settings, fill=fill, parts=parts, evaluations=each)) for fill, parts in pairs
        ]
        field = np.mean([one.field for one in found], axis=0)
        return _made(scene, torch.from_numpy(field), self.settings, sum(one.evaluations for one in found), start)


@dataclass(frozen=True)
class Perplexed:
    """A temperature of its own for each picture: the weights of all pixels spread over the same share of them.

    exp(entropy of softmax(Φ / T)) = share · pixels, by bisection.
    """

    name: str
    settings: Settings
    share: float = 0.4

    def __call__(self, scene: Any) -> Made:
        """The preset's scores, and one redistribution."""
        start, found = time.perf_counter(), scene.scored(self.settings)
        field = torch.from_numpy(found.field)
        own = replace(self.settings, temperature=temperature_of(field, self.share))
        return _made(scene, field, own, found.evaluations, start)


def temperature_of(field: Tensor, share: float) -> float:
    """The temperature at which softmax(field / T) has the perplexity share · pixels; between 0.01 and 10.

    >>> field = torch.tensor([0.0, 1.0]).repeat(50)  # half of the pixels at 1: a perplexity of 55 of 100
    >>> 0.1 < temperature_of(field, 0.55) < 0.4
    True
    """
    low, high = 0.01, 10.0
    for _ in range(40):
        middle = (low * high) ** 0.5
        logs = (field.flatten().double() / middle).log_softmax(0)
        perplexity = float((-(logs.exp() * logs).sum()).exp())
        low, high = (middle, high) if perplexity < share * prod(field.shape) else (low, middle)
    return (low * high) ** 0.5


@dataclass(frozen=True)
class Based:
    """Another base measure: LayerCAMs of two finer layers instead of one."""

    # the conserved pyramid was one, too, and is gone: its rows are in docs/results/presets-search-candidates.csv
    name: str
    settings: Settings

    def __call__(self, scene: Any) -> Made:
        """The preset's scores on that base."""
        start, found = time.perf_counter(), scene.scored(self.settings)
        finer = tuple(
            usu.layercam(scene.model, scene.image[None], scene.target, layer=layer).values[0].double()
            for layer in last_layers(scene.model, scene.image)[1:3]
        )
        return _made(scene, torch.from_numpy(found.field), self.settings, found.evaluations, start, finer)
