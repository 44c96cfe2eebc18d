"""Pictures to be evaluated: in memory, or in files of several layouts. Nothing is read before it is needed."""

from __future__ import annotations

import csv
import json
import pickle
import tarfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
from torch import Tensor

from usu import _checks as check
from usu.forward.digest import described, digest
from usu.models import Loaded
from usu.models.pictures import SUFFIXES, Geometry, Picture, decode, find, looks_like_picture, read, seen
from usu.types import Array, NDArray

T = TypeVar("T")
#: Where CUB-200-2011 and the folders of this project name classes and boxes.
_CLASS = ("class", "imagenet_class", "label", "target")
_BOX = ("x", "y", "width", "height")
#: A picture of CIFAR-10: three planes of 32 x 32, after a byte with its class in the binary layout.
_PLANES, _BYTES = (3, 32, 32), 3072
#: What the official batches of CIFAR-10 are made of; nothing else is unpickled.
_HARMLESS = {
    ("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "_reconstruct"), ("numpy", "ndarray"),
    ("numpy", "dtype"), ("_codecs", "encode"),
}  # fmt: skip


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
        arrays = [
            None if one is None else check.as_numpy(one) for one in (self.image, self.picture, self.truth, self.coarse)
        ]
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


Openable: TypeAlias = Sample | PictureFile


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


def folder(path: str | Path, *, truth: str | Path | None = None, labels: str | Path | None = None) -> list[PictureFile]:
    """The pictures of a folder, or of ``images`` in it.

    Args:
        path: with ``labels.csv`` beside the pictures or above them: columns ``file``, a class, and perhaps a box as
            ``x``, ``y``, ``width``, ``height`` in pixels.
        truth: a folder of outlines named like the pictures, bright inside the object; ``"boxes"`` takes the boxes.
        labels: another file of labels.
    """
    home = Path(path).expanduser()
    inner = home / "images" if (home / "images").is_dir() else home
    pictures = find(inner)
    beside = [file for file in (inner / "labels.csv", home / "labels.csv") if file.is_file()]
    tables = beside[:1] if labels is None else [Path(labels)]
    known = _labelled(tables[0]) if tables else {}
    drawn = {}
    if truth is not None and truth != "boxes":
        drawn = outlines(home / truth if (home / truth).is_dir() else Path(truth), [p.stem for p in pictures])
    found = []
    for one, name in zip(pictures, names_of(pictures), strict=True):
        target, box = known.get(one.name, (None, None))
        found.append(PictureFile(name, one, None, box if truth == "boxes" else drawn.get(one.stem), target))
    if truth is not None and all(one.truth is None for one in found):
        wanted = f"an outline named like a picture, as {pictures[0].stem}.png" if truth != "boxes" else "boxes"
        raise ValueError(f"`truth` must hold {wanted}; got {truth}, where none is.")
    return found


def outlines(path: Path, stems: Sequence[str]) -> dict[str, Path]:
    """Stem -> file; one for every picture that has any."""
    if not path.is_dir():
        raise FileNotFoundError(f"`truth` must be a folder of outlines; got {path}, which is none. Check the path.")
    drawn = [file for file in sorted(path.iterdir()) if looks_like_picture(file)]
    found = {file.stem: file for file in drawn}
    for what, names in (("pictures", stems), ("outlines", [file.stem for file in drawn])):
        for stem, times in Counter(names).items():
            if times > 1 and stem in stems and stem in found:
                told = f"{times} {what} called {stem}"
                raise ValueError(f"`truth` must hold one outline per picture; got {told}. Rename them.")
    return found


def names_of(paths: Sequence[Path]) -> list[str]:
    """Their stems where these differ, else the whole paths."""
    stems = [path.stem for path in paths]
    return stems if len(set(stems)) == len(stems) else [str(path) for path in paths]


def tar(path: str | Path) -> list[PictureFile]:
    """The pictures of an archive that is not compressed, each read from its place in it."""
    file = Path(path).expanduser()
    try:
        with tarfile.open(file, "r:") as archive:
            members = [one for one in archive if one.isreg() and PurePosixPath(one.name).suffix.lower() in SUFFIXES]
    except tarfile.ReadError as error:
        told = f"{file} ({error}). Unpack it"
        raise ValueError(f"`path` must be a tar archive that is not compressed; got {told}.") from None
    if not members:
        raise ValueError(f"`path` must hold pictures; got {file}, where none is.")
    members.sort(key=lambda one: one.name)
    return [PictureFile(one.name, Span(file, one.offset_data, one.size)) for one in members]


def cifar10(path: str | Path, *, split: Literal["test", "train"] = "test") -> list[PictureFile]:
    """CIFAR-10 as it is distributed, unpacked: ``cifar-10-batches-py`` or ``cifar-10-batches-bin``."""
    check.choice("split", split, ("test", "train"))
    home = Path(path).expanduser()
    for inner in ("cifar-10-batches-py", "cifar-10-batches-bin"):
        home = home / inner if (home / inner).is_dir() else home
    wanted = ["test_batch"] if split == "test" else [f"data_batch_{number}" for number in range(1, 6)]
    found = []
    for name in wanted:
        plain, pickled = home / f"{name}.bin", home / name
        if plain.is_file():
            content = plain.read_bytes()
            spans = [(start + 1, content[start]) for start in range(0, len(content) - _BYTES, _BYTES + 1)]
            file = plain
        elif pickled.is_file():
            file, spans = pickled, _pickled(pickled)
        else:
            raise FileNotFoundError(f"`path` must hold {name} or {name}.bin of CIFAR-10; got {home}, where neither is.")
        for number, (start, label) in enumerate(spans):
            found.append(
                PictureFile(f"{name}-{number:05d}", Span(file, start, _BYTES, _PLANES), None, None, int(label))
            )
    return found


class _Harmless(pickle.Unpickler):
    """Arrays and plain values; whatever else a pickle names is refused."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _HARMLESS:
            raise ValueError(f"`path` must hold the batches of CIFAR-10; got a pickle that names {module}.{name}.")
        return super().find_class(module, name)


def _pickled(path: Path) -> list[tuple[int, int]]:
    """Where each picture starts in a pickled batch, and its label."""
    with path.open("rb") as file:
        batch: Mapping[bytes, Any] = _Harmless(file, encoding="bytes").load()
    data, labels = batch[b"data"], batch[b"labels"]
    first = path.read_bytes().find(data.tobytes())
    if first < 0 or data.shape != (len(labels), _BYTES):
        raise ValueError(f"`path` must hold the batches of CIFAR-10; got {path}, laid out otherwise.")
    return [(first + number * _BYTES, label) for number, label in enumerate(labels)]


def cub(
    path: str | Path, *, truth: Literal["boxes", "masks"] = "boxes", split: Literal["test", "train", "all"] = "test"
) -> list[PictureFile]:
    """CUB-200-2011 as it is distributed, unpacked; classes count from 0. Masks are those of ``segmentations``."""
    check.choice("truth", truth, ("boxes", "masks"))
    check.choice("split", split, ("test", "train", "all"))
    home = Path(path).expanduser()
    home = home / "CUB_200_2011" if (home / "CUB_200_2011").is_dir() else home

    def column(name: str) -> dict[str, list[str]]:
        if not (home / name).is_file():
            raise FileNotFoundError(f"`path` must hold {name} of CUB-200-2011; got {home}, where it is not.")
        lines = (line.split() for line in (home / name).read_text(encoding="utf-8").splitlines() if line.strip())
        return {first: rest for first, *rest in lines}

    files, classes = column("images.txt"), column("image_class_labels.txt")
    training = column("train_test_split.txt") if split != "all" else {}
    boxes = column("bounding_boxes.txt") if truth == "boxes" else {}
    found = []
    for number, (file, *_) in sorted(files.items(), key=lambda one: one[1]):
        if split != "all" and (training[number][0] == "1") != (split == "train"):
            continue
        drawn = Path("segmentations", file).with_suffix(".png")
        outline: Any = next((top / drawn for top in (home, home.parent) if (top / drawn).is_file()), None)
        if truth == "boxes":
            outline = Box(*map(float, boxes[number])) if number in boxes else None
        target = int(classes[number][0]) - 1
        found.append(PictureFile(Path(file).stem, home / "images" / file, None, outline, target))
    return found


def spread(many: Sequence[T], limit: int | None) -> list[T]:
    """Only so many, spread evenly; those of a limit are among those of its double.

    >>> spread("abcdef", 2), spread("abcdef", 4)
    (['a', 'd'], ['a', 'b', 'd', 'e'])
    """
    if limit is None:
        return list(many)
    check.whole_number("limit", limit, least=1)
    return [many[number * len(many) // limit] for number in range(limit)] if limit < len(many) else list(many)


def _labelled(table: Path) -> dict[str, tuple[int | None, Box | None]]:
    """File name -> class and box."""
    found: dict[str, tuple[int | None, Box | None]] = {}
    with table.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        columns = reader.fieldnames or []
        kind = next((name for name in _CLASS if name in columns), None)
        if "file" not in columns:
            raise ValueError(f"`labels` must have a column named file; got {', '.join(columns)} in {table}.")
        for line in reader:
            box = Box(*(float(line[name]) for name in _BOX)) if all(name in columns for name in _BOX) else None
            found[line["file"]] = (int(line[kind]) if kind is not None else None, box)
    return found


#: What a plan can name, and the arguments each takes.
KINDS: dict[str, Callable[..., list[PictureFile]]] = {"folder": folder, "tar": tar, "cifar10": cifar10, "cub": cub}
