"""Measure the desiderata of any upsampler: what it declares, what it does, and the input that shows the difference."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from usu import _checks as check
from usu import metrics
from usu.auditor import measures
from usu.auditor.report import AuditReport, Finding, Profile
from usu.auditor.trials import Trial, coarse_map, disturbed, score_field, trials
from usu.types import GUARANTEES, Guarantee, NDArray
from usu.upsamplers import Upsampler

__all__ = ["AuditReport", "Finding", "Profile", "Trial", "audit"]

#: Up to here a violation is rounding. D3 is a ratio of ratios of single pixels, so it gets more room.
TOLERANCE: dict[Guarantee, float] = {g: 1e-4 if g == "D3" else 1e-6 for g in GUARANTEES}


def audit(
    upsampler: Upsampler | Callable[..., Any], *, trials: int = 25, climbs: int = 10, seed: int = 0
) -> AuditReport:
    """Search for the worst violation of D1 to D4 by any ``(coarse, picture, scores=None) -> pixel map``.

    The picture is grey, H x W in [0, 1], and its brightness is the scores, so one that follows the picture has a chance
    to keep D2; all arrays are numpy's, in float64. A function of ``(coarse, picture)`` will do. ``name`` and
    ``guarantees`` are read where there are any; one that declares D1-G must have ``budgets``, called in the same way.

    Args:
        trials: inputs tried, going through kinds of maps, kinds of scores and sizes.
        climbs: disturbances of the worst input that are tried to make it worse.

    >>> from usu.upsamplers import by_name
    >>> report = audit(by_name("bilinear"), trials=5)
    >>> report["D1"].verdict, report["D3"].verdict
    ('violated', 'not applicable')
    """
    check.whole_number("trials", trials, least=1)
    auditor = _Auditor(upsampler, np.random.default_rng(seed))
    findings = auditor.findings(trials, climbs)
    name = getattr(upsampler, "name", getattr(upsampler, "__name__", type(upsampler).__name__))
    return AuditReport(name, findings, auditor.profile(seed), trials, seed)


class _Auditor:
    """The upsampler under audit and the generator of its inputs."""

    def __init__(self, upsampler: Callable[..., Any], rng: np.random.Generator) -> None:
        self.upsampler = upsampler
        self.arguments = _arguments(upsampler)
        self.rng = rng
        self.declared: frozenset[Guarantee] = frozenset(getattr(upsampler, "guarantees", ()))
        self.seen: list[tuple[NDArray, Trial]] = []

    def run(self, coarse: NDArray, scores: NDArray) -> NDArray:
        """One call, checked."""
        result = self._called(self.upsampler, coarse, scores)
        if result.shape != scores.shape:
            raise ValueError(f"`upsampler` must return a map of the picture's size {scores.shape}; got {result.shape}.")
        if not np.isfinite(result).all():
            raise ValueError("`upsampler` must return finite values; got NaN or infinity.")
        return result

    def _called(self, asked: Callable[..., Any], coarse: NDArray, scores: NDArray) -> NDArray:
        given = (coarse.copy(), scores.copy(), scores.copy())
        return np.asarray(check.as_numpy(asked(*given[: self.arguments])), dtype=np.float64)

    def violation(self, guarantee: Guarantee, trial: Trial, result: NDArray) -> float:
        """How badly one map shows one guarantee violated; NaN where the question does not apply."""
        match guarantee:
            case "D1":
                return metrics.mass_error(result, trial.coarse)
            case "D1-G" if "D1-G" in self.declared:
                budgets = self._called(self.upsampler.budgets, trial.coarse, trial.scores).ravel()  # type: ignore[attr-defined]
                return metrics.mass_error(result, budgets, cells=trial.labels, coarse_is="mass")
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
            self.seen.append((result, trial))
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
        others = []
        for kind, shares in moved.items():
            for _ in range(8):
                trial = Trial(coarse_map(kind, (7, 7), rng), score_field("segments", (224, 224), rng), kind)
                result = self.run(trial.coarse, trial.scores)
                shares.append(metrics.moved_mass(result, trial.coarse))
                if kind == "smooth":
                    gain, seams = metrics.largest_gain(result, trial.coarse), measures.seam_energy(result, trial)
                    others.append((gain, seams, measures.coarse_sensitivity(self.run, trial, rng)))
        totals = [measures.total_mass_error(result, trial) for result, trial in self.seen if trial.divisible]
        gains, *rest = zip(*others, strict=True)
        each = (moved["smooth"], moved["rectified"], [measures.wrong_pairs(*pair) for pair in self.seen], *rest)
        smooth, rectified, wrong, seam, sensitivity = (float(np.mean(values)) for values in each)
        return Profile(smooth, rectified, max(totals, default=0.0), wrong, seam, float(max(gains)), sensitivity)


def _arguments(upsampler: Callable[..., Any]) -> int:
    """How many of (coarse, picture, scores) it takes: three or two."""
    if callable(upsampler):
        try:
            signature = inspect.signature(upsampler)
        except ValueError:  # written in C, and silent about it
            return 3
        for count in (3, 2):
            try:
                signature.bind(*range(count))
            except TypeError:
                continue
            return count
    got = f"one called as {signature}" if callable(upsampler) else type(upsampler).__name__
    raise TypeError(f"`upsampler` must be callable as (coarse, picture, scores=None) -> pixel map; got {got}.")
