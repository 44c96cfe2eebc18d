"""What wheel and sdist must hold, and must not: python .ci/dist_holds.py dist"""

from __future__ import annotations

import sys
import tarfile
import zipfile
from pathlib import Path

#: Of the wheel, and of the sdist below its folder.
WHEEL = {"usu/__init__.py", "usu/py.typed", "usu/models/imagenet_classes.txt", "usu/cli/__main__.py"}
SDIST = {
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    "CITATION.cff",
    "src/usu/py.typed",
    "tests/conftest.py",
}
#: Megabytes.
MOST = 2


def main(folder: Path) -> None:
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
    assert inside >= WHEEL, WHEEL - inside
    strange = {name for name in inside if not name.startswith(("usu/", "usu_xai-")) or name.endswith((".pyc", ".png"))}
    assert not strange, strange
    with tarfile.open(sdist) as archive:
        files = {name.partition("/")[2] for name in archive.getnames()}
    assert files >= SDIST, SDIST - files
    assert not [name for name in files if name.startswith((".venv", "demo/out", "docs/_build"))]
    for file in (wheel, sdist):
        assert file.stat().st_size < MOST * 2**20, f"{file} has {file.stat().st_size} bytes"
    print(f"{wheel.name}: {len(inside)} files; {sdist.name}: {len(files)} files")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
