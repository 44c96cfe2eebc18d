"""What comes along: the files of the page, the server's sentences, and sample pictures."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from pathlib import Path

_SAMPLES = {
    "cat": "chelsea.png",
    "coffee": "coffee.png",
    "motorcycle": "motorcycle_left.png",
    "rocket": "rocket.jpg",
    "astronaut": "astronaut.png",
}


@cache
def files() -> dict[str, bytes]:
    """The files of the page, by name: nothing else is ever served, whatever a request asks for."""
    home = resources.files("usu.app").joinpath("page")
    return {one.name: one.read_bytes() for one in home.iterdir() if "." in one.name}


def say(key: str) -> str:
    """A sentence of the server; every English text is in `texts.json`."""
    return str(json.loads(files()["texts.json"])["server"][key])


@cache
def samples() -> dict[str, Path]:
    """Sample pictures by name: those that scikit-image has on the disk."""
    home = Path(str(resources.files("skimage"))) / "data"
    return {name: home / file for name, file in _SAMPLES.items() if (home / file).is_file()}
