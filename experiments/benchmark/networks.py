"""ResNet-20 for CIFAR-10, whose weights lie beside its pictures: ``networks.py:resnet20`` returns (model, prepare)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Block(nn.Module):
    """Two convolutions and a shortcut without parameters: every second pixel, channels filled up with zeros."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.stride, self.more = 1 + (width > inputs), width - inputs
        self.conv1 = nn.Conv2d(inputs, width, 3, self.stride, 1, bias=False)
        self.bn1, self.relu1 = nn.BatchNorm2d(width), nn.ReLU()
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        self.relu2 = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        kept = nn.functional.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.more // 2, self.more // 2))
        return self.relu2(self.bn2(self.conv2(self.relu1(self.bn1(self.conv1(x))))) + kept)


class ResNet20(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1, self.relu = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()
        widths = (16, 16, 32, 64)
        for stage in (1, 2, 3):
            before, width = widths[stage - 1 : stage + 1]
            setattr(
                self, f"layer{stage}", nn.Sequential(Block(before, width), Block(width, width), Block(width, width))
            )
        self.linear = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.bn1(self.conv1(x)))
        return self.linear(self.layer3(self.layer2(self.layer1(x))).mean((2, 3)))


def prepare(pixels: np.ndarray) -> Tensor:
    values = torch.from_numpy(np.array(pixels, np.float32) / 255).permute(2, 0, 1)
    return (values - torch.tensor(MEAN)[:, None, None]) / torch.tensor(STD)[:, None, None]


def resnet20() -> tuple[nn.Module, Callable[[np.ndarray], Tensor]]:
    """91.8 % of the test pictures; 8 x 8 at layer3."""
    model = ResNet20()
    weights = load_file(Path(os.environ["USU_DATA"]) / "cifar10" / "resnet20.safetensors")
    model.load_state_dict(
        {name: value.float() if value.is_floating_point() else value for name, value in weights.items()}
    )
    return model.eval(), prepare
