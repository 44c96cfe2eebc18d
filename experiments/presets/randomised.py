"""Sanity: the maps of a network with random weights beside those of the trained one.

    python -m experiments.presets.randomised DATA [--pictures 12]

A map that stays the same shows the picture, not the model. Prints the mean rank correlation of our presets' maps, and
of bilinear's, between the trained network and one whose every weight was drawn anew (seed 0).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from experiments.presets.pictures import confirmation
from scipy.stats import spearmanr
from torch import nn

import usu
from usu.models import load


def anew(model: nn.Module) -> nn.Module:
    """The same network with weights as before training."""
    for module in model.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear, nn.BatchNorm2d)):
            module.reset_parameters()
    return model.eval()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--pictures", type=int, default=12)
    asked = parser.parse_args()
    trained = load("efficientnet_lite0")
    torch.manual_seed(0)
    random = anew(load("efficientnet_lite0").model)
    found: dict[str, list[float]] = {name: [] for name in ("bilinear", "cell", "soft", "fast")}
    for one in confirmation(asked.data, trained)[: asked.pictures]:
        sample = one.open()
        image = torch.as_tensor(sample.image)
        target = int(trained.model(image[None]).argmax())
        for name, values in found.items():
            preset = "fast" if name == "bilinear" else name
            maps = [
                usu.explain(model, image, target, layer=trained.layer, preset=preset, picture=sample.picture)
                for model in (trained.model, random)
            ]
            size = image.shape[-2:]
            fields = [usu.interpolate(m.coarse, size) if name == "bilinear" else m.pixel_map for m in maps]
            if all(np.ptp(field) > 0 for field in fields):  # a map of zeros has no order
                values.append(float(spearmanr(*(np.asarray(field).ravel() for field in fields)).statistic))
        told = (
            f"{name} {np.mean(values):.3f} (size {np.mean(np.abs(values)):.3f}, {len(values)} maps)"
            for name, values in found.items()
            if values
        )
        print(f"{one.name}: {', '.join(told)}", flush=True)


if __name__ == "__main__":
    main()
