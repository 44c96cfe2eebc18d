"""A result in a folder: maps, overlay, panel and, last, the manifest. Files are written whole or not at all."""

from __future__ import annotations

import errno
import json
import os
import platform
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from usu._checks import as_numpy
from usu.errors import UsuError
from usu.forward.digest import digest
from usu.models.pictures import Geometry
from usu.plot.panels import pasted
from usu.refine import StopReason
from usu.sources.cams import CoarseMap
from usu.sources.layers import Goal
from usu.types import NDArray

if TYPE_CHECKING:
    from usu.results.result import Explanation

#: Of the folder: raised when a folder of today could not be read by the code of yesterday, or the other way round.
SCHEMA = 2
#: What a manifest has as it is: of the result, of its source; and what it has beside these and the provenance.
NUMBERS, SOURCE = ("evaluations", "stability", "seconds", "mass_error"), ("layer", "reason", "evaluations")
_BESIDE = {
    "schema", "label", "labels", "probabilities", "targets", "source", "instead", "stop_reason", "geometry", "request",
    "maps", *NUMBERS,
}  # fmt: skip
#: How hard PNG tries: of its 9 the default is 6, which takes three times as long for an eighth less of the disk.
_QUICK = 2
#: What the system says when a folder is moved to a name that is taken.
_TAKEN = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR)
#: Drafts are called ``.usu-draft.HOST.PROCESS.xxxxxxxx``, so that those of dead processes can be told.
_DRAFT = ".usu-draft"
#: Seconds after which a draft of another machine is taken for dead.
_OLD = 86_400.0


def save_explanation(explanation: Explanation, directory: str | Path) -> Path:
    """Write ``maps.npz``, ``overlay.png``, ``panel.png`` and, last, ``manifest.json`` into a new folder.

    Everything is written beside its final place and moved there in one step, so that an interruption or a full disk
    leaves nothing behind, and of several processes one gets the name.
    """
    directory = Path(directory)
    taken = FileExistsError(
        f"`directory` must not exist yet, or be empty; got {directory}, which holds something. "
        "Choose another name, or remove it."
    )
    if directory.is_symlink() or (directory.exists() and (not directory.is_dir() or any(directory.iterdir()))):
        raise taken
    new = [folder for folder in directory.parents if not folder.exists()]
    directory.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=draft_prefix(directory.parent), dir=directory.parent))
    try:
        np.savez_compressed(draft / "maps.npz", **_arrays(explanation))  # type: ignore[arg-type] # taken for a keyword
        pasted(explanation.panels()).save(draft / "overlay.png", compress_level=_QUICK)
        explanation.figure().savefig(draft / "panel.png", pil_kwargs={"compress_level": _QUICK})
        manifest = {**explanation.manifest(), "maps": digest((draft / "maps.npz").read_bytes())}
        text = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
        # a file name that is no text comes out as \udcXX, which JSON reads back
        (draft / "manifest.json").write_text(text, encoding="utf-8", errors="backslashreplace")
        draft.chmod(0o755)  # mkdtemp makes folders for one user only
        try:
            if directory.exists():
                directory.rmdir()
            draft.rename(directory)
        except OSError as error:  # another process was quicker
            raise (taken if error.errno in _TAKEN else error) from None
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        with suppress(OSError):  # someone else may have come to use them meanwhile
            for folder in new:
                folder.rmdir()
        raise
    return directory


def _arrays(explanation: Explanation) -> dict[str, NDArray]:
    result, source = explanation.upsampled, explanation.source
    own = {
        "coarse": explanation.coarse, "pixel_map": result.pixel_map, "scores": result.scores, "stderr": result.stderr,
        "picture": explanation.picture, "original": _bytes(explanation.original),
    }  # fmt: skip
    maps = {name: values for name, values in own.items() if values is not None}
    maps["source_values"] = as_numpy(source.values)
    if source.signed is not None:
        maps["source_signed"] = as_numpy(source.signed)
    for level, field in enumerate(source.finer):
        maps[f"source_finer_{level}"] = as_numpy(field)
    for depth, labels in enumerate(result.segments):
        maps[f"segments_{depth}"] = labels
    for depth, field in enumerate(result.depth_scores):
        maps[f"scores_{depth}"] = field.numpy()
    return maps


def saved_manifest(directory: Path) -> dict[str, Any]:
    """The manifest of a folder that `save_explanation` wrote.

    Raises:
        UsuError: in one sentence, if there is none, it is of another schema, or it or the maps it speaks of are not
            whole.
    """
    try:
        found = json.loads((directory / "manifest.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsuError(f"{directory} holds no result of usu: it has no manifest.json.") from None
    except (OSError, ValueError) as error:
        raise UsuError(f"The manifest.json in {directory} cannot be read ({error}).") from None
    manifest: dict[str, Any] = found if isinstance(found, dict) else {"schema": None}
    schema, made = manifest.get("schema", 1), manifest.get("versions")
    if schema != SCHEMA:
        by = made.get("usu-xai") if isinstance(made, dict) else "of an unknown version"
        raise UsuError(
            f"{directory} was written with schema {schema} of results (usu-xai {by}); this version reads schema "
            f"{SCHEMA}. Explain the picture again."
        )
    with suppress(OSError):
        if manifest.get("maps") == digest((directory / "maps.npz").read_bytes()):
            return manifest
    raise UsuError(f"The maps.npz in {directory} is not the one its manifest.json speaks of.")


def stored(directory: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields of an explanation, and those of its upsampled map, from a folder that `save_explanation` wrote."""
    manifest = saved_manifest(directory)
    with np.load(directory / "maps.npz", allow_pickle=False) as file:
        arrays = dict(file)
    source, geometry, signed = manifest["source"], manifest["geometry"], arrays.get("source_signed")
    dtype = getattr(torch, source["dtype"])
    coarse = CoarseMap(
        values=torch.from_numpy(arrays["source_values"]).to(dtype),
        targets=None if manifest["targets"] is None else tuple(manifest["targets"]),
        notes=tuple(source["notes"]),
        finer=tuple(map(torch.from_numpy, _numbered(arrays, "source_finer"))),
        signed=None if signed is None else torch.from_numpy(signed).to(dtype),
        goals=tuple(Goal(*goal) for goal in source["goals"]),
        **{name: source[name] for name in SOURCE},
    )
    upsampled = {
        **{name: arrays.get(name) for name in ("pixel_map", "stderr", "scores", "picture")},
        **{name: manifest[name] for name in NUMBERS},
        "effects": None,
        "segments": _numbered(arrays, "segments"),
        "depth_scores": tuple(map(torch.from_numpy, _numbered(arrays, "scores"))),
        "stop_reason": StopReason[manifest["stop_reason"]],
        "provenance": {name: value for name, value in manifest.items() if name not in _BESIDE},
    }
    return {
        "source": coarse,
        "coarse": arrays["coarse"],
        "picture": arrays["picture"],
        "labels": tuple(manifest["labels"]),
        "original": _unit(arrays["original"]) if "original" in arrays else None,
        "geometry": geometry and Geometry(*(tuple(geometry[name]) for name in ("picture", "box", "input"))),
        "request": manifest["request"],
        "instead": manifest["instead"],
        "source_name": source["name"],
    }, upsampled


def _numbered(arrays: dict[str, NDArray], name: str) -> tuple[NDArray, ...]:
    """All of ``name_0``, ``name_1``, ..."""
    return tuple(arrays[f"{name}_{number}"] for number in range(len(arrays)) if f"{name}_{number}" in arrays)


def _bytes(unit: NDArray | None) -> NDArray | None:
    """A photograph as the bytes it was made of, where it was made of bytes: a quarter of the disk."""
    if unit is None or unit.dtype != np.float32:
        return unit
    small = np.empty(unit.shape, dtype=np.uint8)
    for row, line in enumerate(unit):
        small[row] = np.rint(255 * line)
        if not np.array_equal(_unit(small[row]), line):
            return unit
    return small


def _unit(values: NDArray) -> NDArray:
    """In [0, 1], whether it was stored as bytes or not."""
    return values.astype(np.float32) / np.float32(255) if values.dtype == np.uint8 else values


def written(path: Path, content: bytes) -> Path:
    """The file with this content: the old one or the new one, whatever happens in between."""
    handle, draft = tempfile.mkstemp(prefix=draft_prefix(path.parent), dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(draft).chmod(0o644)
        Path(draft).replace(path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
    return path


def draft_prefix(folder: Path) -> str:
    """What a draft of this process is called; on the way the drafts of processes that were killed are removed."""
    own = f"{_DRAFT}.{platform.node()}."
    for draft in folder.glob(f"{_DRAFT}.*"):
        process = draft.name.removeprefix(own).partition(".")[0]
        with suppress(OSError):  # another process may be sweeping, too
            if _gone(process) if draft.name.startswith(own) else time.time() - draft.stat().st_mtime > _OLD:
                shutil.rmtree(draft) if draft.is_dir() else draft.unlink()
    return f"{own}{os.getpid()}."


def _gone(process: str) -> bool:
    """Has this process of this machine ended? Only POSIX can be asked without harm."""
    if os.name != "posix" or not process.isdigit():
        return False
    with suppress(PermissionError, OverflowError):
        try:
            os.kill(int(process), 0)
        except ProcessLookupError:
            return True
    return False
