"""Measure the desiderata of any upsampler: what it declares, what it does, and the input that shows the difference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from usu.auditor import measures
from usu.auditor.report import AuditReport, Finding, Profile
from usu.auditor.trials import Trial, coarse_map, disturbed, score_field, trials
from usu.types import GUARANTEES, Guarantee, NDArray, Upsampler

__all__ = ["AuditReport", "Finding", "Profile", "Trial", "audit"]

#: Up to here a violation is rounding. D3 is a ratio of ratios of single pixels, so it gets more room.
TOLERANCE: dict[Guarantee, float] = {g: 1e-4 if g == "D3" else 1e-6 for g in GUARANTEES}


def audit(
    upsampler: Upsampler | Callable[[Any, Any], Any], *, trials: int = 25, climbs: int = 10, seed: int = 0
) -> AuditReport:
    """Search for the worst violation of D1 to D4 by any callable ``(coarse, picture) -> pixel map``.

    The picture handed over is grey, H x W in [0, 1], and its brightness is the score field: an operator driven by
    scores reads it as such, one guided by pictures sees a picture, a kernel takes its size. ``name`` and
    ``guarantees`` are read where the callable has them; one that declares D1-G must have ``budgets(coarse, picture)``.

    Args:
        upsampler: what to audit; gets float64 numpy arrays.
        trials: inputs tried, going through kinds of maps, kinds of scores and sizes.
        climbs: disturbances of the worst input that are tried to make it worse.
        seed: of the inputs.

    >>> from usu.upsamplers import by_name
    >>> report = audit(by_name("bilinear"), trials=5)
    >>> report["D1"].verdict, report["D3"].verdict
    ('violated', 'not applicable')
    """
    if not callable(upsampler):
        raise TypeError(
            f"`upsampler` must be callable as (coarse, picture) -> pixel map; got {type(upsampler).__name__}. Wrap it."
        )
    if trials < 1:
        raise ValueError(f"`trials` must be at least 1; got {trials}. The default is 25.")
    auditor = _Auditor(upsampler, np.random.default_rng(seed))
    findings = auditor.findings(trials, climbs)
    name = getattr(upsampler, "name", getattr(upsampler, "__name__", type(upsampler).__name__))
    return AuditReport(name, findings, auditor.profile(seed), trials, seed)


class _Auditor:
    """The upsampler under audit and the generator of its inputs."""

    def __init__(self, upsampler: Callable[[Any, Any], Any], rng: np.random.Generator) -> None:
        self.upsampler = upsampler
        self.rng = rng
        self.declared: frozenset[Guarantee] = frozenset(getattr(upsampler, "guarantees", ()))
        self.divisible_total = 0.0
        self.wrong: list[float] = []

    def run(self, coarse: NDArray, scores: NDArray) -> NDArray:
        """One call, checked."""
        result = self.upsampler(coarse.copy(), scores.copy())
        if isinstance(result, torch.Tensor):
            result = result.detach().cpu().numpy()
        result = np.asarray(result, dtype=np.float64)
        if result.shape != scores.shape:
            raise ValueError(
                f"`upsampler` must return a map of the picture's size {scores.shape}; got {result.shape} for a coarse "
                f"map of {coarse.shape}. Return (H, W) for (h, w)."
            )
        if not np.isfinite(result).all():
            raise ValueError(
                f"`upsampler` must return finite values; got NaN or infinity for a coarse map of {coarse.shape}. "
                "Look for a division by zero in it."
            )
        return result

    def violation(self, guarantee: Guarantee, trial: Trial, result: NDArray) -> float:
        """How badly one map shows one guarantee violated; NaN where the question does not apply."""
        match guarantee:
            case "D1":
                return measures.cell_mass_error(result, trial)
            case "D1-G" if "D1-G" in self.declared:
                budgets = self.upsampler.budgets(trial.coarse, trial.scores)  # type: ignore[attr-defined]
                return measures.budget_error(result, trial, budgets)
            case "mass":
                return measures.total_mass_error(result, trial)
            case "D2":
                return measures.disorder(result, trial)
            case "D4":
                return measures.outside_influence(self.run, result, trial, self.rng, shares=False)
            case "D4'" if (trial.coarse >= 0).all():  # two signs are shared by two rules: no single set of shares
                return measures.outside_influence(self.run, result, trial, self.rng, shares=True)
        return float("nan")

    def findings(self, count: int, climbs: int) -> tuple[Finding, ...]:
        """The worst case of each guarantee."""
        nothing = (float("nan"), None, None)
        worst: dict[Guarantee, tuple[float, Trial | None, NDArray | None]] = dict.fromkeys(GUARANTEES, nothing)
        for trial in trials(count, self.rng):
            result = self.run(trial.coarse, trial.scores)
            if trial.divisible:
                self.divisible_total = max(self.divisible_total, measures.total_mass_error(result, trial))
            self.wrong.append(measures.wrong_pairs(result, trial))
            for guarantee in GUARANTEES:
                value = self.violation(guarantee, trial, result)
                if value > worst[guarantee][0] or np.isnan(worst[guarantee][0]):
                    worst[guarantee] = (value, trial, result)
        for guarantee in sorted(self.declared):  # what nobody promised needs no worse example
            for _ in range(climbs):
                value, start, _result = worst[guarantee]
                if start is None or np.isnan(value):
                    break
                candidate = disturbed(start, self.rng)
                result = self.run(candidate.coarse, candidate.scores)
                found = self.violation(guarantee, candidate, result)
                if found > value:
                    worst[guarantee] = (found, candidate, result)
        worst["D3"] = (measures.conditioning_spread(self.run), None, None)
        return tuple(
            Finding(g, g in self.declared, None if np.isnan(value) else value, TOLERANCE[g], trial, result)
            for g, (value, trial, result) in worst.items()
        )

    def profile(self, seed: int) -> Profile:
        """The numbers that are no promise: means over maps of the usual size, the same maps for every upsampler."""
        rng = np.random.default_rng(seed)
        moved: dict[str, list[float]] = {"smooth": [], "rectified": []}
        seams, gains, sensitivities = [], [], []
        for kind, shares in moved.items():
            for _ in range(8):
                trial = Trial(coarse_map(kind, (7, 7), rng), score_field("segments", (224, 224), rng), kind)
                result = self.run(trial.coarse, trial.scores)
                shares.append(measures.moved_mass(result, trial))
                if kind == "smooth":
                    seams.append(measures.seam_energy(result, trial))
                    gains.append(measures.largest_gain(result, trial))
                    sensitivities.append(measures.coarse_sensitivity(self.run, trial, rng))
        return Profile(
            moved_smooth=float(np.mean(moved["smooth"])),
            moved_rectified=float(np.mean(moved["rectified"])),
            total_error_divisible=self.divisible_total,
            wrong_pairs=float(np.mean(self.wrong)),
            seam_energy=float(np.mean(seams)),
            largest_gain=float(max(gains)),
            coarse_sensitivity=float(np.mean(sensitivities)),
        )
