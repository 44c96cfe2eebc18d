"""Metrics of a grid beside those of `usu.metrics`: of two seeds, and with fewer steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from usu.metrics.catalogue import Case, Metric, by_name
from usu.metrics.curves import irof, monotonicity_correlation, pixel_flipping
from usu.metrics.maps import Measured
from usu.score.posterior import iou_with_first
from usu.types import NDArray

#: Pixels that count as highest; on pictures of so few pixels they are too few to compare.
_TOP, _SMALL = 0.05, 32 * 32


def _correlation(one: NDArray, other: NDArray) -> float:
    flat = one.ravel(), other.ravel()
    return float(np.corrcoef(*flat)[0, 1]) if np.ptp(flat[0]) > 0 and np.ptp(flat[1]) > 0 else float("nan")


def _top_iou(one: NDArray, other: NDArray) -> float:
    if one.size <= _SMALL:
        return float("nan")
    return iou_with_first(torch.stack([torch.from_numpy(one), torch.from_numpy(other)]).double(), share=_TOP)


def _of_two_seeds(case: Case) -> Measured:
    raise TypeError("`case` must hold two maps for a metric that compares seeds; got one.")


#: Of the map and the same with the next seed; NaN for upsamplers that draw nothing.
SEED_METRICS: dict[str, Callable[[NDArray, NDArray], float]] = {
    "seed-iou": _top_iou,
    "seed-correlation": _correlation,
}


def _stepped(case: Case, *, plain: str, steps: int) -> Measured:
    metric, options = _STEPPED[plain]
    dice = case.dice(metric.__name__)
    return metric(case.pixel_map, case.image, case.model, case.target, generator=dice, **options(steps))


#: Metrics of many steps, and how a number of them is said: a grid of so many rows and columns, so many groups.
_STEPPED: dict[str, tuple[Callable[..., Measured], Callable[[int], dict[str, Any]]]] = {
    "irof": (irof, lambda steps: {"segments": (steps, steps)}),
    "pixel-flipping": (pixel_flipping, lambda steps: {"steps": steps}),
    "monotonicity": (monotonicity_correlation, lambda steps: {"steps": steps}),
}


def metric_named(name: str) -> Metric:
    """One of `usu.metrics`, or of those that compare two seeds; ``irof@7`` is IROF on a grid of 7 x 7.

    >>> [metric_named(name).evaluations for name in ("irof@7", "pixel-flipping@8", "monotonicity@8")]
    [50, 8, 9]
    """
    if name in SEED_METRICS:
        return Metric(name, "higher", -1 if name == "seed-correlation" else 0, 1, True, 0, _of_two_seeds)
    plain, at, steps = name.partition("@")
    if not at:
        return by_name(name)
    if plain not in _STEPPED or not steps.isdecimal() or int(steps) < 2:
        raise ValueError(f"`metrics` must have steps as in irof@7, one of {', '.join(_STEPPED)}; got {name!r}.")
    count = int(steps)
    spent = {"irof": count**2 + 1, "pixel-flipping": count}.get(plain, count + 1)
    return replace(by_name(plain), name=name, evaluations=spent, measure=partial(_stepped, plain=plain, steps=count))
