"""One picture of one network, ready to be explained many times."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from experiments.presets import FORMER
from PIL import Image
from torch import Tensor

import usu
from usu.forward import fills
from usu.forward.runtime import runtime
from usu.metrics import deletion, half_deletion, insertion
from usu.models import Loaded, load
from usu.models.pictures import seen
from usu.operator.redistribute import SoftPrior
from usu.pipeline.certainty import tops
from usu.settings import PRESETS, Settings

_ALONE: dict[str, Any] = {"budget": SoftPrior(0.0, 0.0), "base": None}
SETTINGS: dict[str, Settings] = {
    "soft": PRESETS["soft"],
    "cell": PRESETS["cell"],
    "former soft": FORMER["soft"],
    "former cell": FORMER["cell"],
    # the same estimator without coarse map and layers; and kernel SHAP on the same segments
    "scores alone": replace(PRESETS["soft"], **_ALONE),
    "kernel SHAP": replace(PRESETS["soft"], fit="kernel_shap", scale="range", evaluations=300, **_ALONE),
}
NETWORKS = {
    "embedded": ("imagenet", "EfficientNet-Lite0"),
    "resnet50": ("imagenet", "ResNet-50"),
    "vgg16_cifar10": ("cifar10-exact", "VGG-16, CIFAR-10"),
    "vit_s14_cifar10": ("cifar10-exact", "ViT-S/14, CIFAR-10"),
}

#: Those that were measured on pictures of full size, by their name on the page.
FULL = {name: title for name, (folder, title) in NETWORKS.items() if folder == "imagenet"}


class Remembered:
    """A model that is asked about a picture once; `keep` writes its answers to a file that the next one begins with."""

    def __init__(self, model: Any, file: Path | None = None) -> None:
        self.model, self.file, self.known = model, file, {}
        if file is not None and file.is_file():
            self.known = torch.load(file, weights_only=True)
        self.kept = len(self.known)

    def __call__(self, batch: Tensor) -> Tensor:
        keys = [hashlib.blake2b(one.contiguous().numpy().tobytes(), digest_size=16).hexdigest() for one in batch]
        new = {key: row for row, key in enumerate(keys) if key not in self.known}
        if new:
            with torch.no_grad():
                found = self.model(batch[list(new.values())])
            self.known |= {key: row.clone() for key, row in zip(new, found.float(), strict=True)}
        return torch.stack([self.known[key] for key in keys])

    def keep(self) -> None:
        """With what another process has written since."""
        if self.file is None or len(self.known) == self.kept:
            return
        self.file.parent.mkdir(parents=True, exist_ok=True)
        if self.file.is_file():
            self.known = torch.load(self.file, weights_only=True) | self.known
        draft = self.file.with_suffix(f".{os.getpid()}")
        torch.save(self.known, draft)
        draft.replace(self.file)
        self.kept = len(self.known)


class DrawnFill:
    """A model for which every group draws how its hidden pixels, shown here as ``MARK``, are filled.

    A group and its complement draw the same fill, or their difference would be that of two fills.
    """

    MARK = 1e4

    def __init__(self, model: Any, image: Tensor) -> None:
        self.model, self.fills = model, [fills.filled(image, name) for name in fills.FILLS]

    def __call__(self, batch: Tensor) -> Tensor:
        hidden = (batch == self.MARK).all(1)
        chosen = [self.fills[self._lot(one) % len(self.fills)] for one in hidden]
        return self.model(torch.where(hidden[:, None], torch.stack(chosen), batch))

    def _lot(self, hidden: Tensor) -> int:
        both = (hidden.numpy().tobytes(), (~hidden).numpy().tobytes())
        return hashlib.blake2b(min(both), digest_size=4).digest()[0]


@dataclass(frozen=True, eq=False)
class Case:
    """A picture, the network's answer and its coarse map."""

    loaded: Loaded
    image: Tensor
    picture: np.ndarray
    source: usu.CoarseMap
    target: int
    model: Remembered
    #: The names of the settings that are measured; none: all.
    only: frozenset[str] = frozenset()

    def asked(self, *names: str) -> list[str]:
        """Those of ``names`` that are measured."""
        return [name for name in names if not self.only or name in self.only]

    @property
    def coarse(self) -> Tensor:
        return self.source.values[0]

    @property
    def size(self) -> tuple[int, int]:
        return int(self.image.shape[-2]), int(self.image.shape[-1])

    def made(self, settings: Settings, evaluations: Any, seed: int) -> usu.Upsampled:
        """The finer layers were heard with the coarse map: no evaluation is theirs."""
        own = replace(settings, evaluations=evaluations, seed=seed)
        alone = settings.base is None
        coarse = torch.ones_like(self.coarse) if alone else self.coarse
        finer = [] if alone else [level[0] for level in self.source.finer]
        return usu.upsample(coarse, self.image, self.model, self.target, preset=own, picture=self.picture, finer=finer)

    def faithful(self, pixel_map: Tensor) -> dict[str, float]:
        """Insertion minus deletion and half deletion within cells, by other fills than the scorer's."""
        found, grid = {}, (self.coarse.shape[0], self.coarse.shape[1])
        for fill in ("mean", "noise"):
            ends = [
                curve(pixel_map, self.image, self.model, self.target, fill=fill, steps=16).value
                for curve in (insertion, deletion)
            ]
            found[f"insertion-deletion {fill}"] = ends[0] - ends[1]
            half = half_deletion(pixel_map, self.image, self.model, grid, self.target, fill=fill)
            found[f"half-deletion {fill}"] = half.value
        return found


def case_of(
    loaded: Loaded, pixels: np.ndarray, target: int | None = None, answers: Path | Remembered | None = None
) -> Case | None:
    """None where Grad-CAM finds nothing. ``answers``: what knows those of before, or the file that they are kept in."""
    image, geometry = loaded.prepare(pixels)
    source = usu.gradcam(loaded.model, image[None], target, layer=loaded.layer, finer=True)
    if not bool(source.values.any()) or source.targets is None:
        return None
    picture = seen((pixels / 255).astype(np.float32), geometry)
    known = isinstance(answers, Remembered)
    model = answers if known else Remembered(runtime(loaded.model, image, "auto").model, answers)
    return Case(loaded, image, picture, source, source.targets[0], model)


def network(name: str, data: Path) -> Loaded:
    return load() if name == "embedded" else load(f"{data / 'models' / 'load.py'}:{name}")


def files_of(folder: Path, *, even: bool = False) -> list[Path]:
    """Odd or even places of a folder in an order that is spread over it, the same first ones whatever their number."""
    files = sorted((folder / "images").iterdir())[0 if even else 1 :: 2]
    return [files[(place * 37) % len(files)] for place in range(len(files))]


def pixels_of(file: Path | IO[bytes]) -> np.ndarray:
    return np.asarray(Image.open(file).convert("RGB"))


def agreement(one: Any, other: Any) -> tuple[float, float]:
    """IoU of exactly the 5 % highest pixels, ties by lot, and the correlation."""
    maps = torch.stack([torch.as_tensor(one), torch.as_tensor(other)]).double()
    chosen = tops(maps, 0.05, torch.Generator().manual_seed(0))
    iou = float((chosen[0] & chosen[1]).sum() / (chosen[0] | chosen[1]).sum())
    return iou, float(np.corrcoef(maps[0].numpy().ravel(), maps[1].numpy().ravel())[0, 1])


def column(rows: Sequence[dict[str, str]], name: str) -> np.ndarray:
    return np.array([float(row[name]) for row in rows if name in row])
