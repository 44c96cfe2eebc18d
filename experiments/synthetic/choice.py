"""Which scores the study's pipeline uses: the table of a choice made on validation pictures with their true outlines.

Segments, fill, and whether a score has a sign; no refinement, because it starts from these. The rivals were not tuned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
from experiments.synthetic.coarse import coarse_maps
from experiments.synthetic.measures import samples
from experiments.synthetic.methods import AT, paper, redistributed, scored
from experiments.synthetic.shapes import Pictures
from torch import nn

import usu
from usu.bench import Sample

PARTS, FILLS, SIGNS = (6, 10, 20, 50), ("mean", "blur"), ("unsigned", "signed")


def choice(models: Mapping[str, nn.Module], validation: Pictures, grids: Sequence[int]) -> list[dict[str, object]]:
    """Mean IoU and concentration over pictures and grids of USU and IWMR, per model and way to score."""
    records = []
    for name, model in models.items():
        coarse = {grid: coarse_maps(model, validation.images, validation.labels, grid) for grid in grids}
        made = samples(validation, coarse)
        for sign, fill, parts in product(SIGNS, FILLS, PARTS):
            settings = replace(paper("iwmr"), parts=parts, fill=fill, depth=0)
            fields: dict[str, np.ndarray] = {}
            found = []
            for one in made:
                picture = one.name.rpartition(AT)[0]  # grids share the scores
                if picture not in fields:
                    scores = scored(
                        model, one.image, one.target, settings, picture=one.picture, unsigned=sign == "unsigned"
                    )
                    fields[picture] = scores.field
                found.append([value for budget in ("usu", "iwmr") for value in _measured(one, fields[picture], budget)])
            heads = ("usu_iou", "usu_concentration", "iwmr_iou", "iwmr_concentration")
            about = {"model": name, "scores": sign, "fill": fill, "segments": parts, "pictures": len(validation)}
            records.append(about | dict(zip(heads, np.mean(found, 0), strict=True)))
    return records


def _measured(one: Sample, field: np.ndarray, budget: str) -> tuple[float, float]:
    pixel_map, truth = redistributed(one.coarse.numpy(), field, budget), one.truth.numpy()
    return usu.metrics.iou(pixel_map, truth), usu.metrics.concentration(pixel_map, truth)
