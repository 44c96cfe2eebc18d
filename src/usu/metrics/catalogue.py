"""Every metric as a value: which way is better, its range, whether scale matters, what it costs.

The declarations are data: tests iterate over them, `usu.evaluate` runs them by name, tables and reports show them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Literal

import torch
from torch import Tensor

from usu.forward import Model
from usu.forward.fills import Fill
from usu.metrics.cache import Memory
from usu.metrics.cell_auroc import cell_auroc
from usu.metrics.concentration import concentration
from usu.metrics.deletion import deletion
from usu.metrics.energy import energy_in_mask
from usu.metrics.half_deletion import half_deletion
from usu.metrics.infidelity import BlockChanges, block_changes, infidelity_of
from usu.metrics.insertion import insertion
from usu.metrics.iou import area_iou, iou
from usu.metrics.irof import irof
from usu.metrics.largest_gain import largest_gain
from usu.metrics.mass_error import mass_error, moved_mass
from usu.metrics.measurement import Measured
from usu.metrics.monotonicity import monotonicity_correlation
from usu.metrics.passes import seeded
from usu.metrics.pixel_flipping import pixel_flipping
from usu.metrics.pointing_game import pointing_game
from usu.metrics.quantile_match import quantile_match
from usu.metrics.road import road
from usu.metrics.seam_energy import seam_energy
from usu.metrics.sparseness import sparseness
from usu.operator.interpolate import interpolate
from usu.types import NDArray

_INF = float("inf")
_MATCHED = "-matched"
#: Those that a name can end with, as in ``half-deletion:noise``.
FILLS: dict[str, Fill] = {"blur": "blur", "mean": "mean", "noise": "noise"}
#: Of the deletion and insertion curves: half of what the functions do by themselves, because tables have many maps.
_STEPS = 8


@dataclass(frozen=True, eq=False)
class Case:
    """One pixel map to be measured, with everything a metric may ask for."""

    pixel_map: NDArray
    #: (C, H, W), as the model takes it.
    image: Tensor
    model: Model
    target: int
    #: (h, w).
    coarse: NDArray
    #: (H, W), True inside the object; None where nobody drew it.
    truth: NDArray | None = None
    #: (H, W), labels of the picture's parts.
    segments: NDArray | None = None
    #: Of the random numbers; the same for every map of a picture, so that maps are compared on equal terms.
    seed: int = 0
    #: What is the same for every map of the picture, and what is the same for every metric of this map.
    of_picture: Memory = field(default_factory=Memory)
    of_map: Memory = field(default_factory=Memory)

    def dice(self, purpose: str) -> torch.Generator:
        """A generator for one purpose, the same for every map of the picture."""
        return seeded(self.seed, purpose)

    @property
    def cells(self) -> tuple[int, int]:
        """The coarse map's shape."""
        return int(self.coarse.shape[0]), int(self.coarse.shape[1])

    @property
    def matched(self) -> Case:
        """The same map with the values of the bilinear one, in its own order."""
        like = interpolate(self.coarse, (int(self.image.shape[-2]), int(self.image.shape[-1])), "bilinear")
        field = self.of_map.once("matched", lambda: quantile_match(self.pixel_map, like, generator=self.dice("ties")))
        return replace(self, pixel_map=field, of_map=Memory())

    @property
    def lent(self) -> float:
        """Seconds that metrics have saved so far by what others had made."""
        return self.of_picture.lent + self.of_map.lent


@dataclass(frozen=True)
class Metric:
    """A way to measure a map, and how to read the number."""

    name: str
    better: Literal["higher", "lower"]
    low: float
    high: float
    #: Whether a map times any positive number scores the same.
    scale_invariant: bool
    #: Pictures passed through the model for one map.
    evaluations: int
    measure: Callable[[Case], Measured]
    #: Only for pictures that come with the object's outline.
    needs_truth: bool = False


def _walked(case: Case, walk: Callable[..., Measured], fill: Fill) -> Measured:
    name = walk.__name__
    return case.of_map.once(
        (name, fill),
        lambda: walk(
            case.pixel_map,
            case.image,
            case.model,
            case.target,
            fill=fill,
            steps=_STEPS,
            generator=case.dice(f"{name}{fill}"),
        ),
    )


def _both_ways(case: Case, fill: Fill) -> Measured:
    shown, hidden = _walked(case, insertion, fill), _walked(case, deletion, fill)
    return Measured(shown.value - hidden.value, shown.evaluations + hidden.evaluations)


def _halves(case: Case, fill: Fill) -> Measured:
    return half_deletion(
        case.pixel_map, case.image, case.model, case.cells, case.target, fill=fill, generator=case.dice(f"half{fill}")
    )


def _blocks(case: Case, fill: Fill) -> BlockChanges:
    """The model's answers do not depend on the map, so thirty maps of a picture share them."""
    return case.of_picture.once(
        ("blocks", fill),
        lambda: block_changes(case.image, case.model, case.target, fill=fill, generator=case.dice(f"blocks{fill}")),
    )


def _infidelity(case: Case, scaling: Literal["optimal", "raw"], fill: Fill) -> Measured:
    changes = _blocks(case, fill)
    return Measured(infidelity_of(case.pixel_map, changes, scaling=scaling), changes.evaluations)


def _asking(case: Case, metric: Callable[..., Measured]) -> Measured:
    return metric(case.pixel_map, case.image, case.model, case.target, generator=case.dice(metric.__name__))


def _seams(case: Case) -> Measured:
    if case.segments is None:
        raise ValueError(
            "`segments` must be given for seam energy; got None. Pass the label map of the picture's parts."
        )
    return Measured(seam_energy(case.pixel_map, case.cells, case.segments))


def _inside(case: Case, metric: Callable[..., float]) -> Measured:
    if case.truth is None:
        raise ValueError("`truth` must be given for metrics against an outline; got None. Leave them out.")
    return Measured(metric(case.pixel_map, case.truth))


def _auroc(case: Case) -> Measured:
    return _inside(case, partial(cell_auroc, cells=case.cells))


def _area_iou(case: Case) -> Measured:
    return _inside(case, partial(area_iou, generator=case.dice("ties")))


def _of_map(metric: Callable[..., float], case: Case) -> Measured:
    return Measured(metric(case.pixel_map, case.coarse))


def _filling(fill: Fill, suffix: str = "") -> tuple[Metric, ...]:
    """The metrics that hide parts of the picture, with one fill."""
    return (
        Metric(f"half-deletion{suffix}", "higher", -1, 1, True, 2, partial(_halves, fill=fill)),
        Metric(f"deletion{suffix}", "lower", 0, 1, True, _STEPS + 1, partial(_walked, walk=deletion, fill=fill)),
        Metric(f"insertion{suffix}", "higher", 0, 1, True, _STEPS + 1, partial(_walked, walk=insertion, fill=fill)),
        Metric(f"insertion-deletion{suffix}", "higher", -1, 1, True, 2 * _STEPS + 2, partial(_both_ways, fill=fill)),
        Metric(f"infidelity{suffix}", "lower", 0, 1, True, 201, partial(_infidelity, scaling="optimal", fill=fill)),
    )


def _matched(metric: Metric) -> Metric:
    """After the map got the bilinear map's values in its own order, for metrics that magnitudes decide."""
    return replace(
        metric,
        name=f"{metric.name}{_MATCHED}",
        measure=lambda case: metric.measure(case.matched),
        scale_invariant=True,
    )


_FILLED = _filling("mean")
_ENERGY = Metric("energy-in-mask", "higher", 0, 1, True, 0, partial(_inside, metric=energy_in_mask), True)
METRICS: tuple[Metric, ...] = (
    *_FILLED,
    _matched(_FILLED[-1]),
    Metric("infidelity-raw", "lower", 0, _INF, False, 201, partial(_infidelity, scaling="raw", fill="mean")),
    Metric("road", "higher", -0.5, 0.5, True, 8, partial(_asking, metric=road)),
    Metric("irof", "higher", 0, 1, True, 197, partial(_asking, metric=irof)),
    Metric("pixel-flipping", "lower", 0, 1, True, 32, partial(_asking, metric=pixel_flipping)),
    Metric("monotonicity", "higher", -1, 1, True, 33, partial(_asking, metric=monotonicity_correlation)),
    Metric("sparseness", "higher", 0, 1, True, 0, lambda case: Measured(sparseness(case.pixel_map))),
    Metric("mass-error", "lower", 0, _INF, False, 0, partial(_of_map, mass_error)),
    Metric("moved-mass", "lower", 0, _INF, False, 0, partial(_of_map, moved_mass)),
    Metric("largest-gain", "lower", 0, _INF, False, 0, partial(_of_map, largest_gain)),
    Metric("seam-energy", "lower", 0, _INF, True, 0, _seams),
    Metric("cell-auroc", "higher", 0, 1, True, 0, _auroc, True),
    Metric("iou", "higher", 0, 1, True, 0, partial(_inside, metric=iou), True),
    Metric("area-iou", "higher", 0, 1, True, 0, _area_iou, True),
    Metric("concentration", "higher", 0, 1, True, 0, partial(_inside, metric=concentration), True),
    _ENERGY,
    _matched(_ENERGY),
    Metric("pointing-game", "higher", 0, 1, True, 0, partial(_inside, metric=pointing_game), True),
)


def metric_table() -> str:
    """What every metric declares, as the Markdown table of the documentation.

    >>> print(metric_table().splitlines()[2])
    | `half-deletion` | higher | -1 to 1 | yes | 2 |  |
    """
    rows = [["metric", "better", "range", "scale-invariant", "evaluations", "needs an outline"]]
    for metric in METRICS:
        reach = f"{metric.low:g} to {metric.high:g}" if metric.high < _INF else f"from {metric.low:g}"
        flags = ("yes" if flag else "" for flag in (metric.scale_invariant, metric.needs_truth))
        invariant, outline = flags
        rows.append([f"`{metric.name}`", metric.better, reach, invariant, str(metric.evaluations), outline])
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]])


@cache
def by_name(name: str) -> Metric:
    """The metric of that name; ``"half-deletion:noise"`` is half deletion with another fill than the mean colour.

    Every name may end with ``-matched``: the same after the map got the bilinear map's values in its own order.

    >>> by_name("deletion").better, by_name("infidelity:blur").scale_invariant, by_name("irof-matched").evaluations
    ('lower', True, 197)
    """
    plain = name.removesuffix(_MATCHED)
    _, _, fill = plain.partition(":")
    for metric in (*METRICS, *(_filling(FILLS[fill], f":{fill}") if fill in FILLS else ())):
        if metric.name == name:
            return metric
        if metric.name == plain:
            return _matched(metric)
    known = ", ".join(metric.name for metric in METRICS)
    raise ValueError(
        f"`metrics` must be names of metrics; got {name!r}. Choose from {known}; the first five take another fill as "
        f"in half-deletion:noise, and all of them {_MATCHED} at the end."
    )
