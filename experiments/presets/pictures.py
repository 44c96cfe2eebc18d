"""Two halves of the pictures: one to choose on, one that nobody looks at before the choice is made."""

from __future__ import annotations

from pathlib import Path

from usu.bench import PictureFile
from usu.models import Loaded

CONFIRMED = 101
SEARCHED = 16


def files(data: Path, loaded: Loaded) -> list[tuple[int, PictureFile]]:
    """Every picture of ``data/imagenet`` and ``data/pets`` with its place in its folder; pets have outlines."""
    found = []
    for folder in ("imagenet", "pets"):
        for place, path in enumerate(sorted((data / folder / "images").iterdir())):
            outline = next(iter((data / folder / "masks").glob(f"{path.stem}.*")), None)
            found.append((place, PictureFile(path.stem, path, loaded, outline)))
    return found


def development(data: Path, loaded: Loaded) -> list[PictureFile]:
    """Even places: the first 16 of those two, then of those none, beyond a multiple of eight."""
    wanted = [(place % 8 != 2, place, one) for place, one in files(data, loaded) if place % 8 in (0, 2)]
    return [one for _, _, one in sorted(wanted, key=lambda found: found[:2])][:SEARCHED]


def confirmation(data: Path, loaded: Loaded, *, again: bool = False) -> list[PictureFile]:
    """Odd places: pictures that no choice was made on. One pet lies outside of its crop, so 100 can be measured.

    ``again``: the odd places that were left over then, for a second look at the same presets.
    """
    every = files(data, loaded)
    odd = [one for rest in (1, 3) for place, one in every if place % 4 == rest]
    return odd[CONFIRMED:] if again else odd[:CONFIRMED]


def places(data: Path, loaded: Loaded) -> dict[str, int]:
    """Where each picture is in its folder: the seed of its random masks."""
    return {one.name: place for place, one in files(data, loaded)}
