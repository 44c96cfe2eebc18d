"""Metrics of a grid beside those of `usu.metrics`: of two seeds, and with fewer steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from usu.metrics.catalogue import Case, Metric, by_name
from usu.metrics.curves import irof, monotonicity_correlation, pixel_flipping
from usu.metrics.passes import Measured
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
SEED_METRICS: dict[str, Callable[[NDArray, NDArray], float]] = {"seed-iou": _top_iou, "seed-correlation": _correlation}
#: Metrics of many steps with a number of them, and what they take: a grid of so many rows and columns, so many groups.
_STEPPED: dict[str, Callable[[int], tuple[partial[Measured], int]]] = {
    "irof": lambda steps: (partial(irof, segments=(steps, steps)), steps**2 + 1),
    "pixel-flipping": lambda steps: (partial(pixel_flipping, steps=steps), steps),
    "monotonicity": lambda steps: (partial(monotonicity_correlation, steps=steps), steps + 1),
}


def _stepped(case: Case, metric: partial[Measured]) -> Measured:
    return metric(case.pixel_map, case.image, case.model, case.target, generator=case.dice(metric.func.__name__))


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
    metric, evaluations = _STEPPED[plain](int(steps))
    return replace(by_name(plain), name=name, evaluations=evaluations, measure=partial(_stepped, metric=metric))
