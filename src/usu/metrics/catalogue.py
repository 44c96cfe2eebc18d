"""Every metric as a value: which way is better, its range, whether scale matters, what it costs.

The declarations are data: tests iterate over them, `usu.evaluate` runs them by name, tables and reports show them.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from usu.forward import Model
from usu.forward.fills import Fill, filled
from usu.metrics.curves import STEPS, curve, half_deletion, irof, monotonicity_correlation, pixel_flipping
from usu.metrics.infidelity import block_changes, infidelity_of
from usu.metrics.localization import area_iou, cell_auroc, concentration, energy_in_mask, iou, pointing_game
from usu.metrics.maps import Measured, aimed, one_target, quantile_match
from usu.metrics.mass import largest_gain, mass_error, moved_mass, seam_energy, sparseness
from usu.metrics.road import road
from usu.operator.interpolate import interpolate
from usu.types import NDArray

T = TypeVar("T")
_INF = float("inf")
_MATCHED = "-matched"
#: Those that a name can end with, as in ``half-deletion:noise``.
FILLS: dict[str, Fill] = {"blur": "blur", "mean": "mean", "noise": "noise"}


class Memory:
    """Things by their key, each made on first demand; everybody's time is as if nothing was shared.

    >>> memory = Memory()
    >>> [memory.once("answer", lambda: 42), memory.once("answer", lambda: 43)]
    [42, 42]
    """

    def __init__(self) -> None:
        self._made: dict[Any, tuple[Any, float]] = {}
        #: Seconds that were saved so far, because something was there already.
        self.lent = 0.0

    def once(self, key: Any, make: Callable[[], T]) -> T:
        """What is remembered under ``key``; on first demand it is made."""
        if key in self._made:
            found: T = self._made[key][0]
            self.lent += self._made[key][1]
            return found
        start, lent = time.perf_counter(), self.lent
        made = make()
        # what it borrowed itself belongs to its own time
        self._made[key] = made, time.perf_counter() - start + self.lent - lent
        return made

    def seconds(self, key: Any) -> float:
        """How long it took to make; 0 for what was not made."""
        return self._made[key][1] if key in self._made else 0.0


def seeded(seed: int, purpose: str) -> torch.Generator:
    """A generator for one purpose, whatever was drawn for others before."""
    digest = hashlib.sha256(f"{seed}/{purpose}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))


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
    #: What is the same for every map of the picture, and for every metric of this map.
    of_picture: Memory = field(default_factory=Memory)
    of_map: Memory = field(default_factory=Memory)

    def dice(self, purpose: str) -> torch.Generator:
        """A generator for one purpose, the same for every map of the picture."""
        return seeded(self.seed, purpose)

    @property
    def cells(self) -> tuple[int, int]:
        """The coarse map's shape."""
        return int(self.coarse.shape[0]), int(self.coarse.shape[1])

    def needed(self, name: str) -> Any:
        """What a metric cannot do without, such as ``"truth"`` or ``"segments"``."""
        if (found := getattr(self, name)) is None:
            raise ValueError(f"`{name}` must be given for this metric; got None.")
        return found

    @property
    def matched(self) -> Case:
        """The same map with the values of the bilinear one, in its own order."""

        def made() -> NDArray:
            like = interpolate(self.coarse, (self.image.shape[-2], self.image.shape[-1]), "bilinear")
            return quantile_match(self.pixel_map, like, generator=self.dice("ties"))

        return replace(self, of_map=Memory(), pixel_map=self.of_map.once("matched", made))

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


def _asking(metric: Callable[..., Measured]) -> Callable[[Case], Measured]:
    """A metric that asks the model, with its own settings."""
    name = metric.__name__
    return lambda case: metric(case.pixel_map, case.image, case.model, case.target, generator=case.dice(name))


def _plain(metric: Callable[..., float], *given: str) -> Callable[[Case], Measured]:
    """A metric that asks no model, of the map and these parts of the case."""
    return lambda case: Measured(metric(case.pixel_map, *(case.needed(name) for name in given)))


def _area_iou(case: Case) -> Measured:
    return Measured(area_iou(case.pixel_map, case.needed("truth"), generator=case.dice("ties")))


def _halves(case: Case, fill: Fill) -> Measured:
    measure = partial(half_deletion, case.pixel_map, case.image, case.model, case.cells, case.target)
    return measure(fill=fill, generator=case.dice(f"half{fill}"))


def _end(case: Case, fill: Fill | None) -> float:
    """g of the image (None), or of nothing but its fill: where all curves of a picture start or end."""

    def ask() -> float:
        asked, image = aimed(case.model, case.target, case.image, "probability")
        shown = image if fill is None else filled(image, fill)
        return float(one_target(asked.evaluate(image, 1, lambda _: shown[None])))

    return case.of_picture.once(("end", fill), ask)


def _curve(case: Case, name: str, fill: Fill) -> Measured:
    # asked for outside of the curve, so that their time counts for every curve that has them
    ends = _end(case, None), _end(case, fill)
    measure = partial(curve, case.pixel_map, case.image, case.model, case.target, insert=name == "insertion")
    dice = case.dice(f"{name}{fill}")
    return case.of_map.once((name, fill), lambda: measure(fill=fill, generator=dice, ends=ends))


def _both_curves(case: Case, fill: Fill) -> Measured:
    shown, hidden = _curve(case, "insertion", fill), _curve(case, "deletion", fill)
    return Measured(shown.value - hidden.value, shown.evaluations + hidden.evaluations)


def _infidelity(case: Case, scaling: Literal["optimal", "raw"], fill: Fill) -> Measured:
    # the model's answers do not depend on the map, so thirty maps of a picture share them
    dice = case.dice(f"blocks{fill}")
    ask = partial(block_changes, case.image, case.model, case.target, fill=fill, generator=dice)
    changes = case.of_picture.once(("blocks", fill), ask)
    return Measured(infidelity_of(case.pixel_map, changes, scaling=scaling), changes.evaluations)


def _filling(fill: Fill, suffix: str = "") -> tuple[Metric, ...]:
    """The metrics that hide parts of the picture, with one fill."""
    return (
        Metric(f"half-deletion{suffix}", "higher", -1, 1, True, 2, partial(_halves, fill=fill)),
        Metric(f"deletion{suffix}", "lower", 0, 1, True, STEPS + 1, partial(_curve, name="deletion", fill=fill)),
        Metric(f"insertion{suffix}", "higher", 0, 1, True, STEPS + 1, partial(_curve, name="insertion", fill=fill)),
        Metric(f"insertion-deletion{suffix}", "higher", -1, 1, True, 2 * STEPS + 2, partial(_both_curves, fill=fill)),
        Metric(f"infidelity{suffix}", "lower", 0, 1, True, 201, partial(_infidelity, scaling="optimal", fill=fill)),
    )


def _matched(metric: Metric) -> Metric:
    """After the map got the bilinear map's values in its own order, for metrics that magnitudes decide."""
    name = metric.name + _MATCHED
    return replace(metric, name=name, scale_invariant=True, measure=lambda case: metric.measure(case.matched))


_FILLED = _filling("mean")
_ENERGY = Metric("energy-in-mask", "higher", 0, 1, True, 0, _plain(energy_in_mask, "truth"), True)
METRICS: tuple[Metric, ...] = (
    *_FILLED,
    _matched(_FILLED[-1]),
    Metric("infidelity-raw", "lower", 0, _INF, False, 201, partial(_infidelity, scaling="raw", fill="mean")),
    Metric("road", "higher", -0.5, 0.5, True, 8, _asking(road)),
    Metric("irof", "higher", 0, 1, True, 197, _asking(irof)),
    Metric("pixel-flipping", "lower", 0, 1, True, 32, _asking(pixel_flipping)),
    Metric("monotonicity", "higher", -1, 1, True, 33, _asking(monotonicity_correlation)),
    Metric("sparseness", "higher", 0, 1, True, 0, _plain(sparseness)),
    Metric("mass-error", "lower", 0, _INF, False, 0, _plain(mass_error, "coarse")),
    Metric("moved-mass", "lower", 0, _INF, False, 0, _plain(moved_mass, "coarse")),
    Metric("largest-gain", "lower", 0, _INF, False, 0, _plain(largest_gain, "coarse")),
    Metric("seam-energy", "lower", 0, _INF, True, 0, _plain(seam_energy, "cells", "segments")),
    Metric("cell-auroc", "higher", 0, 1, True, 0, _plain(cell_auroc, "truth", "cells"), True),
    Metric("iou", "higher", 0, 1, True, 0, _plain(iou, "truth"), True),
    Metric("area-iou", "higher", 0, 1, True, 0, _area_iou, True),
    Metric("concentration", "higher", 0, 1, True, 0, _plain(concentration, "truth"), True),
    _ENERGY,
    _matched(_ENERGY),
    Metric("pointing-game", "higher", 0, 1, True, 0, _plain(pointing_game, "truth"), True),
)


@cache
def by_name(name: str) -> Metric:
    """The metric of that name; ``"half-deletion:noise"`` is half deletion with another fill than the mean colour.

    Every name may end with ``-matched``: the same after the map got the bilinear map's values in its own order.

    >>> by_name("deletion").better, by_name("infidelity:blur").scale_invariant, by_name("irof-matched").evaluations
    ('lower', True, 197)
    """
    known = {metric.name: metric for metric in METRICS}
    for label, fill in FILLS.items():
        known |= {metric.name: metric for metric in _filling(fill, f":{label}")}
    plain = name.removesuffix(_MATCHED)
    if plain in known:
        return known[name] if name in known else _matched(known[plain])
    choices = ", ".join(metric.name for metric in METRICS)
    more = f"of the first five also as in half-deletion:noise, and all of them with {_MATCHED} at the end"
    raise ValueError(f"`metrics` must be names of metrics; got {name!r}. Choose from {choices}; {more}.")
