"""The files of the page and every English text, of the page and of the server: both in one folder."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any


@cache
def texts() -> dict[str, Any]:
    """Every English text, of the page and of the server."""
    found: dict[str, Any] = json.loads(files()["texts.json"])
    return found


def say(key: str) -> str:
    """A sentence of the server."""
    sentence: str = texts()["server"][key]
    return sentence


@cache
def files() -> dict[str, bytes]:
    """The files of the page, by name: nothing else is ever served, whatever a request asks for."""
    home = resources.files("usu.app").joinpath("page")
    return {one.name: one.read_bytes() for one in home.iterdir() if "." in one.name}
