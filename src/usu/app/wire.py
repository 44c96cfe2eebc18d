"""What goes to the browser: a frame is a few values as JSON and arrays as bytes.

Layout, little-endian: u32 length of the header, u32 length of the body, the header as JSON, the body. Real numbers are
sent as 16 bits of their range, which a screen cannot tell from all of them; exports have them all.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from usu._checks import as_numpy
from usu.app.looking import Explained, Glass, Opened, probabilities
from usu.app.views import Look, masses
from usu.refine.fields import heterogeneity
from usu.types import Array, NDArray


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


def frame(kind: str, values: Mapping[str, Any], arrays: Mapping[str, Array] | None = None) -> bytes:
    """One message.

    >>> made = frame("look", {"stability": 0.5}, {"labels": np.array([7, 8], np.uint8)})
    >>> json.loads(made[8:-4])["stability"], list(made[-4:])
    (0.5, [7, 8, 0, 0])
    """
    described, body = [], b""
    for name, array in (arrays or {}).items():
        plain = as_numpy(array)
        sent, low, step = _packed(plain)
        described.append(
            {"name": name, "type": sent.dtype.name, "shape": plain.shape, "start": len(body), "low": low, "step": step}
        )
        data = sent.astype(sent.dtype.newbyteorder("<")).tobytes()
        body += data + bytes(-len(data) % 4)
    header = json.dumps({"kind": kind, "arrays": described, **plain_values(values)}, allow_nan=False).encode()
    return struct.pack("<II", len(header), len(body)) + header + body


def plain_values(value: Any) -> Any:
    """For JSON, which knows neither NaN nor infinity: None stands for them.

    >>> plain_values({"a": (1, float("nan"))})
    {'a': [1, None]}
    """
    if isinstance(value, Mapping):
        return {str(name): plain_values(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_values(one) for one in value]
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else None
    return int(value) if isinstance(value, np.integer) else value


def _packed(values: NDArray) -> tuple[NDArray, float, float | None]:
    """Numbers of 8, 16 or 32 bits, and what they stand for: low + step * number, or themselves where step is None."""
    if values.dtype == np.uint8:
        return values, 0.0, None
    if not np.issubdtype(values.dtype, np.floating):
        return values.astype(np.uint16 if values.max(initial=0) < 2**16 else np.uint32), 0.0, None
    known = np.nan_to_num(values.astype(np.float64))
    low, high = float(known.min(initial=np.inf)), float(known.max(initial=-np.inf))
    if not known.size:
        return known.astype(np.uint16), 0.0, 1.0
    step = (high - low) / 65535 or 1.0
    return np.rint((known - low) / step).astype(np.uint16), low, step
