"""Every picture we draw, in one style. The only room that imports matplotlib (extra ``plot``)."""

from usu.plot.figures import VERDICTS, audit_figure, comparison, effects, explanation_figure
from usu.plot.panels import Panel, figure
from usu.plot.scale import ONE_SIGN, TWO_SIGNS, Scale, overlay, scale_of, shares
from usu.plot.showing import View, animation, html, overlays, plot, small_panel

__all__ = [
    "ONE_SIGN", "TWO_SIGNS", "VERDICTS", "Panel", "Scale", "View", "animation", "audit_figure", "comparison", "effects",
    "explanation_figure", "figure", "html", "overlay", "overlays", "plot", "scale_of", "shares", "small_panel",
]  # fmt: skip
