"""The paper's two networks, as plain as they are described there.

What it leaves open: convolutions are padded to keep the size (so that the last block is 28 x 28 at 224 and the grids
4, 7 and 14 are made of whole places), and torch's own initialisation.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

#: Where Grad-CAM looks: the last convolutional block, after its pooling.
CAM_LAYER = "block3"


def cnn(classes: int = 3, *, seed: int = 0) -> nn.Sequential:
    """Three blocks (5 x 5 convolution, ReLU, 2 x 2 max-pooling), 16-32-64 channels; 4 x 4 average; 1024-128-classes.

    Takes (N, 1, S, S) with S of at least 32.
    """
    with _seeded(seed):
        return nn.Sequential(
            OrderedDict(
                block1=_block(1, 16),
                block2=_block(16, 32),
                block3=_block(32, 64),
                pool=nn.AdaptiveAvgPool2d(4),
                flat=nn.Flatten(),
                hidden=nn.Linear(1024, 128),
                relu=nn.ReLU(),
                scores=nn.Linear(128, classes),
            )
        )


def mlp(size: int = 224, classes: int = 3, *, seed: int = 0) -> nn.Sequential:
    """size²-256-64-classes with ReLU: 50176 inputs at the paper's 224."""
    with _seeded(seed):
        return nn.Sequential(
            OrderedDict(
                flat=nn.Flatten(),
                hidden1=nn.Linear(size * size, 256),
                relu1=nn.ReLU(),
                hidden2=nn.Linear(256, 64),
                relu2=nn.ReLU(),
                scores=nn.Linear(64, classes),
            )
        )


def _block(before: int, after: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(before, after, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2))


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Initial weights from ``seed`` alone; torch's generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
