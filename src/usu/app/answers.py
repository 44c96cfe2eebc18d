"""What the page is told of a map: at once, on its way, and when it is done."""

from __future__ import annotations

from typing import Any

from usu.app.looking import Explained, Glass, Opened, probabilities
from usu.app.views import Look, masses
from usu.app.wire import frame
from usu.refine.fields import heterogeneity


def first_frame(glass: Glass, opened: Opened, begun: Explained) -> bytes:
    """At once: the coarse map, and what bilinear and the layers make of it."""
    given = begun.given
    values = {
        "target": begun.target,
        "name": glass.name(begun.target),
        "probability": float(probabilities(opened.logits)[begun.target]),
        "layer": begun.source.layer,
        "notes": begun.source.notes,
        "instead": begun.instead,
        "passes": opened.passes.count,
    }
    maps = {"bilinear": Look("bilinear").of(begun), "map": Look("fast").of(begun), "coarse": given.coarse}
    return frame("first", values, {**maps, "masses": given.coarse.reshape(-1) * given.partition.sizes})


def look_frame(kind: str, opened: Opened, known: Explained, view: Look) -> bytes:
    """The map so far, and what it follows."""
    scored, pixel_map = known.scored, view.of(known)
    values: dict[str, Any] = {
        "target": known.target,
        "evaluations": known.evaluations,
        "passes": opened.passes.count,
        "seconds": round(known.seconds, 2),
        "stability": None if known.certainty is None else known.certainty.stability,
        "remark": known.remark if kind == "done" else "",
        **masses(known, pixel_map),
    }
    arrays: dict[str, Any] = {"map": pixel_map}
    if scored is not None:
        arrays |= {"scores": scored.field[0], "segments": scored.segments[-1]}
        if scored.effects is not None:
            arrays |= {"effects": scored.effects.mean[0], "errors": scored.effects.stderr[0]}
        if kind == "done":
            values["reason"] = str(scored.stop_reason.value)
            values["depths"] = len(scored.fields)
            arrays |= {f"heterogeneity_{d}": heterogeneity(f[0]).abs() for d, f in enumerate(scored.fields)}
    if known.certainty is not None and known.certainty.stderr.numel():
        arrays["uncertainty"] = known.certainty.stderr
    return frame(kind, values, arrays)
