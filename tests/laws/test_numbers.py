"""The numbers do not change: maps, metrics and tables of a few seeds are those stored, to 1e-12.

`tests.laws.rooms` makes them by public names alone, so the test outlives any change of the inside. A change that is
meant to move a number writes the file anew, with ``python -m tests.laws.test_numbers --write``, in a commit that says
why; the difference of the two files shows which numbers moved. ``--strict`` holds to 1e-12 also what is made in single
precision: for the machine that wrote the file.

A map is stored as two sums under random weights, its ends, where its largest value is (-1 where several are) and two
pixels; a label map as its largest label and a checksum.
"""

from __future__ import annotations

import json
import math
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor

from tests.laws.rooms import ROOMS
from tests.laws.subjects import drawn

STORED = Path(__file__).with_name("numbers.json")


def plain(value: Any) -> Any:
    """A value as JSON holds it; every number with 15 digits."""
    if isinstance(value, Tensor):
        value = value.detach().cpu().numpy()
    if hasattr(value, "curve"):  # of a metric that asks the model
        weights = np.linspace(1, 2, value.curve.size)
        return plain([value.evaluations, value.value, value.curve.ravel() @ weights / value.curve.size])
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "iu":
            return [f"labels {list(value.shape)}", int(value.max()), zlib.crc32(value.astype("<i8").tobytes())]
        return printed(value)
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer, str, type(None))):
        return int(value) if isinstance(value, np.integer) else value
    return float(format(float(value), ".15g")) if math.isfinite(value) else str(float(value))


def printed(field: np.ndarray) -> list[Any]:
    """A few numbers that change when any pixel does."""
    flat = np.asarray(field, dtype=np.float64).ravel()
    weights = np.random.default_rng(0).normal(size=(2, flat.size)) / math.sqrt(flat.size)
    top = np.sort(flat)[-2:]
    highest = int(flat.argmax()) if flat.size > 1 and top[1] - top[0] > 1e-9 * np.abs(flat).max() else -1
    pixels = flat[[flat.size // 7, flat.size // 2]]
    numbers = [*(weights @ flat), flat.min(), flat.max(), *pixels]
    return [f"map {list(field.shape)}", highest, *plain(numbers)]


def differences(stored: Any, found: Any, tolerance: float) -> str:
    """What differs, in words; nothing where nothing does. In a map the largest number is the measure of all."""
    old, new = ([one] if not isinstance(one, list) else one for one in (stored, found))
    if len(old) != len(new):
        return f"{len(new)} numbers, not {len(old)}"
    a_map = bool(old) and isinstance(old[0], str) and old[0].startswith("map ")
    peak = max((abs(one) for one in old if isinstance(one, float)), default=0.0)
    for was, now in zip(old, new, strict=True):
        if isinstance(was, float) and isinstance(now, (int, float)):
            if not abs(was - now) <= tolerance * (peak if a_map else abs(was)) + 1e-14:
                return f"{now!r}, not {was!r}"
        elif was != now:
            return f"{now!r}, not {was!r}"
    return ""


def moved(room: str, *, single: float = 1e-5) -> dict[str, str]:
    """The numbers of a room that are not those stored; ``single`` is the tolerance of those in single precision."""
    stored, found = json.loads(STORED.read_text(encoding="utf-8"))[room], ROOMS[room]()
    wrong = dict.fromkeys(stored.keys() ^ found.keys(), "in one of the two only")
    for name in stored.keys() & found.keys():
        told = differences(stored[name], plain(found[name]), single if "~" in name else 1e-12)
        wrong |= {name: told} if told else {}
    return wrong


@pytest.mark.parametrize("room", ROOMS)
def test_the_numbers_are_those_stored(room: str) -> None:
    if room == "watershed":
        pytest.importorskip("higra")
    assert moved(room) == {}


@pytest.mark.parametrize("place", range(2, 8))
def test_a_small_change_of_any_number_or_pixel_shows(place: int) -> None:
    field = drawn(6, 7)
    stored = plain(field)
    other = list(stored)
    other[place] += 1e-11 * max(abs(one) for one in stored[2:])
    assert differences(stored, plain(field), 1e-12) == ""
    assert differences(stored, other, 1e-12) != ""
    changed = field.copy()
    changed[place % 6, 3] += 1e-10
    assert differences(stored, plain(changed), 1e-12) != ""


if __name__ == "__main__":
    if sys.argv[1:] == ["--strict"]:
        sys.exit(
            str({name: wrong for name in ROOMS if (wrong := moved(name, single=1e-12))} or "Not one number moved.")
        )
    if sys.argv[1:] != ["--write"]:
        sys.exit("Say --write to replace the stored numbers, --strict to compare on the machine that wrote them.")
    rooms = {name: {key: plain(value) for key, value in room().items()} for name, room in ROOMS.items()}
    lines = [
        f"{json.dumps(name)}: {{\n"
        + ",\n".join(f"{json.dumps(key)}: {json.dumps(one)}" for key, one in room.items())
        + "\n}"
        for name, room in rooms.items()
    ]
    STORED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
