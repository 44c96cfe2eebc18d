"""The search for the presets that came before scores had a posterior; its tables: docs/appendix/presets-search.md."""

from __future__ import annotations

from dataclasses import replace

from usu import PRESETS
from usu.segment import Slic

#: `cell` and `soft` as these experiments found and confirmed them.
FORMER = {
    name: replace(
        PRESETS[name], segmenter=Slic(smoothing=1.0), parts=150, temperature=0.2, link="logit", fit="ridge",
        scale="range", evaluations=300, per_segment=0, sharpest=None,
    )
    for name in ("cell", "soft")
}  # fmt: skip
