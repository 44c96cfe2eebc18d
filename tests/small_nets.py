"""Small networks with layers of several resolutions, for whatever listens to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Tower(nn.Module):
    """Grids of 32, 16, 8 and 4 for a picture of 32 x 32; at 8 two layers, of which the second works on a copy in place.

    Dropout and batch norm make a wrong mode show; it can be told to fail in the middle.
    """

    def __init__(self, classes: int = 5) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.fine = nn.Conv2d(4, 4, 3, stride=2, padding=1)
        self.middle = nn.Conv2d(4, 6, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(6)
        self.act = nn.ReLU(inplace=True)
        self.last = nn.Conv2d(6, 8, 3, stride=2, padding=1)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(8, classes)
        self.fails = False

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.leaky_relu(self.fine(self.stem(x).relu()), 0.3)
        x = self.act(self.norm(self.middle(x)))
        if self.fails:
            raise RuntimeError("the cable is loose")
        return self.head(self.drop(self.last(x).relu().mean((2, 3))))


class Tokens(nn.Module):
    """Patches of 8 x 8 and a class token, like a ViT: every layer has the same grid."""

    def __init__(self, depth: int = 2) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 8, stride=8)
        self.start = nn.Parameter(torch.randn(1, 1, 8))
        self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True) for _ in range(depth))
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.start.expand(len(x), -1, -1), tokens], 1)
        for block in self.blocks:
            tokens = block(tokens)
        return self.head(tokens[:, 0] + tokens[:, 1:].mean(1))


def seeded(kind: Callable[[], nn.Module], seed: int = 3) -> nn.Module:
    """One of them, with the same weights every time and the global random numbers untouched."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return kind().eval()


@contextmanager
def counted(model: nn.Module) -> Iterator[list[int]]:
    """The pictures of every forward pass, by a hook."""
    seen: list[int] = []
    handle = model.register_forward_hook(lambda _module, inputs, _output: seen.append(len(inputs[0])))
    try:
        yield seen
    finally:
        handle.remove()
