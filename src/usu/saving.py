"""Writing results: all of a folder or nothing of it, and never over something that is there."""

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

from usu._checks import as_numpy
from usu.forward.digest import digest

if TYPE_CHECKING:
    from usu.results import Explanation

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
        maps |= {f"segments_{depth}": labels for depth, labels in enumerate(result.segments)}
        maps |= {f"scores_{depth}": as_numpy(field) for depth, field in enumerate(result.depth_scores)}
        np.savez_compressed(draft / "maps.npz", allow_pickle=False, **maps)
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
