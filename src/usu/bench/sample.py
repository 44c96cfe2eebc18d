"""A picture to be evaluated: what the model takes, what a person sees, and the object's outline if somebody drew it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from torch import Tensor

from usu._checks import as_numpy
from usu.forward.digest import described, digest
from usu.models import Loaded
from usu.models.pictures import Geometry, Picture, decode, read, seen
from usu.types import Array, NDArray


@dataclass(frozen=True, eq=False)
class Sample:
    """A picture in memory.

    ``coarse`` saves the source its work, for maps made elsewhere; ``target`` None is the model's top class.
    """

    name: str
    image: Array
    picture: NDArray | None = None
    target: int | None = None
    truth: Array | None = None
    coarse: Array | None = None

    def open(self, loaded: Loaded | None = None) -> Sample:
        """Itself."""
        return self

    def digest(self, loaded: Loaded | None = None) -> str:
        """Of everything in it but its name."""
        arrays = [None if one is None else as_numpy(one) for one in (self.image, self.picture, self.truth, self.coarse)]
        return digest(json.dumps(described([*arrays, self.target])).encode())


@dataclass(frozen=True)
class Span:
    """Some bytes of a file: a member of an archive; with ``pixels``, (3, H, W) of them as they are, no encoded one."""

    path: Path
    start: int
    length: int
    pixels: tuple[int, int, int] | None = None

    def read_bytes(self) -> bytes:
        """They alone are read."""
        with self.path.open("rb") as file:
            file.seek(self.start)
            return file.read(self.length)


@dataclass(frozen=True)
class Box:
    """An outline that is a rectangle, in pixels of the picture file."""

    left: float
    top: float
    width: float
    height: float

    def drawn(self, size: tuple[int, ...]) -> NDArray:
        """(H, W, 3): 1 for pixels whose centre is inside.

        >>> Box(1, 0, 2, 1).drawn((2, 4))[:, :, 0].tolist()
        [[0.0, 1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0]]
        """
        rows, columns = (np.arange(side) + 0.5 for side in size[:2])
        down = (rows > self.top) & (rows < self.top + self.height)
        across = (columns > self.left) & (columns < self.left + self.width)
        return np.repeat((down[:, None] & across)[:, :, None], 3, 2).astype(np.float32)


@dataclass(frozen=True, eq=False)
class PictureFile:
    """A picture file, prepared for a model (``loaded`` None: for whichever it is opened).

    ``truth`` is a box, or a picture of the same size, bright inside the object.
    """

    name: str
    path: Path | Span
    loaded: Loaded | None = None
    truth: Path | Span | Box | None = None
    target: int | None = None

    def open(self, loaded: Loaded | None = None) -> Sample:
        """Read, resize and crop both."""
        picture = _read(self.path)
        image, geometry = self._loaded(loaded).prepare(picture.pixels)
        outline = None if self.truth is None else _outline(self.truth, picture.unit.shape[:2], geometry)
        return Sample(self.name, image, seen(picture.unit, geometry), self.target, outline)

    def digest(self, loaded: Loaded | None = None) -> str:
        """Of the files, how they are prepared, and the target; what cannot be read has no rows that depend on it."""
        box = self.truth if isinstance(self.truth, Box) else None
        outline = None if isinstance(self.truth, Box) else self.truth
        try:
            files = [b"" if file is None else file.read_bytes() for file in (self.path, outline)]
        except OSError:
            return "unreadable"
        return digest(*files, json.dumps(described([self._loaded(loaded).prepare, self.target, box])).encode())

    def _loaded(self, loaded: Loaded | None) -> Loaded:
        found = self.loaded or loaded
        if found is None:
            raise TypeError(
                f"`model` must say how picture files are prepared; got one that does not, for {self.name}. Pass what "
                "usu.models.load returns."
            )
        return found


def _outline(truth: Path | Span | Box, size: tuple[int, ...], geometry: Geometry) -> NDArray:
    drawn = truth.drawn(size) if isinstance(truth, Box) else _read(truth).unit
    if drawn.shape[:2] != size:
        got, wanted = (" x ".join(map(str, shape[:2])) for shape in (drawn.shape, size))
        raise ValueError(f"`truth` must be as large as its picture ({wanted}); got {got} in {truth}.")
    # a smooth resize and a threshold cuts the outline where it is, not at the nearest old pixel
    return np.asarray(seen(drawn, geometry).mean(2) > 0.5)


def _read(file: Path | Span) -> Picture:
    if isinstance(file, Path):
        return read(file)
    data = file.read_bytes()
    if file.pixels is None:
        return decode(data)
    pixels = np.frombuffer(data, np.uint8).reshape(file.pixels).transpose(1, 2, 0).copy()
    return Picture(file.path, pixels, file.pixels[1:])


Openable: TypeAlias = Sample | PictureFile


def as_samples(pictures: Iterable[Any]) -> list[Openable]:
    """Pictures as given: samples, or tensors (C, H, W), which get numbers for names."""
    try:
        many = list(pictures)
    except TypeError:
        raise TypeError(f"`pictures` must be a list; got {type(pictures).__name__}.") from None
    arrays = (Tensor, np.ndarray)
    samples = [Sample(f"{n:05d}", one) if isinstance(one, arrays) else one for n, one in enumerate(many)]
    for sample in samples:
        if not isinstance(sample, (Sample, PictureFile)):
            raise TypeError(f"`pictures` must hold usu.Sample or images C x H x W; got {type(sample).__name__}.")
    if not samples:
        raise ValueError("`pictures` must hold at least one picture; got none.")
    name, count = Counter(sample.name for sample in samples).most_common(1)[0]
    if count > 1:
        raise ValueError(f"`pictures` must have different names; got {name!r} {count} times.")
    return samples
