"""The pictures that come along: those of scikit-image, which is installed anyway."""

from __future__ import annotations

import io
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from usu.models.pictures import Picture, read
from usu.types import NDArray

#: The longer side of a thumbnail.
SMALL = 320
_FILES = {
    "cat": "chelsea.png",
    "coffee": "coffee.png",
    "motorcycle": "motorcycle_left.png",
    "rocket": "rocket.jpg",
    "astronaut": "astronaut.png",
}


def names() -> list[str]:
    """Of those that are there."""
    return [name for name, file in _FILES.items() if (_home() / file).is_file()]


def picture(name: str, longest: int) -> Picture | None:
    """The sample of this name; None if there is none."""
    return _read(name, longest) if name in names() else None


@cache
def _read(name: str, longest: int) -> Picture:
    return read(_home() / _FILES[name], longest=longest)


def jpeg(shown: Picture) -> bytes:
    """As browsers show it: nothing but its pixels."""
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(shown.pixels).save(out, "JPEG", quality=92)
    return out.getvalue()


def grey(size: tuple[int, int] = (64, 64)) -> NDArray:
    """A picture of nothing, to try a model on before anybody comes."""
    ramp = np.linspace(0, 255, size[1], dtype=np.uint8)
    return np.repeat(np.tile(ramp, (size[0], 1))[..., None], 3, axis=-1)


def _home() -> Path:
    found = find_spec("skimage")
    return Path(next(iter(found.submodule_search_locations or [""]))) / "data" if found else Path()
