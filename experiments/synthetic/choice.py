"""Which scores the study's pipeline uses: the table of a choice made on validation pictures with their true outlines.

Segments, fill, and whether a score has a sign; no refinement, because it starts from these. The rivals were not tuned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from experiments.synthetic.coarse import coarse_maps
from experiments.synthetic.measures import samples
from experiments.synthetic.methods import Memory, paper, redistributed
from experiments.synthetic.shapes import Pictures
from torch import nn

import usu
from usu.bench.scene import scene_of

PARTS, FILLS, SIGNS = (6, 10, 20, 50), ("mean", "blur"), ("unsigned", "signed")


def choice(models: Mapping[str, nn.Module], validation: Pictures, grids: Sequence[int]) -> list[dict[str, object]]:
    """Mean IoU and concentration over pictures and grids of USU and IWMR, per model and way to score."""
    records = []
    for name, model in models.items():
        coarse = {grid: coarse_maps(model, validation.images, validation.labels, grid) for grid in grids}
        scenes = [
            scene_of(one, model, model, source="gradcam", layer=None, seed=0) for one in samples(validation, coarse)
        ]
        for sign in SIGNS:
            for fill in FILLS:
                for parts in PARTS:
                    memory, found = Memory(unsigned=sign == "unsigned"), []
                    for scene in scenes:
                        settings = replace(paper("usu"), parts=parts, fill=fill, depth=0)
                        field = memory.scored(scene, settings).scores
                        found.append([value for budget in ("usu", "iwmr") for value in _measured(scene, field, budget)])
                    heads = ("usu_iou", "usu_concentration", "iwmr_iou", "iwmr_concentration")
                    about = {"model": name, "scores": sign, "fill": fill, "segments": parts}
                    records.append(
                        about | {"pictures": len(validation)} | dict(zip(heads, np.mean(found, 0), strict=True))
                    )
    return records


def _measured(scene: Any, field: np.ndarray, budget: str) -> tuple[float, float]:
    pixel_map = redistributed(scene.coarse, field, budget)
    return usu.metrics.iou(pixel_map, scene.truth), usu.metrics.concentration(pixel_map, scene.truth)
