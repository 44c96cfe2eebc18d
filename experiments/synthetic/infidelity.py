"""The paper's abstract claim about models of known reasons: infidelity falls "by 2 to 4 orders of magnitude".

Raw infidelity depends on the units of a map. After division by the maximum, as is usual, whoever has a higher peak has
a smaller map and a smaller number; scores that were permuted have that, too. Beside it stands the scale-optimal number,
which no unit can change. Every map of a picture is compared with the same answers of the model.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from experiments.synthetic.demonstrations import GRID, shown
from experiments.synthetic.methods import redistributed
from experiments.synthetic.shapes import Pictures
from torch import nn

import usu


def infidelities(models: Mapping[str, nn.Module], pictures: Pictures, *, seed: int = 0) -> list[dict[str, object]]:
    """Per model and method: the geometric mean of the raw number of maps of maximum 1, and the mean scale-optimal one.

    ``times_less`` is how many times less than bilinear's the raw number is, the geometric mean over pictures.
    """
    return [record for name, model in models.items() for record in _of_model(name, model, pictures, seed)]


def _of_model(name: str, model: nn.Module, pictures: Pictures, seed: int) -> list[dict[str, object]]:
    raw: dict[str, list[float]] = {}
    optimal: dict[str, list[float]] = {}
    for number in range(len(pictures)):
        example, result = shown("", model, pictures, number)
        permuted = _permuted(result.scores, result.segments[-1], seed + number)
        maps = example.maps | {"usu-permuted-scores": redistributed(example.coarse, permuted, "usu")}
        answers = usu.metrics.block_changes(pictures.images[number], model, int(pictures.labels[number]))
        for method, pixel_map in maps.items():
            scaled = pixel_map / pixel_map.max()
            raw.setdefault(method, []).append(usu.metrics.infidelity_of(scaled, answers, scaling="raw"))
            optimal.setdefault(method, []).append(usu.metrics.infidelity_of(scaled, answers))
    logs = {method: np.log10(values) for method, values in raw.items()}
    return [
        {
            "model": name, "grid": GRID, "method": method, "pictures": len(pictures),
            "raw": float(10 ** logs[method].mean()),
            "times_less": float(10 ** (logs["bilinear"] - logs[method]).mean()),
            "scale_optimal": float(np.mean(optimal[method])),
        }
        for method in raw
    ]  # fmt: skip


def _permuted(scores: np.ndarray, segments: np.ndarray, seed: int) -> np.ndarray:
    """The scores of the segments, dealt anew among them."""
    means = np.bincount(segments.ravel(), scores.ravel()) / np.maximum(np.bincount(segments.ravel()), 1)
    known = np.unique(segments)
    means[known] = np.random.default_rng(seed).permutation(means[known])
    return means[segments]
