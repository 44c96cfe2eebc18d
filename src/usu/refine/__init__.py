"""Scores -> finer scores, where they change: heterogeneity, boundary set, mixing, merge, stop, the loop."""

from usu.refine.heterogeneity import boundary_segments, heterogeneity, strengths
from usu.refine.loop import (
    Refined,
    Score,
    Split,
    StopReason,
    UnitScale,
    changed,
    recentre,
    refine,
    share_of_largest,
    unit_scale,
)
from usu.refine.mixing import merge, mixing

__all__ = [
    "Refined",
    "Score",
    "Split",
    "StopReason",
    "UnitScale",
    "boundary_segments",
    "changed",
    "heterogeneity",
    "merge",
    "mixing",
    "recentre",
    "refine",
    "share_of_largest",
    "strengths",
    "unit_scale",
]
