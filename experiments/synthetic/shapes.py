"""Grey pictures of one circle, triangle or square, and which pixels are the shape.

The paper says "a single centred shape". Ours vary in size and in the two grey levels and carry a little noise: without
that a class would be one picture. Classes have the same range of areas, so the amount of light does not tell them
apart; and the background is dark, not black, so gradient times input is not zero there for free.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import pi, sqrt
from typing import Literal, TypeAlias, get_args

import numpy as np
import torch
from torch import Tensor

Variant: TypeAlias = Literal["centred", "off-centre", "sizes", "two-objects", "distractors", "textured"]
#: The first is the paper's; the others are ours.
VARIANTS: tuple[Variant, ...] = get_args(Variant)
CLASSES = ("circle", "triangle", "square")
#: Shares of training, validation and test, as in the paper.
SPLITS = (0.70, 0.15, 0.15)

#: Lengths are fractions of the picture's side. A "radius" is that of the circle of the same area.
RADII = {"sizes": (0.08, 0.28), "two-objects": (0.10, 0.14), "off-centre": (0.12, 0.20), "distractors": (0.12, 0.20)}
RADIUS = (0.20, 0.28)
FOREGROUND, BACKGROUND, DIM = (0.75, 1.0), (0.05, 0.25), (0.40, 0.60)
NOISE = 0.02
#: Between a shape and the border of the picture, at least.
MARGIN = 0.02
#: Crosses that say nothing about the class.
DISTRACTORS, ARM = 6, 0.05
#: Waves in a textured background, their amplitude together, and their periods per side.
WAVES, SWING, PERIODS = 4, 0.20, (4.0, 16.0)


@dataclass(frozen=True, eq=False)
class Pictures:
    """``images`` (N, 1, S, S) in [0, 1], ``truths`` (N, S, S), True where the shape is, ``labels`` (N,)."""

    images: Tensor
    truths: Tensor
    labels: Tensor
    name: str

    def __len__(self) -> int:
        return len(self.labels)

    def pick(self, index: Tensor | slice, name: str | None = None) -> Pictures:
        """Some of them."""
        return replace(
            self, images=self.images[index], truths=self.truths[index], labels=self.labels[index],
            name=name or self.name,
        )  # fmt: skip


def shapes(count: int = 2000, *, size: int = 224, variant: Variant = "centred", seed: int = 0) -> Pictures:
    """Balanced pictures of circles, triangles and squares; picture i depends on ``seed`` and i, not on ``count``.

    centred: the paper's. off-centre: anywhere. sizes: radius from 0.08 to 0.28. two-objects: the brighter of two
    decides, and it alone is the truth. distractors: crosses around. textured: waves behind.
    """
    if variant not in VARIANTS:
        raise ValueError(f"`variant` must be one of {', '.join(VARIANTS)}; got {variant!r}. Check the spelling.")
    if count < 1 or size < 16:
        raise ValueError(
            f"`count` and `size` must be at least 1 and 16; got {count} and {size}. Smaller shapes look the same."
        )
    labels = np.arange(count) % len(CLASSES)
    drawn = [_draw(int(label), size, variant, np.random.default_rng([seed, i])) for i, label in enumerate(labels)]
    return Pictures(
        images=torch.from_numpy(np.stack([image for image, _ in drawn]))[:, None],
        truths=torch.from_numpy(np.stack([truth for _, truth in drawn])),
        labels=torch.from_numpy(labels).long(),
        name=variant,
    )


def split(pictures: Pictures, seed: int = 0) -> tuple[Pictures, Pictures, Pictures]:
    """Training, validation and test pictures, each with its classes balanced to one, also in every beginning of it."""
    generator = torch.Generator().manual_seed(seed)
    shuffled = torch.randperm(len(pictures), generator=generator)
    rank = torch.zeros(len(pictures), dtype=torch.long)
    for label in range(len(CLASSES)):
        own = shuffled[pictures.labels[shuffled] == label]
        rank[own] = torch.arange(len(own)) * len(CLASSES) + label
    order = rank.argsort()  # one of each class after the other
    first = round(SPLITS[0] * len(order))
    second = round((SPLITS[0] + SPLITS[1]) * len(order))
    parts = {"train": order[:first], "validation": order[first:second], "test": order[second:]}
    train, validation, test = (pictures.pick(index, f"{pictures.name}/{of}") for of, index in parts.items())
    return train, validation, test


def _draw(label: int, size: int, variant: Variant, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """One picture and its truth."""
    y, x = (np.mgrid[:size, :size] + 0.5) / size
    canvas = np.full((size, size), random.uniform(*BACKGROUND))
    radius = random.uniform(*RADII.get(variant, RADIUS))
    centre = np.array([0.5, 0.5])
    if variant == "two-objects":
        sides = random.permutation([0.25, 0.75])
        centre = np.array([sides[0] + random.uniform(-0.03, 0.03), random.uniform(0.25, 0.75)])
        other = np.array([sides[1] + random.uniform(-0.03, 0.03), random.uniform(0.25, 0.75)])
        # the dim one is of another class: who looks at it gives the wrong answer
        wrong = (label + random.integers(1, len(CLASSES))) % len(CLASSES)
        seen = _inside(int(wrong), x - other[0], y - other[1], random.uniform(*RADII[variant]))
        canvas[seen] = random.uniform(*DIM)
    elif variant in ("off-centre", "distractors"):
        reach = MARGIN + radius * 2 * sqrt(pi / sqrt(27))  # of the triangle, which reaches farthest
        centre = random.uniform(reach, 1 - reach, 2)
    if variant == "distractors":
        for _ in range(DISTRACTORS):
            u, v = np.abs(x - random.uniform(0.05, 0.95)), np.abs(y - random.uniform(0.05, 0.95))
            canvas[(np.maximum(u, v) < ARM) & (np.minimum(u, v) < ARM / 4)] = random.uniform(*DIM)
    elif variant == "textured":
        for _ in range(WAVES):
            angle, phase, periods = random.uniform(0, 2 * pi), random.uniform(0, 2 * pi), random.uniform(*PERIODS)
            wave = np.sin(2 * pi * periods * (x * np.cos(angle) + y * np.sin(angle)) + phase)
            canvas += SWING / WAVES * (1 + wave)
    truth = _inside(label, x - centre[0], y - centre[1], radius)
    canvas[truth] = random.uniform(*FOREGROUND)
    canvas += random.normal(0, NOISE, canvas.shape)
    return canvas.clip(0, 1).astype(np.float32), truth


def _inside(label: int, x: np.ndarray, y: np.ndarray, radius: float) -> np.ndarray:
    """Is (x, y) inside the shape around 0 that has the area of a circle of this radius? y points down."""
    if CLASSES[label] == "circle":
        return np.hypot(x, y) <= radius
    if CLASSES[label] == "square":
        return np.maximum(np.abs(x), np.abs(y)) <= radius * sqrt(pi) / 2
    inner = radius * sqrt(pi / sqrt(27))  # of the inscribed circle; its area is sqrt(27) times the square of that
    return np.maximum(y, (np.abs(x) * sqrt(3) - y) / 2) <= inner
