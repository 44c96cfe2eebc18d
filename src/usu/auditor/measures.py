"""One number per desideratum: how badly one input shows it violated. Zero is perfect, NaN means "does not apply"."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from usu import metrics
from usu.auditor.trials import Trial, coarse_map, score_field
from usu.types import NDArray

Run = Callable[[NDArray, NDArray], NDArray]

_TINY = 1e-300


def total_mass_error(result: NDArray, trial: Trial) -> float:
    """Mass: the error of the total relative to the mass there is, positive and negative alike."""
    return float(abs(result.sum() - trial.masses.sum()) / (np.abs(trial.masses).sum() + _TINY))


def disorder(result: NDArray, trial: Trial) -> float:
    """D2: the largest amount by which a pixel exceeds one of its cell with at least its score, relative to the cell."""
    worst = 0.0
    for values, scores in _cells(trial, result, trial.scores):
        # of equal scores the largest value first: equal scores must get equal shares
        ordered = values[np.lexsort((-values, scores))]
        fall = np.maximum.accumulate(ordered) - ordered
        worst = max(worst, float(fall.max() / (np.abs(values).max() + _TINY)))
    return worst


def wrong_pairs(result: NDArray, trial: Trial) -> float:
    """Share of the pairs of pixels of one cell with different scores that stand in the wrong order."""
    wrong = pairs = 0
    for values, scores in _cells(trial, result, trial.scores):
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
        coarse = coarse_map("rectified" if shares else "signed", (trial.coarse.shape[0], trial.coarse.shape[1]), rng)
        coarse.flat[cell] = trial.coarse.flat[cell]
        height, width = trial.scores.shape
        scores = np.where(inside, trial.scores, score_field("continuous", (height, width), rng))
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


def seam_energy(result: NDArray, trial: Trial) -> float:
    """Mean squared jump across cell borders between pixels of one score, over the mean square of the map."""
    segments = np.unique(trial.scores, return_inverse=True)[1].reshape(trial.scores.shape)
    return metrics.seam_energy(result, trial.labels, segments)


def coarse_sensitivity(run: Run, trial: Trial, rng: np.random.Generator) -> float:
    """Σ |Ã - Ã'| / Σ |Ã| for another coarse map of the same total: zero where only the total counts."""
    other = np.abs(rng.normal(size=trial.coarse.shape))
    other *= trial.masses.sum() / (other.ravel() * trial.sizes).sum()
    first, second = run(trial.coarse, trial.scores), run(other, trial.scores)
    return float(np.abs(first - second).sum() / (np.abs(first).sum() + _TINY))


def _cells(trial: Trial, *fields: NDArray) -> list[tuple[NDArray, ...]]:
    """The values of each field, cell by cell."""
    order = np.argsort(trial.labels.ravel(), kind="stable")
    ends = np.cumsum(trial.sizes)[:-1]
    return list(zip(*(np.split(field.ravel()[order], ends) for field in fields), strict=True))
