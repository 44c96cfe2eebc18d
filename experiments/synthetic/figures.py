"""The paper's figures about these experiments, drawn from what was measured; saved as PNG and PDF by `panels.save`.

A figure is a table of small panels: what is shown in columns, pictures or depths in rows. Maps go from zero (black) to
their own brightest pixels; what is below zero is blue. Colours are those of `usu.plot`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from experiments.synthetic.identical import Twins
from experiments.synthetic.panels import QUANTILE, Panel, grey, grid, heat
from matplotlib.figure import Figure

import usu
from usu.plot import TWO_SIGNS

NAMES = {"usu": "USU", "iwmr": "IWMR", "lanczos3": "Lanczos-3"}


@dataclass(frozen=True, eq=False)
class Shown:
    """One picture with all that was made of it."""

    name: str
    #: (S, S) in [0, 1]; (S, S), the true attribution; (g, g); method -> (S, S).
    picture: np.ndarray
    truth: np.ndarray
    coarse: np.ndarray
    maps: Mapping[str, np.ndarray]


def upsampling_errors(shown: Shown) -> Figure:
    """One picture under every method, and where each invents (red) or loses (blue) attribution."""
    known, total = np.abs(shown.truth), np.abs(shown.truth).sum()
    errors: list[Panel | None] = [None, None, None]
    for field in shown.maps.values():
        alpha, beta = usu.alpha_beta_errors(field, known)
        shares = f"α {alpha.sum() / total:.2f}  β {beta.sum() / total:.2f}"
        errors.append(Panel(alpha - beta, TWO_SIGNS, (-known.max(), known.max()), shares))
    return grid(
        [[grey(shown.picture), heat(known), heat(shown.coarse), *map(heat, shown.maps.values())], errors],
        columns=["input", "truth", _coarse(shown), *map(_title, shown.maps)],
        names=["map", "error"],
        heading=f"{shown.name}: what each upsampler makes of one coarse map; below, attribution that should not be\n"
        "there (red, α) and attribution that is missing (blue, β), as shares of the picture's mass",
    )


def identical(twins: Twins) -> Figure:
    """Objects that interpolation cannot tell apart, found by `identical.search`."""
    tops = [float(maps.max()) for maps in (twins.coarse, twins.bilinear)]
    tops.append(float(np.quantile(twins.usu[twins.usu > 0], 0.95)))
    rows = [
        [grey(truth), *(heat(field, top=top) for field, top in zip(fields, tops, strict=True))]
        for truth, *fields in zip(twins.truths, twins.coarse, twins.bilinear, twins.usu, strict=True)
    ]
    side = len(twins.coarse[0])
    return grid(
        rows,
        columns=["input and truth", f"coarse, {side} x {side}", "bilinear", "USU"],
        names=[polygon.kind for polygon in twins.polygons],
        heading=f"Distinct truths, one bilinear map (largest difference: {twins.bilinear_gap:.1g} of the maximum);\n"
        f"USU puts at least {twins.usu_gap:.0%} of the mass in different places",
    )


def error_types(lost: Shown, invented: Shown, method: str = "bilinear") -> Figure:
    """The paper's two kinds of error: attribution that disappears (β) and attribution that appears (α)."""
    columns = []
    for shown, kind in ((lost, "beta"), (invented, "alpha")):
        field = shown.maps[method]
        errors = getattr(usu.alpha_beta_errors(field, shown.truth), kind)
        share = f"{errors.sum() / np.abs(shown.truth).sum():.0%} of the mass"
        columns.append([heat(shown.truth), grey(shown.picture), heat(field), heat(shown.coarse), heat(errors, share)])
    return grid(
        list(zip(*columns, strict=True)),
        columns=["β: signal lost", "α: signal invented"],
        names=["truth", "input", _title(method), "coarse map", "error"],
        heading="Compression errors",
    )


def refinement(picture: np.ndarray, coarse: np.ndarray, result: usu.Upsampled, settings: usu.Settings) -> Figure:
    """Depth by depth: segments, their scores, merged ones, where they change, and what a redistribution would give."""
    rows, names = [], []
    above, alpha = np.zeros(picture.shape), np.zeros(picture.shape)
    for depth, (labels, field) in enumerate(zip(result.segments, result.depth_scores, strict=True)):
        scores = np.asarray(field)[0]
        own = (scores - alpha * above) / (1 - alpha)  # merged = α · above + (1 - α) · own, and α < 1
        change = np.abs(usu.heterogeneity(scores, settings.heterogeneity))
        marked = len(usu.boundary_segments(change, labels, settings.threshold))
        spread = usu.redistribute(
            coarse, scores, temperature=settings.temperature, budget=settings.budget, signed=settings.signed
        )
        above, alpha = scores, usu.mixing(change, settings.center, settings.mixing)
        rows.append(
            [
                Panel(picture, "gray", (0, 1), f"{labels.max() + 1} segments", labels),
                Panel(own.clip(0, 1), "viridis", (0, 1)),
                Panel(scores, "viridis", (0, 1)),
                Panel(change, "magma", (0, max(1e-9, float(change.max()))), f"{marked} above {settings.threshold:g}"),
                Panel(alpha, "gray", (0, 1)),
                heat(spread),
            ]
        )
        names.append(f"depth {depth}")
    return grid(
        rows,
        columns=["segments", "scores of this depth", "scores Φ, merged", "|H|", "mixing α", "map"],
        names=names,
        heading=f"Refinement by depth: {result.evaluations} model evaluations",
    )


def qualitative(rows: Sequence[Shown]) -> Figure:
    """Truth, input, coarse map and methods; one configuration per row."""
    methods = list(rows[0].maps)
    return grid(
        [
            [heat(one.truth), grey(one.picture), heat(one.coarse), *(heat(one.maps[name]) for name in methods)]
            for one in rows
        ],
        columns=["truth", "input", _coarse(rows[0]), *map(_title, methods)],
        names=[one.name.replace(" ", "\n") for one in rows],
        heading=f"{len(rows)} configurations; colours end at the {QUANTILE:.1%} quantile of each map, blue is negative",
    )


def _title(method: str) -> str:
    return NAMES.get(method, method)


def _coarse(shown: Shown) -> str:
    return f"coarse, {shown.coarse.shape[0]} x {shown.coarse.shape[1]}"
