"""Every picture we draw, in one style. The only room that imports matplotlib (extra ``plot``)."""

from usu.plot.figures import VERDICTS, audit_figure, comparison, effects
from usu.plot.panels import Panel, figure, overlay
from usu.plot.scales import ONE_SIGN, TWO_SIGNS, Scale, scale_of, shares

__all__ = [
    "ONE_SIGN", "TWO_SIGNS", "VERDICTS", "Panel", "Scale", "audit_figure", "comparison", "effects", "figure", "overlay",
    "scale_of", "shares",
]  # fmt: skip
