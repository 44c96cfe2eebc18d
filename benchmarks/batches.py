"""Milliseconds a small picture takes in chunks of several sizes: would filling chunks from several pictures save time?

`usu.upsample` asks about 60 groups of a picture at a time, and of small pictures a chunk could hold more. Random
weights: the time does not depend on them.
"""

from __future__ import annotations

import statistics
import time
from itertools import pairwise

import torch
from torch import Tensor, nn

from usu.forward import engine
from usu.score.groups import STEP

CHUNKS = (15, 30, STEP, 120, 180, 240)
ROWS, TURNS = 720, 7


class Block(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after))
        self.around = nn.Identity() if before == after else nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.around(x) + self.second(self.first(x)))


def resnet20() -> nn.Module:
    """The residual network of CIFAR's papers: 9 blocks, 16 to 64 channels."""
    widths = [16, 16, 16, 16, 32, 32, 32, 64, 64, 64]
    blocks = [Block(before, after, 1 if before == after else 2) for before, after in pairwise(widths)]
    return nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def digits() -> nn.Module:
    """Two convolutions, as for handwritten digits."""
    body = [nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*body, nn.Flatten(), nn.Linear(800, 10))


def main() -> None:
    print(f"\n## a picture in chunks of several sizes: ms, median (least) of {TURNS} turns\n")
    print(f"| network, picture | {' | '.join(map(str, CHUNKS))} |")
    print(f"|---|{'---|' * len(CHUNKS)}")
    for name, model, shape in (
        ("two convolutions, 1 x 28 x 28", digits(), (1, 28, 28)),
        ("ResNet-20, 3 x 32 x 32", resnet20(), (3, 32, 32)),
        ("ResNet-20, 3 x 64 x 64", resnet20(), (3, 64, 64)),
    ):
        image = torch.rand(shape)
        taken: dict[int, list[float]] = {chunk: [] for chunk in CHUNKS}
        for _ in range(TURNS):
            for chunk in CHUNKS:
                asked, batch = engine(model.eval(), 0, chunk=chunk), image.expand(chunk, *shape)
                start = time.perf_counter()
                asked.evaluate(image, ROWS, lambda rows, batch=batch: batch[: rows.stop - rows.start])
                taken[chunk].append((time.perf_counter() - start) / ROWS * 1e3)
        cells = [f"{statistics.median(times):.3f} ({min(times):.3f})" for times in taken.values()]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
