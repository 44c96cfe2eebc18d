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
from usu.types import Array, NDArray


def frame(kind: str, values: Mapping[str, Any], arrays: Mapping[str, Array] | None = None) -> bytes:
    """One message.

    >>> made = frame("look", {"stability": 0.5}, {"map": np.array([0.0, 1.0])})
    >>> kind, values, arrays = read_frame(made)
    >>> kind, values["stability"], arrays["map"].tolist()
    ('look', 0.5, [0.0, 1.0])
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


def read_frame(data: bytes) -> tuple[str, dict[str, Any], dict[str, NDArray]]:
    """What `frame` wrote, as the page reads it."""
    header, body = struct.unpack_from("<II", data)
    values = json.loads(data[8 : 8 + header])
    content = data[8 + header : 8 + header + body]
    arrays = {}
    for one in values.pop("arrays"):
        count = math.prod(one["shape"])
        numbers = np.frombuffer(content, np.dtype(one["type"]).newbyteorder("<"), count, one["start"])
        numbers = numbers.reshape(one["shape"])
        arrays[one["name"]] = numbers if one["step"] is None else one["low"] + one["step"] * numbers
    return values.pop("kind"), values, arrays


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
