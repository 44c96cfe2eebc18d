"""Plant each defect in a copy of the checkout, run the tests of its room, and say which were caught.

    python -m tests.planted [--room ROOM] [--only TEXT] [--table FILE]

It is a campaign, not a part of CI: a quarter of an hour on two quiet cores. Nothing is changed in the checkout.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from tests.planted.defects import DEFECTS, ROOMS, Defect

HOME = Path(__file__).parents[2]
#: A defect that makes a test wait for ever is caught, too.
SECONDS = 900
#: Loaded once, before the copies of this process are made.
HEAVY = ("torch", "numpy", "scipy.stats", "scipy.ndimage", "skimage.segmentation", "PIL.Image")


def copied(to: Path) -> Path:
    """All that git knows of the checkout, as it is on disk now."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=HOME, check=True, capture_output=True).stdout.decode()
    for name in filter(None, names.split("\0")):
        if (HOME / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(HOME / name, to / name)
    return to


def paths_of(room: str, checkout: Path) -> list[str]:
    """Paths of the room's tests, in the order of the list."""
    return [str(path.relative_to(checkout)) for glob in ROOMS[room] for path in sorted(checkout.glob(glob))]


def caught_by(checkout: Path, paths: list[str]) -> str:
    """The first test that fails, empty if none does; in a process of its own that has the heavy modules already."""
    found = checkout.parent / "found.txt"
    found.write_text("the tests did not start")
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            found.write_text(_first_failure(checkout, paths))
        finally:
            os._exit(0)
    until = time.monotonic() + SECONDS
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > until:
            os.killpg(child, 9)
            os.waitpid(child, 0)
            return f"no end within {SECONDS} s"
        time.sleep(0.1)
    return found.read_text().strip()


def _first_failure(checkout: Path, paths: list[str]) -> str:
    import pytest

    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the campaign runs in the background
    os.chdir(checkout)
    sys.path[:] = [str(checkout / "src"), str(checkout), *(p for p in sys.path if p not in ("", str(HOME)))]
    for name in [name for name in sys.modules if name.partition(".")[0] in ("usu", "tests")]:
        del sys.modules[name]
    os.environ["PYTHONPATH"] = str(checkout / "src")
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.dont_write_bytecode = True  # two defects of one second and one length would share a compiled file
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        code = pytest.main(["-x", "-q", "-p", "no:cacheprovider", "--tb=no", *paths])
    if code == 0:
        return ""
    lines = said.getvalue().splitlines()
    failed = [line.partition(" ")[2].partition(" - ")[0] for line in lines if line.startswith(("FAILED", "ERROR"))]
    return failed[0] if failed else (lines or [f"code {code}"])[-1]


def planted(defect: Defect, checkout: Path) -> str:
    """What caught it; "gone" if there is nothing to plant, "survived" if nothing did."""
    file = checkout / "src" / "usu" / defect.file
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    if text.count(defect.old) != 1:
        return "gone"
    file.write_text(text.replace(defect.old, defect.new), encoding="utf-8")
    try:
        return caught_by(checkout, paths_of(defect.room, checkout)) or "survived"
    finally:
        file.write_text(text, encoding="utf-8")


def main() -> int:
    """Run the campaign; the exit code is 1 if a defect survived."""
    parser = argparse.ArgumentParser(prog="python -m tests.planted")
    parser.add_argument("--room", choices=list(ROOMS))
    parser.add_argument("--only", default="", help="a part of a defect's file or description")
    parser.add_argument("--table", type=Path, help="write the results here, as Markdown")
    asked = parser.parse_args()
    chosen = [d for d in DEFECTS if asked.room in (None, d.room) and asked.only in f"{d.file} {d.what}"]
    for name in HEAVY:
        __import__(name)
    lines = ["| room | file | defect | caught by |", "|---|---|---|---|"]
    results = []
    with tempfile.TemporaryDirectory(prefix="usu-planted-") as folder:
        checkout = copied(Path(folder) / "checkout")
        for room in dict.fromkeys(defect.room for defect in chosen):
            if wrong := caught_by(checkout, paths_of(room, checkout)):
                parser.exit(2, f"The tests of {room} must pass before a defect is planted; got {wrong}.\n")
        for number, defect in enumerate(chosen, 1):
            start = time.monotonic()
            found = planted(defect, checkout)
            results.append(found)
            short = found.rpartition("/")[2]
            lines.append(
                f"| {defect.room} | `{defect.file}` | {defect.what} | {short if '::' not in short else f'`{short}`'} |"
            )
            took = time.monotonic() - start
            sys.stdout.write(f"{number:3}/{len(chosen)} {took:5.0f} s  {defect.file}: {defect.what}: {short}\n")
            sys.stdout.flush()
    gone, survived = results.count("gone"), results.count("survived")
    total = f"{len(results) - gone - survived} of {len(results) - gone} caught, {survived} survived, {gone} gone"
    sys.stdout.write(f"{total}\n")
    if asked.table is not None:
        head = ["# Planted defects", "", f"{total}. Made by `make defects`; `defects.py` has the list.", ""]
        asked.table.write_text("\n".join([*head, *lines, ""]), encoding="utf-8")
    return int(survived > 0)


if __name__ == "__main__":
    sys.exit(main())
