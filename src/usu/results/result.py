"""The results themselves: `Upsampled`, a pixel map and how it was made; `Explanation`, of one picture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic

import numpy as np

from usu.models.pictures import Geometry, placed
from usu.plot import figures
from usu.plot.panels import Panel
from usu.refine import StopReason
from usu.results.folder import manifest_of, save_explanation
from usu.sources.cams import CoarseMap
from usu.types import ArrayT, NDArray

if TYPE_CHECKING:
    from usu.results.region import Region


@dataclass(frozen=True, eq=False, repr=False)
class Upsampled(Generic[ArrayT]):
    """A pixel map and how it was made.

    For a batch, ``pixel_map`` and ``scores`` are stacked; ``segments``, ``depth_scores`` and ``stop_reason`` have one
    entry per picture; ``evaluations`` and ``seconds`` are sums and ``mass_error`` is the worst.
    """

    #: (H, W); (T, H, W) for several targets; with a leading B for a batch. Library, dtype and device of the coarse map.
    pixel_map: ArrayT
    #: The standard deviation of each pixel's value, like ``pixel_map``; None where the scores have no posterior.
    stderr: ArrayT | None
    #: The expected IoU of the 5 % highest pixels with those of a run with another seed; None where nobody knows. One
    #: for each picture of a batch.
    stability: float | tuple[float | None, ...] | None
    #: The score field the mass followed, like ``pixel_map``, in [0, 1].
    scores: ArrayT
    #: Effects of the last segments with their posterior (`usu.score.groups.Effects`); None where there is none.
    effects: Any
    #: Label maps, the coarsest first.
    segments: tuple[Any, ...]
    #: Score fields (T, H, W) after each depth; the last is ``scores``.
    depth_scores: tuple[Any, ...]
    #: Pictures passed through the model.
    evaluations: int
    stop_reason: StopReason | tuple[StopReason, ...]
    #: Largest relative error of what the budget promises: cell masses, cell budgets, or the total.
    mass_error: float
    seconds: float
    #: Versions, settings, seed, model, targets.
    provenance: Mapping[str, Any]
    #: What a person sees, H x W x 3 in [0, 1], with a leading B for a batch.
    picture: NDArray | None = None

    @property
    def title(self) -> str:
        """What was explained."""
        size = " x ".join(map(str, self.pixel_map.shape))
        return f"{_targets(self.provenance.get('target'))}, {size}"

    @property
    def facts(self) -> str:
        """How it was made, in one line."""
        known = [value for value in np.atleast_1d(np.array(self.stability, dtype=float)) if np.isfinite(value)]
        stable = f", stability {min(known):.2f}" if known else ""
        return f"preset {self.provenance.get('preset', '?')}, {self.evaluations} evaluations{stable}"

    @property
    def dims(self) -> int:
        """1 for signals, 2 for pictures, 3 for volumes."""
        return 2 if self.picture is None else self.picture.ndim - 1 - isinstance(self.stop_reason, tuple)

    def panels(self) -> list[Panel]:
        """Each map over its picture."""
        fields = figures.flat(self.pixel_map, self.dims)
        shown = [None] * len(fields)
        if self.picture is not None:
            pictures = self.picture if self.picture.ndim == self.dims + 2 else self.picture[None]
            shown = [picture for picture in pictures for _ in range(len(fields) // len(pictures))]
        return [Panel("", field, picture) for field, picture in zip(fields, shown, strict=True)]

    def __repr__(self) -> str:
        return f"Upsampled({self.title}; {self.facts})"

    # how a result is drawn is written once, for all kinds of results
    overlay, plot, _repr_html_, _repr_png_ = figures.overlays, figures.plot, figures.html, figures.small_panel


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """One picture explained: the coarse map of a source, upsampled; see `usu.explain`.

    What `Upsampled` has, it has, too: ``pixel_map``, ``stderr``, ``stability``, ``scores``, ``evaluations``, ...
    """

    source: CoarseMap
    #: The coarse map, (h, w) or (T, h, w).
    coarse: NDArray
    upsampled: Upsampled[NDArray]
    #: The picture as the model sees it, H x W x 3 in [0, 1].
    picture: NDArray
    #: The classes explained, as a person reads them.
    labels: tuple[str, ...]
    #: The file's own picture and how the model's input sits in it, where there is one.
    original: NDArray | None = None
    geometry: Geometry | None = None
    #: What was asked for, as the caller likes to remember it; written into the manifest.
    request: Mapping[str, Any] = field(default_factory=dict)
    #: What is shown where the source's map is zero; None where it is not.
    instead: str | None = None
    #: The source's name; of a map made elsewhere it is not known.
    source_name: str = "own map"

    def __post_init__(self) -> None:
        if isinstance(self.labels, str):  # one class has one name
            object.__setattr__(self, "labels", (self.labels,))

    pixel_map = property(attrgetter("upsampled.pixel_map"), doc="The result, at the resolution of the model's input.")
    stderr = property(attrgetter("upsampled.stderr"), doc="See `Upsampled`.")
    stability = property(attrgetter("upsampled.stability"), doc="See `Upsampled`.")
    scores = property(attrgetter("upsampled.scores"), doc="See `Upsampled`.")
    effects = property(attrgetter("upsampled.effects"), doc="See `Upsampled`.")
    segments = property(attrgetter("upsampled.segments"), doc="See `Upsampled`.")
    depth_scores = property(attrgetter("upsampled.depth_scores"), doc="See `Upsampled`.")
    evaluations = property(attrgetter("upsampled.evaluations"), doc="Without the source's own; see `Upsampled`.")
    stop_reason = property(attrgetter("upsampled.stop_reason"), doc="See `Upsampled`.")
    mass_error = property(attrgetter("upsampled.mass_error"), doc="See `Upsampled`.")
    dims = property(lambda self: self.picture.ndim - 1, doc="See `Upsampled`.")
    seconds = property(attrgetter("upsampled.seconds"), doc="See `Upsampled`.")
    provenance = property(attrgetter("upsampled.provenance"), doc="See `Upsampled`.")

    @property
    def label(self) -> str:
        """The class explained, as a person reads it; several in one line."""
        return "; ".join(self.labels)

    @property
    def probabilities(self) -> tuple[float | None, ...]:
        """Of the classes explained; None where the model's output does not say."""
        known = tuple(goal.probability for goal in self.source.goals)
        return known if len(known) == len(self.labels) else (None,) * len(self.labels)

    @property
    def probability(self) -> float | None:
        """Of the first class explained."""
        return self.probabilities[0]

    @property
    def title(self) -> str:
        """The classes with their probabilities."""
        return "; ".join(self.names)

    @property
    def names(self) -> tuple[str, ...]:
        """Each class with its probability, short enough for a title."""
        return tuple(map(_named, self.labels, self.probabilities))

    @property
    def facts(self) -> str:
        """How it was made, in one line."""
        layer = f" at {self.source.layer}" if self.source.layer else ""
        return f"{self.source_name}{layer}, {self.upsampled.facts}"

    @property
    def first_map(self) -> NDArray:
        """The map of the first target, for pictures of one map."""
        return figures.first(self.pixel_map, self.dims)

    def on_original(self) -> tuple[NDArray, NDArray]:
        """The file's own picture and the first map placed on it; outside of what the model saw the map is NaN."""
        return self._placed(self.first_map)

    def region(self, share: float = 0.5) -> Region:
        """The fewest pixels that hold ``share`` of the first map's evidence, in the file's own picture."""
        from usu.results.region import region_of

        return region_of(self.on_original()[1], share)

    def panels(self) -> list[Panel]:
        """The map of each class over the file's own picture."""
        maps = figures.flat(self.pixel_map, self.dims)
        placed = [self._placed(field) for field in maps]
        return [Panel(name, field, picture) for name, (picture, field) in zip(self.names, placed, strict=True)]

    def _placed(self, field: NDArray) -> tuple[NDArray, NDArray]:
        if self.original is None or self.geometry is None:
            return self.picture, field
        return self.original, placed(field, self.geometry)

    def __repr__(self) -> str:
        return f"Explanation({self.title}; {self.facts})"

    def _repr_html_(self) -> str:
        return figures.html(self, [*self.source.notes, *self.provenance.get("notes", ())])

    overlay, plot, _repr_png_ = figures.overlays, figures.plot, figures.small_panel
    figure, animation = figures.explanation_figure, figures.animation
    save, manifest = save_explanation, manifest_of


def _percent(probability: float) -> str:
    """
    >>> _percent(0.387), _percent(0.001), _percent(0.999)
    ('39 %', '< 1 %', '> 99 %')
    """
    whole = round(100 * probability)
    return "< 1 %" if whole < 1 else "> 99 %" if whole > 99 else f"{whole} %"


def _named(label: str, probability: float | None) -> str:
    """A class as a title has it: the first of its names where all of them are too long."""
    short = label if len(label) <= 40 else label.partition(", ")[0]
    short = short if len(short) <= 60 else f"{short[:59]}…"
    return short if probability is None else f"{short}, {_percent(probability)}"


def _targets(target: Any) -> str:
    if isinstance(target, (list, tuple)):
        return f"{len(target)} targets"
    return "no class asked for" if target is None else f"class {target}" if isinstance(target, int) else str(target)
