"""The results: `Upsampled`, a pixel map and how it was made; `Explanation`, of one picture; and `load`, from disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic

import numpy as np
import torch

from usu._checks import as_numpy
from usu.models.pictures import Geometry, placed
from usu.operator.interpolate import Mode, resized
from usu.plot import figures
from usu.plot.lattices import sliced
from usu.plot.panels import Panel, figure, overlays
from usu.plot.scales import SCORE_SCALE, shared_scale, shares
from usu.refine import StopReason
from usu.results.folder import NUMBERS, SCHEMA, SOURCE, save_explanation, stored
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
        target = self.provenance.get("target")
        if isinstance(target, (list, tuple)):
            target = f"{len(target)} targets"
        elif isinstance(target, int):
            target = f"class {target}"
        return f"{target or 'no class asked for'}, {_size(self.pixel_map)}"

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

    def maps(self, name: str = "pixel_map") -> NDArray:
        """Pixel maps, scores or standard errors of all pictures and targets, one after the other."""
        values = as_numpy(getattr(self, name))
        return values.reshape(-1, *values.shape[-self.dims :])

    def panels(self) -> list[Panel]:
        """Each map over its picture."""
        fields = self.maps()
        if self.picture is None:
            return [Panel("", field) for field in fields]
        pictures = self.picture.reshape(-1, *self.picture.shape[-self.dims - 1 :])
        each = len(fields) // len(pictures)
        return [Panel("", field, pictures[number // each]) for number, field in enumerate(fields)]

    def __repr__(self) -> str:
        return f"Upsampled({self.title}; {self.facts})"

    # how a result is drawn is written once, for all kinds of results
    overlay, plot, _repr_html_, _repr_png_ = overlays, figures.plot, figures.html, figures.small_panel


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
    def names(self) -> tuple[str, ...]:
        """Each class with its probability, short enough for a title."""
        return tuple(map(_named, self.labels, self.probabilities))

    @property
    def title(self) -> str:
        """The classes with their probabilities."""
        return "; ".join(self.names)

    @property
    def facts(self) -> str:
        """How it was made, in one line."""
        layer = f" at {self.source.layer}" if self.source.layer else ""
        return f"{self.source_name}{layer}, {self.upsampled.facts}"

    def maps(self, name: str = "pixel_map") -> NDArray:
        """Of all classes: pixel maps, scores, standard errors or coarse maps."""
        values: NDArray = getattr(self, name)
        return values.reshape(-1, *values.shape[1 - self.picture.ndim :])

    @property
    def first_map(self) -> NDArray:
        """The map of the first target, for pictures of one map."""
        maps: NDArray = self.pixel_map
        return maps if maps.ndim == self.dims else maps[0]

    def on_original(self, pixel_map: NDArray | None = None) -> tuple[NDArray, NDArray]:
        """The file's own picture and a map placed on it, the first if not given; NaN where the model saw nothing."""
        shown = self.first_map if pixel_map is None else pixel_map
        if self.original is None or self.geometry is None:
            return self.picture, shown
        return self.original, placed(shown, self.geometry)

    def region(self, share: float = 0.5) -> Region:
        """The fewest pixels that hold ``share`` of the first map's evidence, in the file's own picture."""
        from usu.results.region import region_of

        return region_of(self.on_original()[1], share)

    def panels(self) -> list[Panel]:
        """The map of each class over the file's own picture."""
        both = map(self.on_original, self.maps())
        return [Panel(name, shown, picture) for name, (picture, shown) in zip(self.names, both, strict=True)]

    def figure(self, *, dark: bool = False) -> Any:
        """Picture, coarse map, bilinear, USU, segments and scores per depth, standard error (needs the extra ``plot``).

        Of several classes: the picture and every map; below, the last segments and every coarse map.
        """
        result, maps = self.upsampled, self.maps()
        heading = f"{self.title}\n{self.facts}, {result.seconds:.1f} s"
        if self.instead is not None:
            heading += f"\nNo evidence for the target; shown instead: {self.instead}"
        if len(maps) > 1:
            panels, columns = self._classes(maps), len(maps) + 1
        else:
            panels = self._stages(maps[0])
            columns = 3 if len(panels) == 6 else 4
        if self.dims == 3:
            panels = sliced(panels, np.abs(maps).sum(0))
        return figure(panels, columns=columns if self.dims == 2 else 1, heading=heading, dark=dark)

    def _stages(self, sharp: NDArray) -> list[Panel]:
        result, picture, coarse = self.upsampled, self.picture, self.maps("coarse")[0]
        shown = coarse if sharp.ndim == 2 else _resized(coarse, sharp.shape, "nearest")
        layer = f", layer {self.source.layer}" if self.source.layer else ""
        panels = [
            Panel("what the model sees", picture=picture, note=_size(sharp)),
            Panel("coarse map", shown, note=f"{self.source_name}{layer}, {_size(coarse)}"),
            Panel("bilinear", _resized(coarse, sharp.shape, "bilinear"), picture),
            Panel("USU", sharp, picture, f"mass error {result.mass_error:.0e}"),
        ]
        for depth, (labels, scores) in enumerate(zip(result.segments, result.depth_scores, strict=True)):
            note = f"{labels.max() + 1} segments"
            panels.append(Panel(f"segments, depth {depth}", picture=picture, labels=labels, note=note))
            panels.append(Panel(f"scores, depth {depth}", scores[0].numpy(), scale=SCORE_SCALE))
        if result.stderr is not None:
            unit = shares(self.maps("stderr")[0], sharp)
            panels.append(Panel("standard error", unit, scale=shared_scale([unit])))
        return panels

    def _classes(self, maps: NDArray) -> list[Panel]:
        picture, labels, coarse = self.picture, self.segments[-1], self.maps("coarse")
        shown = coarse if self.dims == 2 else _resized(coarse, maps.shape[1:], "nearest")
        return [
            Panel("what the model sees", picture=picture),
            *(Panel(name, field, picture) for name, field in zip(self.names, maps, strict=True)),
            Panel("segments", picture=picture, labels=labels, note=f"{labels.max() + 1} segments"),
            *(Panel("coarse map", field, note=_size(coarse[0])) for field in shown),
        ]

    def manifest(self) -> dict[str, Any]:
        """Everything but the maps, as plain values."""
        result, source = self.upsampled, self.source
        return {
            "schema": SCHEMA,
            "label": self.label,
            "labels": list(self.labels),
            "probabilities": list(self.probabilities),
            "targets": list(source.targets) if source.targets is not None else None,
            "source": {
                "name": self.source_name,
                **{name: getattr(source, name) for name in SOURCE},
                "notes": list(source.notes),
                "dtype": str(source.values.dtype).removeprefix("torch."),
                "goals": [list(goal) for goal in source.goals],
            },
            "instead": self.instead,
            **{name: getattr(result, name) for name in NUMBERS},
            "stop_reason": self.stop_reason.name,
            "geometry": None if self.geometry is None else asdict(self.geometry),
            **result.provenance,
            "request": dict(self.request),
        }

    def __repr__(self) -> str:
        return f"Explanation({self.title}; {self.facts})"

    def _repr_html_(self) -> str:
        return figures.html(self, [*self.source.notes, *self.provenance.get("notes", ())])

    overlay, plot, _repr_png_ = overlays, figures.plot, figures.small_panel
    animation, save = figures.animation, save_explanation


def load(folder: str | Path) -> Explanation:
    """What ``Explanation.save(folder)`` wrote.

    Guarantees:
        Every array, name and number is equal to the saved one's to the last bit, on the CPU. Not saved: the posterior
        behind ``stderr`` (``effects``).

    Raises:
        UsuError: in one sentence, if the folder holds no result, a damaged one, or one of another schema.

    >>> import tempfile
    >>> load(tempfile.gettempdir() + "/no-result-here")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    usu.errors.UsuError: ...no-result-here holds no result of usu: it has no manifest.json.
    """
    own, upsampled = stored(Path(folder))
    return Explanation(upsampled=Upsampled(**upsampled), **own)


def _resized(coarse: NDArray, size: tuple[int, ...], mode: Mode) -> NDArray:
    shown: NDArray = resized(torch.from_numpy(np.ascontiguousarray(coarse)), size, mode).numpy()
    return shown


def _size(field: Any) -> str:
    return " x ".join(map(str, field.shape))


def _named(label: str, probability: float | None) -> str:
    """A class as a title has it: the first of its names where all of them are too long.

    >>> _named("cat", 0.387), _named("cat", 0.001), _named("cat", 0.999), _named("cat", None)
    ('cat, 39 %', 'cat, < 1 %', 'cat, > 99 %', 'cat')
    """
    short = label if len(label) <= 40 else label.partition(", ")[0]
    short = short if len(short) <= 60 else f"{short[:59]}…"
    if probability is None:
        return short
    whole = round(100 * probability)
    return f"{short}, {'< 1' if whole < 1 else '> 99' if whole > 99 else whole} %"
