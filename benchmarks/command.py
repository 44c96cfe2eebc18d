"""``usu explain cat.jpg`` against what cannot be saved, ``import torch`` and the bare passes: fresh processes in turns.

A command's ratio is taken within a turn, so that a busy moment hits both of its parts. Bare passes are timed inside a
process that has everything loaded: as many evaluations as the command made, in the same chunks, by the same runtime.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

#: Of a command's time over that of the bare passes and ``import torch``; of ``usu --help`` over ``import torch``.
TARGET, HELP = 1.5, 1 / 3
TURNS = 7
#: Beside the default, which goes on until the map is stable: the cheapest explanation, where fixed costs weigh most.
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("--engine", "torch"),
    ("--engine", "auto"),
    ("--engine", "auto", "--evaluations", "60"),
)
BARE = """
import sys, time
from usu.forward import engine
from usu.forward.runtime import runtime
from usu.models import load
from usu.models.pictures import read
net = load()
image, _ = net.prepare(read(sys.argv[1]).pixels)
asked = engine(runtime(net.model, image, sys.argv[2]).model, 0)
passes = lambda count: asked.evaluate(image, count, lambda rows: image.expand(rows.stop - rows.start, -1, -1, -1))
passes(8)
start = time.perf_counter()
passes(int(sys.argv[3]))
print(time.perf_counter() - start)
"""


def run(*arguments: str) -> tuple[float, str]:
    """Seconds of a fresh process, and what it printed."""
    start = time.perf_counter()
    done = subprocess.run([sys.executable, *arguments], check=True, capture_output=True, text=True)
    return time.perf_counter() - start, done.stdout


def told(values: list[float], digits: int = 2) -> str:
    """The median, and the smallest and largest."""
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def main() -> None:
    from skimage import data, io

    torch, helped = [], []
    rows: list[list[tuple[int, float, float]]] = [[] for _ in COMMANDS]
    with tempfile.TemporaryDirectory() as folder:
        cat = str(Path(folder) / "cat.png")
        io.imsave(cat, data.chelsea())
        for turn in range(TURNS + 1):
            imported = run("-c", "import torch")[0]
            help_seconds = run("-m", "usu.cli", "--help")[0]
            found = []
            for number, options in enumerate(COMMANDS):
                out = str(Path(folder) / f"{turn}-{number}")
                whole, answer = run("-m", "usu.cli", "explain", cat, *options, "--out", out, "--json", "--quiet")
                spent = json.loads(answer)["explained"][0]["evaluations"]
                found.append((spent, whole, float(run("-c", BARE, cat, options[1], str(spent))[1])))
            if turn:  # the first one reads from disk, or exports, what the others find
                torch.append(imported)
                helped.append(help_seconds / imported)
                for row, one in zip(rows, found, strict=True):
                    row.append(one)
    print(f"\n## the command, median (least to most) of {TURNS} turns\n")
    print(f"`import torch` {told(torch)} s; `usu --help` {told(helped)} of it (wanted: at most {HELP:.2f})\n")
    print("| usu explain | evaluations | s | bare passes, s | over passes and `import torch` | wanted |")
    print("|---|---|---|---|---|---|")
    for options, row in zip(COMMANDS, rows, strict=True):
        ratios = [whole / (bare + imported) for (_, whole, bare), imported in zip(row, torch, strict=True)]
        print(
            f"| {' '.join(options)} | {row[0][0]} | {told([w for _, w, _ in row])} | {told([b for _, _, b in row])} "
            f"| {told(ratios)} | {TARGET} |"
        )


if __name__ == "__main__":
    main()
