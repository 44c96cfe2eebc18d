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
from usu.models.pictures import Geometry, read, seen
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

    @property
    def has_truth(self) -> bool:
        """Is there an outline to measure against?"""
        return self.truth is not None

    def open(self) -> Sample:
        """Itself."""
        return self

    def digest(self) -> str:
        """Of everything in it but its name."""
        arrays = [None if one is None else as_numpy(one) for one in (self.image, self.picture, self.truth, self.coarse)]
        return digest(json.dumps(described([*arrays, self.target])).encode())


@dataclass(frozen=True, eq=False)
class PictureFile:
    """A picture file, prepared for a model; ``truth`` is a picture of the same size, bright inside the object."""

    name: str
    path: Path
    loaded: Loaded
    truth: Path | None = None
    target: int | None = None

    @property
    def has_truth(self) -> bool:
        """Is there an outline to measure against?"""
        return self.truth is not None

    def open(self) -> Sample:
        """Read, resize and crop both."""
        picture = read(self.path)
        image, geometry = self.loaded.prepare(picture.pixels)
        outline = None if self.truth is None else self._outline(self.truth, picture.unit.shape[:2], geometry)
        return Sample(self.name, image, seen(picture.unit, geometry), self.target, outline)

    def digest(self) -> str:
        """Of the files, how they are prepared, and the target; what cannot be read has no rows that depend on it."""
        try:
            files = [b"" if path is None else path.read_bytes() for path in (self.path, self.truth)]
        except OSError:
            return "unreadable"
        return digest(*files, json.dumps(described([self.loaded.prepare, self.target])).encode())

    def _outline(self, path: Path, size: tuple[int, ...], geometry: Geometry) -> NDArray:
        drawn = read(path).unit
        if drawn.shape[:2] != tuple(size):
            got, wanted = (" x ".join(map(str, shape[:2])) for shape in (drawn.shape, size))
            raise ValueError(f"`truth` must be as large as its picture ({wanted}); got {got} in {path}.")
        # a smooth resize and a threshold cuts the outline where it is, not at the nearest old pixel
        return np.asarray(seen(drawn, geometry).mean(2) > 0.5)


Openable: TypeAlias = Sample | PictureFile


def as_samples(pictures: Iterable[Any]) -> list[Openable]:
    """Pictures as given: samples, or tensors (C, H, W), which get numbers for names."""
    samples: list[Openable] = []
    try:
        many = list(pictures)
    except TypeError:
        raise TypeError(f"`pictures` must be a list; got {type(pictures).__name__}.") from None
    for number, one in enumerate(many):
        sample = Sample(f"{number:05d}", one) if isinstance(one, (Tensor, np.ndarray)) else one
        if not isinstance(sample, (Sample, PictureFile)):
            raise TypeError(f"`pictures` must hold usu.Sample or images C x H x W; got {type(sample).__name__}.")
        samples.append(sample)
    if not samples:
        raise ValueError("`pictures` must hold at least one picture; got none.")
    name, count = Counter(sample.name for sample in samples).most_common(1)[0]
    if count > 1:
        raise ValueError(f"`pictures` must have different names; got {name!r} {count} times.")
    return samples
