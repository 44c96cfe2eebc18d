"""Inputs to try an upsampler on: kinds of coarse maps and score fields, sizes that divide and sizes that do not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import cycle, islice

import numpy as np
import torch

from usu.operator.cells import grid_on
from usu.types import NDArray

COARSE_KINDS = ("smooth", "rectified", "impulse", "signed", "negative")
SCORE_KINDS = ("segments", "continuous", "spikes", "binary", "constant")
SIZES = (((7, 7), (56, 56)), ((4, 6), (30, 25)), ((2, 2), (16, 16)), ((5, 3), (17, 40)), ((3, 3), (12, 12)))


@dataclass(frozen=True)
class Trial:
    """One input: a coarse map and scores; a grey picture of these scores goes with them."""

    coarse: NDArray
    scores: NDArray
    about: str

    @cached_property
    def labels(self) -> NDArray:
        """The cell of each pixel."""
        return grid_on("scores", self.scores.shape, torch.from_numpy(self.coarse)).labels().numpy()

    @property
    def divisible(self) -> bool:
        """Whether every cell has the same number of pixels."""
        return all(n % k == 0 for n, k in zip(self.scores.shape, self.coarse.shape, strict=True))

    @property
    def sizes(self) -> NDArray:
        """Pixels per cell."""
        return np.bincount(self.labels.ravel(), minlength=self.coarse.size)

    @property
    def masses(self) -> NDArray:
        """M_k = a_k · pixels."""
        return self.coarse.ravel() * self.sizes


def coarse_map(kind: str, grid: tuple[int, int], rng: np.random.Generator) -> NDArray:
    """A map as attribution methods make them."""
    noise = rng.normal(size=grid)
    match kind:
        case "smooth":  # like a class activation map: a few soft bumps on nearly nothing
            y, x = np.mgrid[: grid[0], : grid[1]]
            bumps = np.zeros(grid)
            for _ in range(rng.integers(1, 4)):
                cy, cx, width = rng.uniform(0, grid[0]), rng.uniform(0, grid[1]), rng.uniform(0.1, 0.22) * max(grid)
                bumps += rng.uniform(0.3, 1) * np.exp(-((y - cy) ** 2 + (x - cx) ** 2) / (2 * width**2))
            return bumps + 0.02 * np.abs(noise)
        case "rectified":
            return np.maximum(noise, 0)
        case "impulse":  # the paper's proofs: one cell has everything
            field = np.zeros(grid)
            field.flat[rng.integers(field.size)] = 1
            return field
        case "negative":
            return -np.abs(noise)
    return noise


def score_field(kind: str, size: tuple[int, int], rng: np.random.Generator) -> NDArray:
    """Scores in [0, 1] as segmenters and models make them."""
    match kind:
        case "segments":  # the nearest of a few random points
            count = int(rng.integers(4, 12))
            points = rng.uniform(0, 1, (count, 2)) * size
            y, x = np.mgrid[: size[0], : size[1]]
            distance = (y[..., None] - points[:, 0]) ** 2 + (x[..., None] - points[:, 1]) ** 2
            return np.asarray(rng.random(count)[distance.argmin(-1)])
        case "spikes":  # one pixel in thirty stands out
            return np.where(rng.random(size) < 1 / 30, 1.0, 0.2)
        case "binary":
            return rng.integers(0, 2, size).astype(float)
        case "constant":
            return np.full(size, rng.random())
    return rng.random(size)


def trials(count: int, rng: np.random.Generator) -> Iterator[Trial]:
    """``count`` trials that go through the kinds and sizes in turn (5, 5 and 5 with different steps)."""
    for i, (grid, size) in enumerate(islice(cycle(SIZES), count)):
        coarse = COARSE_KINDS[(i + i // len(SIZES)) % len(COARSE_KINDS)]
        scores = SCORE_KINDS[(2 * i + i // len(SIZES)) % len(SCORE_KINDS)]
        about = f"{coarse} map, {scores} scores, {grid[0]} x {grid[1]} -> {size[0]} x {size[1]}"
        yield Trial(coarse_map(coarse, grid, rng), score_field(scores, size, rng), about)


def disturbed(trial: Trial, rng: np.random.Generator) -> Trial:
    """A neighbour of a trial, for climbing towards a worse one."""
    coarse = trial.coarse * rng.uniform(0.5, 1.5, trial.coarse.shape)
    size = trial.scores.shape
    scores = np.clip(trial.scores + 0.2 * rng.normal(size=size) * (rng.random(size) < 0.3), 0, 1)
    return Trial(coarse, scores, f"{trial.about.removesuffix(', disturbed')}, disturbed")
