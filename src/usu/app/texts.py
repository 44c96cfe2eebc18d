"""The files of the page and every English text, of the page and of the server: both in one folder."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources


def say(key: str) -> str:
    """A sentence of the server."""
    return _sentences()[key]


@cache
def _sentences() -> dict[str, str]:
    found: dict[str, str] = json.loads(files()["texts.json"])["server"]
    return found


@cache
def files() -> dict[str, bytes]:
    """The files of the page, by name: nothing else is ever served, whatever a request asks for."""
    home = resources.files("usu.app").joinpath("page")
    return {one.name: one.read_bytes() for one in home.iterdir() if "." in one.name}
