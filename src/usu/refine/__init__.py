"""Scores -> finer scores, where they change: heterogeneity, boundary set, mixing, merge, stop, the loop."""

from usu.refine.fields import boundary_segments, heterogeneity, merge, mixing, strengths
from usu.refine.loop import Refined, Score, Split, StopReason, changed, recentre, refine, share_of_largest, unit_scale

__all__ = [
    "Refined", "Score", "Split", "StopReason", "boundary_segments", "changed", "heterogeneity", "merge", "mixing",
    "recentre", "refine", "share_of_largest", "strengths", "unit_scale",
]  # fmt: skip
