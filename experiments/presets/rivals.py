"""Rivals that are no upsamplers of a coarse map, as contenders of `usu.evaluate`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

import usu
from usu.bench.contenders import Guided, Made


def _layers(scene: Any) -> list[str]:
    """The last layer of each resolution below the picture's, the coarsest first."""
    return scene.memory.once("layers of each resolution", lambda: last_layers(scene.model, scene.image))


def last_layers(model: torch.nn.Module, image: Tensor) -> list[str]:
    """Names of the last layers with parameters of each resolution coarser than the picture, the coarsest first."""
    last: dict[tuple[int, ...], str] = {}

    def record(name: str, output: Any) -> None:
        if isinstance(output, Tensor) and output.ndim == 4 and 1 < output[0, 0].numel() < image[0].numel():
            last[tuple(output.shape[2:])] = name

    handles = [
        module.register_forward_hook(lambda _module, _inputs, output, name=name: record(name, output))
        for name, module in model.named_modules()
        if name and any(True for _ in module.parameters())
    ]
    try:
        with torch.no_grad():
            model(image[None])
    finally:
        for handle in handles:
            handle.remove()
    return [last[size] for size in sorted(last)]


def _size(scene: Any) -> tuple[int, int]:
    return int(scene.image.shape[-2]), int(scene.image.shape[-1])


@dataclass(frozen=True)
class LayerCam:
    """LayerCAM of the layer one resolution finer than Grad-CAM's, bilinear: one forward and one backward pass."""

    name: str = "layercam"
    level: int = 1

    def __call__(self, scene: Any) -> Made:
        """The map."""
        start = time.perf_counter()
        layer = _layers(scene)[self.level]
        coarse = usu.layercam(scene.model, scene.image[None], scene.target, layer=layer).values[0]
        pixel_map = usu.interpolate(coarse.double().numpy(), _size(scene), "bilinear")
        return Made(pixel_map, 1, time.perf_counter() - start)


@dataclass(frozen=True)
class RefineCam:
    """RefineCAM: the product of the layers' Grad-CAM++ maps, each scaled to [0, 1] and resized bilinearly."""

    name: str = "refinecam"
    levels: int = 3

    def __call__(self, scene: Any) -> Made:
        """The map."""
        start = time.perf_counter()
        maps = [self._plus_plus(scene, layer) for layer in _layers(scene)[: self.levels]]
        product = np.prod([_unit(usu.interpolate(_unit(one), _size(scene), "bilinear")) for one in maps], axis=0)
        return Made(product, self.levels, time.perf_counter() - start)

    def _plus_plus(self, scene: Any, layer: str) -> np.ndarray:
        kept: list[Tensor] = []
        module = dict(scene.model.named_modules())[layer]
        handle = module.register_forward_hook(lambda _module, _inputs, output: kept.append(output))
        try:
            logits = scene.model(scene.image[None].clone().requires_grad_())
        finally:
            handle.remove()
        (slope,) = torch.autograd.grad(logits[0, scene.target], kept[0])
        return plus_plus(kept[0].detach(), slope)


def plus_plus(activation: Tensor, slope: Tensor) -> np.ndarray:
    """Grad-CAM++ (h, w): channels weighted by Σ relu(G) G² / (2 G² + ΣA · G³), rectified."""
    total = activation.sum((2, 3), keepdim=True)
    alpha = slope**2 / (2 * slope**2 + total * slope**3 + 1e-6)
    weight = (torch.where(slope != 0, alpha, 0.0) * slope.relu()).sum((2, 3), keepdim=True)
    return (weight * activation).sum(1).relu()[0].double().numpy()


def _unit(values: np.ndarray) -> np.ndarray:
    low = values - values.min()
    return low / (1e-7 + low.max())


@dataclass(frozen=True, eq=False)
class Rise:
    """RISE as published: 4,000 smooth random masks on a 7 x 7 grid, each cell shown with probability 1/2.

    What is hidden becomes the grey that the network's input has at zero. Maps are kept in ``folder``: they are what
    takes the time.
    """

    folder: Path
    places: Mapping[str, int]
    name: str = "rise"
    count: int = 4000
    grid: int = 7

    def __call__(self, scene: Any) -> Made:
        """The map."""
        start = time.perf_counter()
        kept = self.folder / f"{scene.name}.npy"
        if not kept.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            np.save(kept, self._map(scene))
        return Made(np.load(kept), self.count, time.perf_counter() - start)

    def _map(self, scene: Any) -> np.ndarray:
        height, width = _size(scene)
        down, right = -(-height // self.grid), -(-width // self.grid)
        dice = torch.Generator().manual_seed(self.places[scene.name])
        total = torch.zeros(height, width, dtype=torch.float64)
        for _ in range(0, self.count, 8):
            small = (torch.rand(8, 1, self.grid, self.grid, generator=dice) < 0.5).float()
            size = ((self.grid + 1) * down, (self.grid + 1) * right)
            large = functional.interpolate(small, size=size, mode="bilinear", align_corners=False)
            rows = torch.randint(0, down, (8,), generator=dice).tolist()
            columns = torch.randint(0, right, (8,), generator=dice).tolist()
            shown = torch.stack(
                [one[0, r : r + height, c : c + width] for one, r, c in zip(large, rows, columns, strict=True)]
            )
            with torch.no_grad():
                chances = scene.forward(scene.image[None] * shown[:, None]).softmax(1)[:, scene.target]
            total += torch.einsum("n,nhw->hw", chances.double(), shown.double())
        return (total / self.count / 0.5).numpy()


@dataclass(frozen=True)
class Spiked:
    """The order of ``soft`` in a map that keeps every cell's mass: all but one pixel of a cell are scaled down alike.

    Nobody should look at such a map. It is an estimate of what D1 alone costs a metric that sees only the order of
    pixels: the order is free but for one pixel per cell and for cells without mass, which come last.
    """

    soft: Guided
    name: str = "d1-bound"

    def __call__(self, scene: Any) -> Made:
        """The map."""
        made = self.soft(scene)
        (height, width), (h, w) = _size(scene), scene.coarse.shape
        rows, columns = (np.arange(n) * 2 + 1 for n in (height, width))
        cell = (rows * h // (2 * height))[:, None] * w + columns * w // (2 * width)
        mass = scene.coarse.ravel() * np.bincount(cell.ravel())
        held = np.bincount(cell.ravel(), made.pixel_map.ravel())
        full = mass > 0
        scale = 0.5 * (mass[full] / held[full]).min() if full.any() else 0.0
        # an empty cell keeps the order too, far below the others
        pixel_map = made.pixel_map * np.where(full, scale, 1e-9 * scale)[cell]
        for k in np.flatnonzero(full):
            inside = cell == k
            top = np.flatnonzero(inside.ravel())[made.pixel_map[inside].argmax()]
            pixel_map.flat[top] += mass[k] - pixel_map[inside].sum()
        return Made(pixel_map, made.evaluations, made.seconds)
