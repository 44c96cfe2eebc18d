"""`usu.redistribute` against bilinear interpolation and a plain copy, in one run; its growth; its memory."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
import timeit
from collections.abc import Callable

import torch
from torch.nn.functional import interpolate

import usu
from usu.operator.cells import Grid

CASES = ((64, 7, 224), (1, 16, 4096), (1, 7, 224))


def seconds(*calls: Callable[[], object], repeats: int = 15) -> list[float]:
    """Median times of several calls, taken in turns so that a busy moment hits all of them."""
    times: list[list[float]] = [[] for _ in calls]
    for call in calls:
        call()
    for _ in range(repeats):
        for call, taken in zip(calls, times, strict=True):
            start = time.perf_counter()
            call()
            taken.append(time.perf_counter() - start)
    return [statistics.median(taken) for taken in times]


def against_bilinear() -> None:
    print("## redistribute against bilinear, float32\n")
    print("| maps | grid -> pixels | copy, ms | bilinear, ms | redistribute, ms | redistribute / bilinear |")
    print("|---|---|---|---|---|---|")
    for batch, grid, size in CASES:
        coarse, scores = torch.rand(batch, grid, grid), torch.rand(batch, size, size)
        copy, bilinear, ours = seconds(
            scores.clone,
            lambda c=coarse, s=size: interpolate(c[:, None], size=(s, s), mode="bilinear"),
            lambda c=coarse, s=scores: usu.redistribute(c, s),
        )
        print(
            f"| {batch} | {grid} x {grid} -> {size} x {size} | {copy * 1e3:.2f} | {bilinear * 1e3:.2f} "
            f"| {ours * 1e3:.2f} | {ours / bilinear:.2f} |"
        )


def of_one_map() -> None:
    """The smallest of many single calls: what one map costs where nothing else wants the processor."""
    coarse, scores = torch.rand(1, 7, 7), torch.rand(1, 224, 224)
    cells = Grid((7, 7), (224, 224), scores.device)
    mass = coarse.double().flatten(1) * cells.sizes
    bilinear, ours, kernel, exponential = (
        min(timeit.repeat(call, number=1, repeat=2000))
        for call in (
            lambda: interpolate(coarse[:, None], size=(224, 224), mode="bilinear"),
            lambda: usu.redistribute(coarse, scores),
            lambda: cells.share(scores, mass, 10.0, mild=True),
            scores.exp,
        )
    )
    print("\n## one map, 7 x 7 -> 224 x 224, float32, least of 2000 calls\n")
    print("| call | us | / bilinear |")
    print("|---|---|---|")
    for name, taken in {
        "bilinear": bilinear, "redistribute": ours, "its softmax alone": kernel, "one exp of the scores": exponential,
    }.items():  # fmt: skip
        print(f"| {name} | {taken * 1e6:.0f} | {taken / bilinear:.2f} |")


def growth() -> None:
    """Time per pixel should not depend on how many pixels, cells or maps there are."""
    print("\n## growth\n")
    print("| what grows | batch | grid | pixels | ms | ns per pixel |")
    print("|---|---|---|---|---|---|")
    for what, cases in {
        "pixels": [(1, 16, size) for size in (512, 1024, 2048, 4096)],
        "cells": [(1, grid, 1024) for grid in (4, 16, 64, 256, 1024)],
        "maps": [(batch, 7, 224) for batch in (4, 16, 64, 256)],
    }.items():
        for batch, grid, size in cases:
            coarse, scores = torch.rand(batch, grid, grid), torch.rand(batch, size, size)
            (taken,) = seconds(lambda c=coarse, s=scores: usu.redistribute(c, s), repeats=9)
            pixels = batch * size * size
            print(f"| {what} | {batch} | {grid} | {size} x {size} | {taken * 1e3:.2f} | {taken / pixels * 1e9:.2f} |")


_PEAK = """
import sys, torch, usu
def status(key):
    return int(next(line for line in open("/proc/self/status") if line.startswith(key)).split()[1]) * 1024
coarse, scores = torch.rand(16, 16), torch.rand(4096, 4096)
usu.redistribute(coarse[:2, :2], scores[:64, :64])
open("/proc/self/clear_refs", "w").write("5")
before = status("VmRSS")
result = usu.redistribute(coarse, scores)
print((status("VmHWM") - before) / (result.numel() * result.element_size()))
"""


def memory() -> None:
    """Peak memory beyond the inputs, in sizes of the output (the output itself counts as one)."""
    peak = float(subprocess.run([sys.executable, "-c", _PEAK], capture_output=True, check=True, text=True).stdout)
    print(f"\n## memory\n\n16 x 16 -> 4096 x 4096, float32: peak {peak:.2f} x the output, the output included")


def main() -> None:
    against_bilinear()
    of_one_map()
    growth()
    memory()
