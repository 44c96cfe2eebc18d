"""Measure the desiderata of any upsampler: what it declares, what it does, and the input that shows the difference."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from usu import _checks as check
from usu import metrics
from usu.auditor import measures
from usu.auditor.measures import Trial
from usu.auditor.report import AuditReport, Finding, Profile
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
    search = _Search(upsampler, np.random.default_rng(seed))
    for trial in measures.trials(trials, search.rng):
        search.seen.append((search.tried(trial, GUARANTEES), trial))
    for guarantee in sorted(search.declared):  # what nobody promised needs no worse example
        for _ in range(climbs):
            worst, start, _result = search.worst[guarantee]
            if start is None or np.isnan(worst):
                break
            search.tried(measures.disturbed(start, search.rng), [guarantee])
    search.worst["D3"] = (measures.conditioning_spread(search.run), None, None)
    findings = tuple(
        Finding(g, g in search.declared, None if np.isnan(worst) else worst, TOLERANCE[g], trial, result)
        for g, (worst, trial, result) in search.worst.items()
    )
    name = getattr(upsampler, "name", getattr(upsampler, "__name__", type(upsampler).__name__))
    return AuditReport(name, findings, search.profile(np.random.default_rng(seed)), trials, seed)


class _Search:
    """The upsampler under audit, the generator of its inputs, and the worst that was found."""

    def __init__(self, upsampler: Callable[..., Any], rng: np.random.Generator) -> None:
        self.upsampler = upsampler
        self.arguments = _arguments(upsampler)
        self.rng = rng
        self.declared: frozenset[Guarantee] = frozenset(getattr(upsampler, "guarantees", ()))
        self.seen: list[tuple[NDArray, Trial]] = []
        self.worst: dict[Guarantee, tuple[float, Trial | None, NDArray | None]] = dict.fromkeys(
            GUARANTEES, (float("nan"), None, None)
        )

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

    def tried(self, trial: Trial, guarantees: Iterable[Guarantee]) -> NDArray:
        """The map of a trial, which is remembered where it is the worst."""
        result = self.run(trial.coarse, trial.scores)
        for guarantee in guarantees:
            value, worst = self.violation(guarantee, trial, result), self.worst[guarantee][0]
            if value > worst or np.isnan(worst):
                self.worst[guarantee] = (value, trial, result)
        return result

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

    def profile(self, rng: np.random.Generator) -> Profile:
        """The numbers that are no promise: means over maps of the usual size, the same maps for every upsampler."""
        moved: dict[str, list[float]] = {"smooth": [], "rectified": []}
        gains, seams, changes = [], [], []
        for kind, shares in moved.items():
            for _ in range(8):
                coarse = measures.coarse_map(kind, (7, 7), rng)
                trial = Trial(coarse, measures.score_field("segments", (224, 224), rng), kind)
                result = self.run(trial.coarse, trial.scores)
                shares.append(metrics.moved_mass(result, trial.coarse))
                if kind == "smooth":
                    parts = np.unique(trial.scores, return_inverse=True)[1].reshape(trial.scores.shape)
                    gains.append(metrics.largest_gain(result, trial.coarse))
                    seams.append(metrics.seam_energy(result, trial.labels, parts))
                    changes.append(measures.coarse_sensitivity(self.run, trial, rng))
        totals = [measures.total_mass_error(result, trial) for result, trial in self.seen if np.ptp(trial.sizes) == 0]
        wrong = [measures.wrong_pairs(result, trial) for result, trial in self.seen]
        each = (moved["smooth"], moved["rectified"], wrong, seams, changes)
        smooth, rectified, disordered, seam, sensitivity = (float(np.mean(values)) for values in each)
        return Profile(smooth, rectified, max(totals, default=0.0), disordered, seam, max(gains), sensitivity)


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
