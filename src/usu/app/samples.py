"""The pictures that come along: those of scikit-image, which is installed anyway."""

from __future__ import annotations

import io
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from usu.app.texts import say
from usu.app.turns import RefusedError
from usu.models.pictures import Picture, read

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


@cache
def picture(name: str, longest: int) -> Picture:
    """The sample of this name."""
    if name not in names():
        raise RefusedError(say("nowhere"), 404)
    return read(_home() / _FILES[name], longest=longest)


def jpeg(shown: Picture) -> bytes:
    """As browsers show it: nothing but its pixels."""
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(shown.pixels).save(out, "JPEG", quality=92)
    return out.getvalue()


def _home() -> Path:
    found = find_spec("skimage")
    return Path(next(iter(found.submodule_search_locations or [""]))) / "data" if found else Path()
