"""Comparisons of the rows of the steps. ``every`` has the rows of ``STEP-NETWORK`` by that name."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from experiments.stability.cases import NETWORKS, column
from experiments.stability.rivals import SHAPIQ
from experiments.stability.steps import BUDGETS, FEW, RUNS

import usu

Rows = Sequence[dict[str, str]]
#: Pairs below which no p can be small, so that none is told; and the p that decides.
FEWEST, LEVEL = 6, 0.05
PAID = ("insertion-deletion mean", "insertion-deletion noise", "half-deletion mean", "half-deletion noise")
RIVALS = (
    "bilinear", "guided filter", "LayerCAM", "fast", "scores alone", "kernel SHAP", "shapiq KernelSHAP",
    "integrated gradients", "SmoothGrad", "Guided Grad-CAM", "XRAI",
)  # fmt: skip
#: Measured with few evaluations, too, and not among the rivals' own rows.
SHAPED = tuple(f"shapiq {name}" for name in SHAPIQ[1:])


def steps(
    every: Mapping[str, Rows], step: str, *, whole: bool = True, of: Collection[str] | None = None
) -> Iterator[tuple[str, Rows]]:
    """The networks that this step was run on, as a person calls them; then runs of before segments were calm.

    Not ``whole``: of these only what was not run again. ``of``: only these networks.
    """
    for suffix, told in (("", ""), ("_before", ", former segments")):
        for name, (_, title) in NETWORKS.items():
            if (suffix and not whole and every.get(f"{step}-{name}")) or (of is not None and title not in of):
                continue
            if rows := [row for row in every.get(f"{step}-{name}{suffix}", ()) if len(row) > 1]:
                yield f"{title}{told}", rows


def mean(rows: Rows, name: str, digits: int = 3) -> str:
    found = column(rows, name)
    return f"{found.mean():.{digits}f}" if len(found) else "-"


def whole(rows: Rows) -> Rows:
    """The pictures that have every number of evaluations: a curve is one of the same pictures throughout."""
    return [row for row in rows if all(f"soft@{budget} iou" in row for budget in BUDGETS)]


class Against(NamedTuple):
    """Pairs, their means, the Hodges-Lehmann shift, and Wilcoxon's p where pairs are enough to have one."""

    n: int
    one: float
    other: float
    shift: float
    p: float | None

    def ahead(self, p: float | None) -> str:
        """+ or -, where this p decides."""
        return "" if p is None or p >= LEVEL or self.shift == 0 else "+" if self.shift > 0 else "-"


def against(rows: Rows, one: str, other: str) -> Against:
    both = [row for row in rows if one in row and other in row]
    if len(both) < 2:
        return Against(len(both), math.nan, math.nan, math.nan, None)
    new, old = column(both, one), column(both, other)
    p = None
    if len(both) >= FEWEST:
        p = float(usu.stats.wilcoxon(new, old).p) if (new != old).any() else 1.0
    return Against(len(both), new.mean(), old.mean(), float(usu.stats.hodges_lehmann(new, old)), p)


def corrected(found: Sequence[Against]) -> list[float | None]:
    """Holm's p of those that have one."""
    tested = [one.p for one in found if one.p is not None]
    holm = iter(usu.stats.holm(tested) if tested else ())
    return [None if one.p is None else float(next(holm)) for one in found]


def told(p: float | None) -> str:
    return "too few" if p is None else f"{p:.2g}"


def changes(every: Mapping[str, Rows]) -> dict[tuple[str, str, str], tuple[Against, float | None]]:
    """Network, preset and metric -> today's against the former, and Holm's p over all of them."""
    found = {
        (title, name, metric): against(rows, f"{name} {metric}", f"former {name} {metric}")
        for title, rows in steps(every, "seeds") for name in ("soft", "cell") for metric in ("iou", *PAID)
    }  # fmt: skip
    return dict(zip(found, zip(found.values(), corrected([*found.values()]), strict=True), strict=True))


def judged(every: Mapping[str, Rows], *, whole: bool = False) -> dict[str, tuple[Rows, int]]:
    """Network -> what runs predicted of themselves and what became of it, and how many other seeds showed that."""
    several = {title: (rows, RUNS) for title, rows in steps(every, "repeats", whole=whole)}
    return {title: (rows, 2) for title, rows in steps(every, "seeds", whole=whole)} | several


def correlated(rows: Rows, name: str) -> float:
    """Over pictures: what one run predicts of its stability, and what other seeds showed."""
    return float(np.corrcoef(column(rows, f"{name} predicted"), column(rows, f"{name} iou"))[0, 1])


def rivalry(every: Mapping[str, Rows]) -> dict[tuple[str, str, str], tuple[Against, float | None]]:
    """Network, rival and metric -> `soft` against it on the same pictures, and Holm's p over those of the network."""
    found: dict[str, dict[tuple[str, str, str], Against]] = {}
    for step, at in (("rivals", ""), ("rise", ""), ("few", f"@{FEW[-1]}")):
        for title, rows in steps(every, step, whole=False):
            for other in SHAPED if at else (*RIVALS, "RISE"):
                for metric in PAID[:2]:
                    if len(column(rows, f"{other}{at} {metric}")):
                        compared = against(rows, f"soft{at} {metric}", f"{other}{at} {metric}")
                        found.setdefault(title, {})[title, other, metric] = compared
    return {
        key: both
        for own in found.values()
        for key, both in zip(own, zip(own.values(), corrected([*own.values()]), strict=True), strict=True)
    }
