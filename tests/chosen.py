"""Settings for tests: a preset with a few things changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from usu.settings import Settings, settings_of

#: `cell` and `soft` with plain scores: a ridge on random coins, logits, min-max.
PLAIN: dict[str, Any] = {"fit": "ridge", "scale": "range", "link": "logit", "temperature": 0.2}


def chosen(preset: str | None = None, **changes: object) -> Settings:
    """The preset of that name (None: the default of `usu.upsample`) with other values of some settings.

    Evaluations are 300 where the preset would decide by itself.
    """
    found = settings_of(preset)
    exact = {"evaluations": 300} if found.evaluations == "auto" else {}
    return replace(found, **{**exact, **changes})  # type: ignore[arg-type]


def refining(**changes: object) -> Settings:
    """Settings of a refinement as the paper has it."""
    return Settings(**{"depth": 2, "reach": "pixel", **changes})  # type: ignore[arg-type]
