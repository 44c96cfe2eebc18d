"""Everything the pipeline lets one choose, checked when it is made. A preset is a few lines of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal

from usu import _checks as check
from usu.forward.calls import LINKS, Link, checked_link
from usu.forward.engine import RUNTIMES, RuntimeName
from usu.forward.fills import FILLS, Drop, Fill, fill_named
from usu.operator.interpolate import OF_COARSE
from usu.operator.redistribute import BUDGETS, Budget, SoftPrior, checked_budget
from usu.segment.segmenter import Segmenter, Slic

#: A little smoothing, or segments fray along fur and grain.
_SLIC = Slic(smoothing=1.0)
#: Rounder segments and fewer iterations: they stay the same when the picture is saved again or shifted by a pixel.
_CALM = Slic(compactness=20.0, smoothing=1.0, iterations=4)
#: Segments that a cell may hold before it is shared out more sharply.
_ROOM = 2
#: How the map is made, as against what it is: presets that differ in these alone have one name.
_HOW = ("evaluations", "stability", "ceiling", "seed", "engine")


@dataclass(frozen=True)
class Settings:
    """Everything the pipeline lets one choose. ``dataclasses.replace(usu.PRESETS["cell"], parts=400)`` changes one.

    >>> Settings(children=0)
    Traceback (most recent call last):
    ValueError: `children` must be a whole number of at least 1; got 0.
    """

    #: Segments: ``parts``. A number of evaluations that has no pair of groups for each of them makes fewer and larger
    #: ones, of which each has ``per_segment`` evaluations; 0: it does not. See `segments`.
    segmenter: Segmenter = _SLIC
    parts: int = 100
    per_segment: int = 0
    #: Scores: ``"sampled"`` groups and a fit, ``"delete"`` one at a time, ``"gradient"`` one backward pass, ``"none"``:
    #: the base measure decides alone.
    scoring: Literal["sampled", "delete", "gradient", "none"] = "sampled"
    #: The most model evaluations; sampled scoring uses exactly so many. ``"auto"``: as many as the expected
    #: ``stability`` takes, at most ``ceiling``. None: as many as the segments ask for.
    evaluations: int | Literal["auto"] | None = 300
    stability: float = 0.85
    ceiling: int = 600
    fill: Fill = "blur"
    link: Link = "logit"
    mode: Literal["delete", "keep", "both"] = "delete"
    #: Effects from groups: their posterior under a prior over place, colour and layers; a ridge; kernel SHAP.
    fit: Literal["posterior", "ridge", "kernel_shap"] = "ridge"
    #: Effects to scores: ``"range"``, min to max; ``"density"``, effect per pixel over the largest, none below 0;
    #: ``"log"``, the logarithm of that: it is the highest scores that differ between seeds, and now differ least.
    scale: Literal["range", "density", "log"] = "range"
    #: Refinement: the most levels after the first; into how many children a segment is split where |H| > threshold
    #: (with a posterior: where it is that undecided, from 0 to 1/2, whether it is one of the highest; all but the
    #: tolerance is then needless); center (at least five times ``mixing``, or flat places lose their coarse value) and
    #: temperature of the mixing; the root-mean-square change that ends it; the kind of H; and how far an edge carries
    #: the finer scores: to the pixels where H is high, a seam along the edge (the paper), or to the whole of every
    #: segment that has one.
    depth: int = 0
    children: int = 4
    threshold: float = 0.1
    center: float = 0.1
    mixing: float = 0.02
    tolerance: float = 1e-3
    heterogeneity: Literal["range", "diagonal"] = "range"
    reach: Literal["pixel", "segment"] = "segment"
    #: Where the scores change: along the borders of segments, or where the picture does (a guided filter of the field).
    edges: Literal["segments", "picture"] = "segments"
    #: Redistribution. ``sharpest``: the temperature falls with the number of segments that a cell holds, to this one;
    #: see `temperature_of`. None: it does not.
    temperature: float = 0.15
    sharpest: float | None = None
    potential: Callable[[Any], Any] | None = None
    budget: Budget = "cell"
    #: ``"bilinear"``: the smooth coarse map. ``"layers"``: that and a finer layer of the model, from one pass with one
    #: backward pass (an evaluation of the budget); the coarse map alone where a model has no such layer.
    base: Literal["bilinear", "layers"] | None = "bilinear"
    #: The exponent of the coarse map beside the finer layer; 0 leaves the base measure to the layer.
    of_coarse: float = OF_COARSE
    signed: Literal["flip", "literal"] = "flip"
    max_gain: float | None = 6.0
    #: What an empty cell gets, as a part of the mean density: below what D1 promises, but its pixels have an order.
    trace: float = 0.0
    #: Of the random groups.
    seed: int = 0
    #: What runs the model for scores: ``"torch"``, ``"onnx"``, ``"compile"`` or ``"auto"``; see `usu.forward.runtime`.
    engine: RuntimeName = "torch"

    def __post_init__(self) -> None:
        for name, words in _WORDS.items():
            value = getattr(self, name)
            if isinstance(value, str) or name not in _OR_VALUES:
                check.choice(name, value, words)
            else:
                _OR_VALUES[name](value)
        for name, least in {"parts": 1, "per_segment": 0, "children": 1, "depth": 0, "ceiling": 1}.items():
            check.whole_number(name, getattr(self, name), least=least)
        for name, (low, high) in _NUMBERS.items():
            check.real_number(name, getattr(self, name), least=low, most=high)
        for name in ("mixing", "temperature"):
            check.positive_number(name, getattr(self, name))
        check.generator("seed", self.seed)
        if self.sharpest is not None:
            check.positive_number("sharpest", self.sharpest)
        if not callable(self.segmenter):
            raise TypeError(
                "`segmenter` must be callable as (picture, parts, region=...); got "
                f"{type(self.segmenter).__name__}. Take one of usu.segment."
            )
        if self.potential is not None and not callable(self.potential):
            raise TypeError(f"`potential` must be a function of scores; got {type(self.potential).__name__}.")
        if self.max_gain is not None:
            check.real_number("max_gain", self.max_gain, least=1)
        if self.base is not None:
            check.choice("base", self.base, ("bilinear", "layers"))
        if isinstance(self.fill, Drop):
            check.choice("engine", self.engine, ("torch", "auto"))
            check.choice("scoring", self.scoring, ("sampled", "delete", "none"))
        if self.evaluations == "auto":
            if self.scoring != "sampled" or self.fit != "posterior":
                raise ValueError("`evaluations` must be a number where no posterior tells when to stop; got 'auto'.")
        elif self.evaluations is not None:
            check.whole_number("evaluations", self.evaluations, least=1)
        elif self.scoring == "sampled":
            raise ValueError("`evaluations` must be a number or 'auto' for sampled scores; got None.")

    @property
    def limit(self) -> int | None:
        """The most evaluations it may come to."""
        return self.ceiling if self.evaluations == "auto" else self.evaluations

    @property
    def segments(self) -> int:
        """How many segments are asked for: with few evaluations, fewer and larger ones.

        >>> [replace(PRESETS["soft"], evaluations=number).segments for number in (30, 100, 120, 300, "auto")]
        [7, 25, 60, 60, 60]
        """
        if self.scoring != "sampled" or self.evaluations in ("auto", None) or not self.per_segment:
            return self.parts
        evaluations = int(self.evaluations)
        return self.parts if evaluations >= 2 * self.parts else max(1, min(self.parts, evaluations // self.per_segment))

    def temperature_of(self, cells: int) -> float:
        """Of the potential, where a map has so many cells.

        A cell that holds a part of a segment, or one, has little to share out; one that holds many is a picture of its
        own. From two segments on, the temperature is divided by the cell's side, measured in segments.

        >>> [round(PRESETS["cell"].temperature_of(cells), 2) for cells in (49, 16, 9, 4, 1)]
        [0.8, 0.58, 0.44, 0.4, 0.4]
        """
        if self.sharpest is None:
            return self.temperature
        alone = self.temperature * math.sqrt(_ROOM * cells / self.segments)
        return min(self.temperature, max(self.sharpest, alone))

    @property
    def name(self) -> str:
        """The preset it is, whatever its evaluations and seed; or what is different about it."""
        for name, preset in PRESETS.items():
            changed = [key for key, value in vars(self).items() if key not in _HOW and value != getattr(preset, key)]
            if len(changed) < 2:
                return f"{name}, other {changed[0]}" if changed else name
        return "own settings"

    def described(self) -> dict[str, Any]:
        """As numbers and texts, for a manifest."""
        plain = (int, float, str, type(None))
        return {name: value if isinstance(value, plain) else repr(value) for name, value in vars(self).items()}


_WORDS: dict[str, tuple[str, ...]] = {
    "engine": RUNTIMES,
    "scoring": ("sampled", "delete", "gradient", "none"),
    "mode": ("delete", "keep", "both"),
    "fit": ("posterior", "ridge", "kernel_shap"),
    "scale": ("range", "density", "log"),
    "heterogeneity": ("range", "diagonal"),
    "reach": ("pixel", "segment"),
    "edges": ("segments", "picture"),
    "signed": ("flip", "literal"),
    "fill": FILLS,
    "link": LINKS,
    "budget": BUDGETS,
}
#: Settings that are any number, from the least to the most.
_NUMBERS: dict[str, tuple[float | None, float | None]] = {
    "threshold": (0, None), "center": (None, None), "tolerance": (0, None), "trace": (0, 1e-7), "stability": (0, 1),
    "of_coarse": (0, None),
}  # fmt: skip
#: What may also be a value, by who checks it.
_OR_VALUES: dict[str, Callable[[Any], object]] = {"fill": fill_named, "link": checked_link, "budget": checked_budget}

#: What `cell` and `soft` share: few segments, log-odds, a posterior, logarithms, until the map is stable. With four
#: evaluations, two pairs of groups, a segment always has a whole matrix of `orthogonal_groups`.
_STABLE: dict[str, Any] = {
    "segmenter": _CALM, "parts": 60, "per_segment": 4, "link": "log_odds", "fit": "posterior", "scale": "log",
    "evaluations": "auto", "temperature": 0.3, "base": "layers", "edges": "picture",
}  # fmt: skip

#: - ``paper``: as printed. Segments deleted one at a time, refined where the diagonal H-map answers, cells keep
#:   their mass, no base measure, signs literal.
#: - ``cell``: D1 exact. Scores of groups with their posterior, along the picture's edges; what the model's layers agree
#:   on as base measure; a ceiling against stray pixels.
#: - ``soft``: only the total is kept. The same scores, the layers as a prior with an exponent.
#: - ``fast``: only the total is kept. No scores: what the layers agree on, from one forward and one backward pass.
PRESETS: Mapping[str, Settings] = MappingProxyType(
    {
        "paper": Settings(
            parts=50, scoring="delete", evaluations=None, depth=2, heterogeneity="diagonal", reach="pixel",
            temperature=0.1, base=None, signed="literal", max_gain=None,
        ),
        "cell": Settings(trace=1e-13, **_STABLE | {"temperature": 0.8, "sharpest": 0.4}),
        "soft": Settings(budget=SoftPrior(0.75, 0.0), max_gain=None, **_STABLE),
        "fast": Settings(scoring="none", evaluations=None, base="layers", budget=SoftPrior(1.0, 0.0), max_gain=None),
    }
)  # fmt: skip
#: If nothing is said: a map that is handed in keeps its masses; what a person will look at follows the model.
UPSAMPLE_DEFAULT, EXPLAIN_DEFAULT = "cell", "soft"


def settings_of(
    preset: str | Settings | None,
    *,
    default: str = UPSAMPLE_DEFAULT,
    evaluations: int | Literal["auto"] | None = None,
    seed: int | None = None,
    engine: RuntimeName | None = None,
) -> Settings:
    """A preset by its name, or the settings themselves; with other evaluations, seed or engine where they are given."""
    settings = default if preset is None else preset
    if not isinstance(settings, Settings):
        check.choice("preset", settings, tuple(PRESETS))
        settings = PRESETS[settings]
    given: dict[str, Any] = {"evaluations": evaluations, "seed": seed, "engine": engine}
    changes = {name: value for name, value in given.items() if value is not None}
    return replace(settings, **changes) if changes else settings
