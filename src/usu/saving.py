"""Writing results: all of a folder or nothing of it, and never over something that is there."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from usu._checks import as_numpy

if TYPE_CHECKING:
    from usu.results import Explanation


def save_explanation(explanation: Explanation, directory: Path) -> Path:
    """``maps.npz``, ``overlay.png``, ``panel.png`` and, last, ``manifest.json``, in a folder that was not there before.

    Everything is written beside its final place and moved there in one step, so that an interruption or a full disk
    leaves nothing behind.
    """
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise FileExistsError(
            f"`directory` must not exist yet, or be empty; got {directory}, which holds something. "
            "Choose another name, or remove it."
        )
    new = [folder for folder in directory.parents if not folder.exists()]
    directory.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
    try:
        result = explanation.upsampled
        maps = {"coarse": explanation.coarse, "pixel_map": result.pixel_map, "scores": result.scores}
        maps |= {f"segments_{depth}": labels for depth, labels in enumerate(result.segments)}
        maps |= {f"scores_{depth}": as_numpy(field) for depth, field in enumerate(result.depth_scores)}
        np.savez_compressed(draft / "maps.npz", allow_pickle=False, **maps)
        from PIL import Image

        from usu.plot import overlay

        Image.fromarray(overlay(*explanation.on_original())).save(draft / "overlay.png")
        explanation.figure().savefig(draft / "panel.png")
        text = json.dumps(explanation.manifest(), indent=2, ensure_ascii=False)
        (draft / "manifest.json").write_text(text + "\n", encoding="utf-8")
        draft.chmod(0o755)  # mkdtemp makes folders for one user only
        if directory.exists():
            directory.rmdir()
        draft.rename(directory)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        with suppress(OSError):  # someone else may have come to use them meanwhile
            for folder in new:
                folder.rmdir()
        raise
    return directory


def written(path: Path, content: bytes) -> Path:
    """The file with this content: the old one or the new one, whatever happens in between."""
    handle, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(draft).chmod(0o644)
        Path(draft).replace(path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
    return path
