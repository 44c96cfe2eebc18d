"""Presets: a few lines of settings over one pipeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, Literal

from usu import _checks as check
from usu.forward.fills import Fill
from usu.forward.outputs import Link
from usu.operator.budgets import Budget, SoftPrior
from usu.segment import Segmenter, Slic

#: A little smoothing, or segments fray along fur and grain.
_SLIC = Slic(smoothing=1.0)


@dataclass(frozen=True)
class Settings:
    """Everything the pipeline lets one choose. ``dataclasses.replace(usu.PRESETS["cell"], parts=400)`` changes one."""

    #: Segments.
    segmenter: Segmenter = _SLIC
    parts: int = 100
    #: Scores: ``"sampled"`` groups and a fit, ``"delete"`` one at a time, ``"gradient"`` one backward pass,
    #: ``"unguided"`` no model at all, ``"none"`` no scores: the base measure decides alone.
    scoring: Literal["sampled", "delete", "gradient", "unguided", "none"] = "sampled"
    #: The most model evaluations. Sampled scoring uses exactly so many; None: as many as the segments ask for.
    evaluations: int | None = 300
    fill: Fill = "blur"
    link: Link = "logit"
    mode: Literal["delete", "keep", "both"] = "delete"
    fit: Literal["ridge", "kernel_shap"] = "ridge"
    #: Refinement.
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
    #: Redistribution.
    temperature: float = 0.15
    potential: Callable[[Any], Any] | None = None
    budget: Budget = "cell"
    #: ``"bilinear"``: the smooth coarse map. ``"layers"``: that and the model's finer layers, heard in one pass with
    #: one backward pass (an evaluation of the budget); the coarse map alone where a model has none to listen to.
    base: Literal["bilinear", "layers"] | None = "bilinear"
    signed: Literal["flip", "literal"] = "flip"
    max_gain: float | None = 6.0
    #: What an empty cell gets, as a part of the mean density: below what D1 promises, but its pixels have an order.
    trace: float = 0.0
    #: Of the random groups.
    seed: int = 0

    def described(self) -> dict[str, Any]:
        """As numbers and texts, for a manifest."""
        plain = (int, float, str, type(None))
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value if isinstance(value, plain) else repr(value) for name, value in values.items()}


#: - ``paper``: as printed. Segments deleted one at a time, refined where the diagonal H-map answers, cells keep
#:   their mass, no base measure, signs literal.
#: - ``cell``: D1 exact. Sampled scores along the picture's edges, what the model's layers agree on as base measure, a
#:   ceiling against stray pixels.
#: - ``soft``: only the total is kept. The same scores, the layers as a prior with an exponent.
#: - ``fast``: only the total is kept. No scores: what the layers agree on, from one forward and one backward pass.
PRESETS: Mapping[str, Settings] = MappingProxyType(
    {
        "paper": Settings(
            parts=50,
            scoring="delete",
            evaluations=None,
            depth=2,
            heterogeneity="diagonal",
            reach="pixel",
            temperature=0.1,
            base=None,
            signed="literal",
            max_gain=None,
        ),
        "cell": Settings(parts=150, temperature=0.2, base="layers", edges="picture", trace=1e-13),
        "soft": Settings(
            parts=150, temperature=0.2, base="layers", edges="picture", budget=SoftPrior(0.75, 0.0), max_gain=None
        ),
        "fast": Settings(scoring="none", evaluations=None, base="layers", budget=SoftPrior(1.0, 0.0), max_gain=None),
    }
)
#: A map that is handed in keeps its masses: what `usu.upsample` does if nothing is said.
UPSAMPLE_DEFAULT = "cell"
#: A picture that is explained to a person is shown as the model sees it: what `usu.explain` does if nothing is said.
EXPLAIN_DEFAULT = "soft"


def settings_of(preset: str | Settings | None) -> Settings:
    """The preset's settings, by its name."""
    if isinstance(preset, Settings):
        return preset
    name = UPSAMPLE_DEFAULT if preset is None else preset
    check.choice("preset", name, tuple(PRESETS))
    return PRESETS[name]
