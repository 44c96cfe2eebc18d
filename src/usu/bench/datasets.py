"""Pictures by the layouts they come in: a folder, a tar archive, CIFAR-10, CUB-200-2011. Nothing is read before it is
needed."""

from __future__ import annotations

import csv
import pickle
import tarfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Literal, TypeVar

from usu import _checks as check
from usu.bench.sample import Box, PictureFile, Span
from usu.models.pictures import SUFFIXES, find, looks_like_picture

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
            members = sorted(
                (one.name, one.offset_data, one.size)
                for one in archive
                if one.isreg() and PurePosixPath(one.name).suffix.lower() in SUFFIXES
            )
    except tarfile.ReadError as error:
        raise ValueError(
            f"`path` must be a tar archive that is not compressed; got {file} ({error}). Unpack it."
        ) from None
    if not members:
        raise ValueError(f"`path` must hold pictures; got {file}, where none is.")
    return [PictureFile(name, Span(file, start, size)) for name, start, size in members]


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
    content = path.read_bytes()
    with path.open("rb") as file:
        batch: Mapping[bytes, Any] = _Harmless(file, encoding="bytes").load()
    data, labels = batch[b"data"], batch[b"labels"]
    first = content.find(data.tobytes())
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

    def column(name: str, read: Callable[[list[str]], T]) -> dict[str, T]:
        file = home / name
        if not file.is_file():
            raise FileNotFoundError(f"`path` must hold {name} of CUB-200-2011; got {home}, where it is not.")
        lines = (line.split() for line in file.read_text(encoding="utf-8").splitlines() if line.strip())
        return {first: read(rest) for first, *rest in lines}

    files = column("images.txt", lambda rest: rest[0])
    classes = column("image_class_labels.txt", lambda rest: int(rest[0]) - 1)
    training = column("train_test_split.txt", lambda rest: rest[0] == "1") if split != "all" else {}
    boxes = column("bounding_boxes.txt", lambda rest: Box(*map(float, rest))) if truth == "boxes" else {}
    found = []
    for number, file in sorted(files.items(), key=lambda one: one[1]):
        if split != "all" and training[number] != (split == "train"):
            continue
        outline: Any = boxes.get(number)
        if truth == "masks":
            drawn = Path("segmentations", file).with_suffix(".png")
            outline = next((top / drawn for top in (home, home.parent) if (top / drawn).is_file()), None)
        found.append(PictureFile(Path(file).stem, home / "images" / file, None, outline, classes[number]))
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
