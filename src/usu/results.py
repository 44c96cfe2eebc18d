"""What comes out, with its provenance: frozen, and able to write itself to a folder."""

from __future__ import annotations

import errno
import json
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import Any, Generic

import numpy as np
import torch

from usu.forward.digest import digest
from usu.models.pictures import Geometry, place
from usu.refine import StopReason
from usu.sources.coarse import CoarseMap
from usu.types import ArrayT, NDArray


@dataclass(frozen=True, eq=False)
class Upsampled(Generic[ArrayT]):
    """A pixel map and how it was made.

    For a batch, ``pixel_map`` and ``scores`` are stacked; ``segments``, ``depth_scores`` and ``stop_reason`` have one
    entry per picture; ``evaluations`` and ``seconds`` are sums and ``mass_error`` is the worst.
    """

    #: (H, W); (T, H, W) for several targets; with a leading B for a batch. Library, dtype and device of the coarse map.
    pixel_map: ArrayT
    #: The standard deviation of each pixel's value, like ``pixel_map``; None where the scores have no posterior.
    stderr: ArrayT | None
    #: The expected IoU of the 5 % highest pixels with those of a run with another seed; None where nobody knows. One
    #: for each picture of a batch.
    stability: float | tuple[float | None, ...] | None
    #: The score field the mass followed, like ``pixel_map``, in [0, 1].
    scores: ArrayT
    #: Effects of the last segments with their posterior (`usu.score.bayesian.Effects`); None where there is none.
    effects: Any
    #: Label maps, the coarsest first.
    segments: tuple[Any, ...]
    #: Score fields (T, H, W) after each depth; the last is ``scores``.
    depth_scores: tuple[Any, ...]
    #: Pictures passed through the model.
    evaluations: int
    stop_reason: StopReason | tuple[StopReason, ...]
    #: Largest relative error of what the budget promises: cell masses, cell budgets, or the total.
    mass_error: float
    seconds: float
    #: Versions, settings, seed, model, targets.
    provenance: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Explanation:
    """One picture explained: the coarse map of a source, upsampled; see `usu.explain`."""

    source: CoarseMap
    #: The coarse map, (h, w) or (T, h, w).
    coarse: NDArray
    upsampled: Upsampled[NDArray]
    #: The picture as the model sees it, H x W x 3 in [0, 1].
    picture: NDArray
    #: The class explained, as a person reads it.
    label: str
    #: The file's own picture and how the model's input sits in it, where there is one.
    original: NDArray | None = None
    geometry: Geometry | None = None
    #: What was asked for, as the caller likes to remember it; written into the manifest.
    request: Mapping[str, Any] = field(default_factory=dict)
    #: What is shown where the source's map is zero; None where it is not.
    instead: str | None = None

    @property
    def pixel_map(self) -> NDArray:
        """The result, at the resolution of the model's input."""
        return self.upsampled.pixel_map

    @property
    def first_map(self) -> NDArray:
        """The map of the first target, for pictures of one map."""
        return self.pixel_map if self.pixel_map.ndim == 2 else self.pixel_map[0]

    def on_original(self) -> tuple[NDArray, NDArray]:
        """The file's own picture and the first map placed on it; outside of what the model saw the map is NaN."""
        if self.original is None or self.geometry is None:
            return self.picture, self.first_map
        return self.original, place(self.first_map, self.geometry)

    def figure(self) -> Any:
        """Picture, coarse map, bilinear, USU, segments and scores per depth (needs the extra ``plot``)."""
        from usu.plot import explanation_figure

        return explanation_figure(self)

    def save(self, directory: str | Path) -> Path:
        """Write maps, overlay, panel and, last, the manifest into a new folder; all of them or nothing."""
        return save_explanation(self, Path(directory))

    def manifest(self) -> dict[str, Any]:
        """Everything but the maps, as plain values."""
        reason = self.upsampled.stop_reason
        return {
            "label": self.label,
            "targets": list(self.source.targets) if self.source.targets is not None else None,
            "source": {
                "layer": self.source.layer,
                "reason": self.source.reason,
                "evaluations": self.source.evaluations,
                "notes": list(self.source.notes),
            },
            "instead": self.instead,
            "evaluations": self.upsampled.evaluations,
            "stability": self.upsampled.stability,
            "seconds": round(self.upsampled.seconds, 3),
            "mass_error": self.upsampled.mass_error,
            "stop_reason": reason.name if isinstance(reason, StopReason) else [r.name for r in reason],
            **self.upsampled.provenance,
            "request": dict(self.request),
        }


@cache
def _own_version() -> str:
    from importlib.metadata import version

    return version("usu-xai")


def versions() -> dict[str, str]:
    """What ran."""
    return {
        "usu-xai": _own_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


#: Drafts are called ``.usu-draft.HOST.PROCESS.xxxxxxxx``, so that those of dead processes can be told.
_DRAFT = ".usu-draft"
#: Seconds after which a draft of another machine is taken for dead.
_OLD = 86_400.0
#: What the system says when a folder is moved to a name that is taken.
_TAKEN = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR)


def save_explanation(explanation: Explanation, directory: Path) -> Path:
    """``maps.npz``, ``overlay.png``, ``panel.png`` and, last, ``manifest.json``, in a folder that was not there before.

    Everything is written beside its final place and moved there in one step, so that an interruption or a full disk
    leaves nothing behind, and of several processes one gets the name.
    """
    taken = FileExistsError(
        f"`directory` must not exist yet, or be empty; got {directory}, which holds something. "
        "Choose another name, or remove it."
    )
    if directory.is_symlink() or (directory.exists() and (not directory.is_dir() or any(directory.iterdir()))):
        raise taken
    new = [folder for folder in directory.parents if not folder.exists()]
    directory.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=_draft_prefix(directory.parent), dir=directory.parent))
    try:
        result = explanation.upsampled
        maps = {"coarse": explanation.coarse, "pixel_map": result.pixel_map, "scores": result.scores}
        maps |= {} if result.stderr is None else {"stderr": result.stderr}
        maps |= {f"segments_{depth}": labels for depth, labels in enumerate(result.segments)}
        maps |= {f"scores_{depth}": field.numpy() for depth, field in enumerate(result.depth_scores)}
        np.savez_compressed(draft / "maps.npz", **maps)  # type: ignore[arg-type] # mypy takes a map for a keyword
        from PIL import Image

        from usu.plot import overlay

        Image.fromarray(overlay(*explanation.on_original())).save(draft / "overlay.png")
        explanation.figure().savefig(draft / "panel.png")
        manifest = explanation.manifest() | {"maps": digest((draft / "maps.npz").read_bytes())}
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


def saved_manifest(directory: Path) -> dict[str, Any] | None:
    """The manifest of a folder that `save_explanation` wrote; None if it or the maps it speaks of are not whole."""
    try:
        manifest = json.loads((directory / "manifest.json").read_text(encoding="utf-8"))
        whole = isinstance(manifest, dict) and manifest.get("maps") == digest((directory / "maps.npz").read_bytes())
    except (OSError, ValueError):
        return None
    return manifest if whole else None


def written(path: Path, content: bytes) -> Path:
    """The file with this content: the old one or the new one, whatever happens in between."""
    handle, draft = tempfile.mkstemp(prefix=_draft_prefix(path.parent), dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(draft).chmod(0o644)
        Path(draft).replace(path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
    return path


def _draft_prefix(folder: Path) -> str:
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
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        pass
    return False
