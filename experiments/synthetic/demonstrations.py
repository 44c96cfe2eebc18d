"""Single pictures for the figures, chosen by rule: what a model's coarse map becomes under every method."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from experiments.synthetic.additive import additive, shapley
from experiments.synthetic.coarse import cell_means, coarse_maps
from experiments.synthetic.figures import Shown
from experiments.synthetic.measures import true_map
from experiments.synthetic.methods import magnitude, paper, redistributed, studied
from experiments.synthetic.patterns import patterns
from experiments.synthetic.shapes import CLASSES, Pictures
from torch import Tensor, nn

import usu
from usu.bench import Table

#: Of the paper's figures.
GRID = 7


def shown(title: str, model: nn.Module, pictures: Pictures, number: int) -> tuple[Shown, usu.Upsampled]:
    """One picture of a split; the truth is the shape, with the mass of the coarse map."""
    one = slice(number, number + 1)
    label = int(pictures.labels[number])
    coarse = coarse_maps(model, pictures.images[one], pictures.labels[one], GRID)[0].numpy()
    truth = true_map(pictures.truths[number].numpy(), coarse)
    target = magnitude(model, pictures.images[number], label)
    return _upsampled(
        f"{title} {CLASSES[label]}", pictures.images[number], truth, coarse, model, target, settings=studied("iwmr")
    )


def striking(rows: Table, model: nn.Module, pictures: Pictures, method: str = "bilinear") -> tuple[Shown, Shown]:
    """Of the pictures that were measured, the one on which a method loses most, and another on which it invents most.

    A method that keeps the total loses as much as it invents, so without "another" both would be one picture.
    """
    lost = int(np.nanargmax(rows.values("beta-error")[method]))
    invented = rows.values("alpha-error")[method].copy()
    invented[lost] = -np.inf
    return shown("", model, pictures, lost)[0], shown("", model, pictures, int(np.nanargmax(invented)))[0]


def nine(cnn: nn.Module, mlp: nn.Module, pictures: Pictures) -> list[Shown]:
    """The paper's nine: two shapes of the CNN, five patterns, two shapes of the MLP.

    A pattern has no class to be trained on. Its model is additive, so that its truth is exact: `additive`. Its scores
    have a direction, as its truth has, and come from the preset as it is.
    """
    first = [int((pictures.labels == label).nonzero()[0]) for label in range(len(CLASSES))]
    fields = patterns(size=pictures.images.shape[-1])
    return [
        *(shown("RRL-CNN", cnn, pictures, first[label])[0] for label in (0, 1)),
        *(_pattern(name, field) for name, field in fields.items()),
        *(shown("RRL-MLP", mlp, pictures, first[label])[0] for label in (2, 1)),
    ]


def _pattern(name: str, field: Tensor) -> Shown:
    model = additive(len(field), classes=1)
    truth = shapley(model, field[None, None], torch.tensor([0]))[0]
    coarse = cell_means(truth[None], GRID)[0].numpy()
    return _upsampled(name, field[None], truth.numpy(), coarse, model, 0, settings=paper("iwmr"))[0]


def _upsampled(
    name: str, image: Tensor, truth: np.ndarray, coarse: np.ndarray, model: Any, target: Any, *, settings: usu.Settings
) -> tuple[Shown, usu.Upsampled]:
    picture = image[0].numpy().astype(float)
    maps = {mode: usu.interpolate(coarse, picture.shape, mode) for mode in ("bilinear", "bicubic", "lanczos3")}
    # scored for the whole picture, as in the tables, so that both budgets have the same scores
    shown = np.repeat(picture[..., None], 3, axis=2)
    result = usu.upsample(coarse, image, model, target, preset=settings, picture=shown)
    maps["usu"] = redistributed(coarse, result.scores, "usu")
    maps["iwmr"] = result.pixel_map
    return Shown(name.strip(), picture, truth, coarse, maps), result
