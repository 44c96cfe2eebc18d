"""Pictures x methods x metrics: the study's numbers, one row each.

The truth of a picture is an outline. Where an error needs a *map* to compare with (alpha, beta, excess, deficit), that
is A* = M / |T| inside the outline and 0 outside: the coarse map's own total, spread evenly over the object. The four
errors are in units of that total, so that pictures can be averaged. A coarse map that puts mass on cells the object
does not touch gives every method an excess there, also one that keeps D1: only where the coarse map sums the truth (the
additive models) must the bounds vanish.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from experiments.synthetic.methods import AT, paper
from experiments.synthetic.shapes import CLASSES, Pictures
from torch import Tensor, nn

import usu
from usu.bench import Sample, Table
from usu.errors import MissingExtraError
from usu.metrics import Case, Measured, Metric, by_name

Error = Literal["alpha", "beta", "excess", "deficit"]


def true_map(truth: np.ndarray, coarse: np.ndarray) -> np.ndarray:
    """A*: the total mass of the coarse map, spread evenly over the object.

    >>> true_map(np.array([[True, False]]), np.array([[3.0]]))
    array([[6., 0.]])
    """
    total = usu.cell_budgets(coarse, np.zeros(truth.shape)).sum()
    return truth * (total / truth.sum())


def error(case: Case, kind: Error) -> Measured:
    """One of the paper's four errors, summed over the picture and divided by its mass; NaN without mass."""
    if case.truth is None:
        raise ValueError("`case` must have a truth; got None. Leave these metrics out for pictures without an outline.")
    known = true_map(case.truth, case.coarse)
    total = np.abs(known).sum()
    if total == 0:
        return Measured(float("nan"))
    if kind in ("alpha", "beta"):
        found = getattr(usu.alpha_beta_errors(case.pixel_map, known), kind)
    else:
        found = getattr(usu.mass_imbalance(case.pixel_map, known, case.cells), kind)
    return Measured(float(found.sum() / total))


def _error(name: str, kind: Error) -> Metric:
    return Metric(name, "lower", 0, float("inf"), True, 0, partial(error, kind=kind), True)


ERRORS = (
    _error("alpha-error", "alpha"),
    _error("beta-error", "beta"),
    _error("mass-excess", "excess"),
    _error("mass-deficit", "deficit"),
)
#: ``mass-error`` is the worst cell's relative D1; ``moved-mass`` is the share of the mass that changed its cell: half
#: the paper's "mean absolute neighbourhood mass discrepancy" in units of the mean cell mass.
METRICS: tuple[Metric, ...] = (
    *map(by_name, ("iou", "concentration", "pointing-game", "cell-auroc", "area-iou", "mass-error", "moved-mass")),
    *ERRORS,
)
BETTER: Mapping[str, Literal["higher", "lower"]] = {metric.name: metric.better for metric in METRICS}


def samples(pictures: Pictures, coarse: Mapping[int, Tensor]) -> list[Sample]:
    """Every picture with each of its coarse maps; the grids of one picture stand together, so that they share scores.

    Args:
        pictures: N of them.
        coarse: grid -> (N, grid, grid).
    """
    for grid, maps in coarse.items():
        if tuple(maps.shape) != (len(pictures), grid, grid):
            raise ValueError(
                f"`coarse[{grid}]` must be one map of {grid} x {grid} per picture, {len(pictures)} in all; got "
                f"{' x '.join(map(str, maps.shape))}. Make them with coarse_maps."
            )
    made = []
    for number, (image, truth, label) in enumerate(
        zip(pictures.images, pictures.truths, pictures.labels.tolist(), strict=True)
    ):
        shown = np.repeat(image[0].double().numpy()[..., None], 3, axis=2)
        for grid, maps in coarse.items():
            name = f"{CLASSES[label]}-{number:04d}{AT}{grid}"
            made.append(Sample(name, image, shown, label, truth, maps[number]))
    return made


def measured(
    model: nn.Module,
    pictures: Pictures,
    coarse: Mapping[int, Tensor],
    methods: Sequence[Any],
    *,
    out: Path | None = None,
    seed: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
) -> Table:
    """One row per picture, method and metric; kept in ``out`` as they come, so that a run goes on where it was.

    Args:
        model: explained; the true class is the target.
        pictures: N of them.
        coarse: grid -> (N, grid, grid).
        methods: from `methods.methods`.
        out: a folder for the rows; other settings are refused there.
        seed: of everything random.
        progress: called with the picture, the rows done and in all.
    """
    table = usu.evaluate(methods, samples(pictures, coarse), model, METRICS, seed=seed, out=out, progress=progress)
    if table.failures:
        name, reason = next(iter(table.failures.items()))
        raise RuntimeError(f"{len(table.failures)} measurements failed; the first is {name}: {reason}")
    return table


def of_grid(table: Table, grid: int) -> Table:
    """The rows of one grid."""
    return Table(tuple(row for row in table.rows if row.picture.endswith(f"{AT}{grid}")), {})


def embedded(photographs: Sequence[str], *, evaluations: int, seed: int = 0) -> Table | None:
    """What upsampling loses of the embedded ImageNet network's Grad-CAM; None where its extra is not installed.

    Args:
        photographs: names of scikit-image's pictures.
        evaluations: the most that scoring may take.
        seed: of everything random.
    """
    from skimage import data

    from usu.models import load

    try:
        loaded = load()
    except MissingExtraError as error:
        print(f"the embedded network is left out: {error}")
        return None
    pictures = [Sample(name, loaded.prepare(getattr(data, name)())[0]) for name in photographs]
    rivals: list[Any] = ["bilinear", "bicubic", "lanczos3"]
    rivals += [(name, replace(paper(name), depth=0, evaluations=evaluations)) for name in ("usu", "iwmr")]
    return usu.evaluate(rivals, pictures, loaded.model, ["mass-error", "moved-mass"], layer=loaded.layer, seed=seed)
