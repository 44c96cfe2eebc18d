"""Files that are written whole or not at all, and what ran when they were."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
import time
from contextlib import suppress
from datetime import datetime, timezone
from functools import cache
from pathlib import Path

import numpy as np
import torch

#: Drafts are called ``.usu-draft.HOST.PROCESS.xxxxxxxx``, so that those of dead processes can be told.
_DRAFT = ".usu-draft"
#: Seconds after which a draft of another machine is taken for dead.
_OLD = 86_400.0


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
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        pass
    return False
