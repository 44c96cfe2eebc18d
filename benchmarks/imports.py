"""``import usu`` against ``import torch``: fresh interpreters, taken in turns."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

#: Of the median times: what `import usu` may cost.
TARGET = 1.2


def seconds(*modules: str, repeats: int = 11) -> list[float]:
    """Median times of a fresh interpreter that imports each module, in turns so that a busy moment hits all of them."""
    times: list[list[float]] = [[] for _ in modules]
    for turn in range(repeats + 1):
        for module, taken in zip(modules, times, strict=True):
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", f"import {module}"], check=True)
            if turn:  # the first one reads from disk what the others find in memory
                taken.append(time.perf_counter() - start)
    return [statistics.median(taken) for taken in times]


def main() -> None:
    torch, usu = seconds("torch", "usu")
    print("## import, fresh interpreters\n")
    print("| `import torch`, s | `import usu`, s | ratio | target |")
    print("|---|---|---|---|")
    print(f"| {torch:.2f} | {usu:.2f} | {usu / torch:.2f} | < {TARGET} |")
