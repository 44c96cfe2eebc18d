"""Inputs to try an upsampler on, and one number per desideratum: how badly an input shows it violated, 0 if not at all.

NaN is "does not apply". A grey picture of its scores goes with an input; sizes divide or do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import cycle, islice

import numpy as np
import torch

from usu.operator.cells import grid_on
from usu.types import NDArray

#: (coarse map, scores) -> pixel map.
Run = Callable[[NDArray, NDArray], NDArray]

COARSE_KINDS = ("smooth", "rectified", "impulse", "signed", "negative")
SCORE_KINDS = ("segments", "continuous", "spikes", "binary", "constant")
SIZES = (((7, 7), (56, 56)), ((4, 6), (30, 25)), ((2, 2), (16, 16)), ((5, 3), (17, 40)), ((3, 3), (12, 12)))
_TINY = 1e-300


@dataclass(frozen=True)
class Trial:
    """One input: a coarse map and scores, with what their cells are."""

    coarse: NDArray
    scores: NDArray
    about: str

    @cached_property
    def labels(self) -> NDArray:
        """The cell of each pixel."""
        return grid_on("scores", self.scores.shape, torch.from_numpy(self.coarse)).labels().numpy()

    @cached_property
    def sizes(self) -> NDArray:
        """Pixels per cell."""
        return np.bincount(self.labels.ravel(), minlength=self.coarse.size)

    @cached_property
    def masses(self) -> NDArray:
        """M_k = a_k · pixels."""
        return self.coarse.ravel() * self.sizes

    def by_cell(self, *fields: NDArray) -> Iterator[tuple[NDArray, ...]]:
        """The values of each field, cell by cell."""
        order = np.argsort(self.labels.ravel(), kind="stable")
        ends = np.cumsum(self.sizes)[:-1]
        return zip(*(np.split(field.ravel()[order], ends) for field in fields), strict=True)


def coarse_map(kind: str, grid: tuple[int, ...], rng: np.random.Generator) -> NDArray:
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


def score_field(kind: str, size: tuple[int, ...], rng: np.random.Generator) -> NDArray:
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
    noise = rng.normal(size=trial.scores.shape) * (rng.random(trial.scores.shape) < 0.3)
    scores = np.clip(trial.scores + 0.2 * noise, 0, 1)
    return Trial(coarse, scores, f"{trial.about.removesuffix(', disturbed')}, disturbed")


def total_mass_error(result: NDArray, trial: Trial) -> float:
    """Mass: the error of the total relative to the mass there is, positive and negative alike."""
    return float(abs(result.sum() - trial.masses.sum()) / (np.abs(trial.masses).sum() + _TINY))


def disorder(result: NDArray, trial: Trial) -> float:
    """D2: the largest amount by which a pixel exceeds one of its cell with at least its score, relative to the cell."""
    worst = 0.0
    for values, scores in trial.by_cell(result, trial.scores):
        # of equal scores the largest value first: equal scores must get equal shares
        ordered = values[np.lexsort((-values, scores))]
        fall = np.maximum.accumulate(ordered) - ordered
        worst = max(worst, float(fall.max() / (np.abs(values).max() + _TINY)))
    return worst


def wrong_pairs(result: NDArray, trial: Trial) -> float:
    """Share of the pairs of pixels of one cell with different scores that stand in the wrong order."""
    wrong = pairs = 0
    for values, scores in trial.by_cell(result, trial.scores):
        scale = 1e-9 * np.abs(values).max()
        for shift in range(1, min(values.size, 17)):  # every pixel with its next sixteen: enough for a share
            gap = scores[shift:] - scores[:-shift]
            step = values[shift:] - values[:-shift]
            pairs += int((gap != 0).sum())
            wrong += int((gap * step < -scale * np.abs(gap)).sum())
    return wrong / pairs if pairs else 0.0


def outside_influence(run: Run, result: NDArray, trial: Trial, rng: np.random.Generator, *, shares: bool) -> float:
    """D4: the largest change inside a cell when everything outside it changes; D4' (``shares``): of its shares."""
    worst = 0.0
    everywhere = np.abs(result).mean()
    for cell in rng.choice(trial.coarse.size, size=min(4, trial.coarse.size), replace=False):
        inside = trial.labels == cell
        coarse = coarse_map("rectified" if shares else "signed", trial.coarse.shape, rng)
        coarse.flat[cell] = trial.coarse.flat[cell]
        scores = np.where(inside, trial.scores, score_field("continuous", trial.scores.shape, rng))
        before, after = result[inside], run(coarse, scores)[inside]
        if shares:
            if min(abs(before.sum()), abs(after.sum())) < 1e-9 * everywhere:
                continue  # nothing to share
            before, after = before / before.sum(), after / after.sum()
            scale = np.abs(before).max()
        else:
            scale = max(np.abs(before).max(), everywhere)
        worst = max(worst, float(np.abs(before - after).max() / (scale + _TINY)))
    return worst


def conditioning_spread(run: Run) -> float:
    """D3: max / min - 1 of the effect of a fixed score gap over the score range; NaN where a gap has no effect at all.

    Every cell of a 2 x 2 grid of ones holds two scores, s and s + Δ, the higher one in half or in one of 16 of its
    pixels; the effect is the ratio of what they get, and must depend on neither s nor the number of pixels.
    """
    effects, spread = [], 0.0
    y, x = np.mgrid[:16, :16]
    for gap in (0.05, 0.1, 0.4):
        ratios = []
        for high in (x % 2 == 0, (x % 4 == 0) & (y % 4 == 0)):
            for start in np.linspace(0.02, 0.98 - gap, 9):
                result = run(np.ones((2, 2)), np.where(high, start + gap, start))
                ratios.append(result[high].mean() / result[~high].mean())
        effects.extend(ratios)
        spread = max(spread, float(max(ratios) / min(ratios) - 1))
    return spread if np.abs(np.array(effects) - 1).max() > 1e-9 else float("nan")


def coarse_sensitivity(run: Run, trial: Trial, rng: np.random.Generator) -> float:
    """Σ |Ã - Ã'| / Σ |Ã| for another coarse map of the same total: zero where only the total counts."""
    other = np.abs(rng.normal(size=trial.coarse.shape))
    other *= trial.masses.sum() / (other.ravel() * trial.sizes).sum()
    first, second = run(trial.coarse, trial.scores), run(other, trial.scores)
    return float(np.abs(first - second).sum() / (np.abs(first).sum() + _TINY))
