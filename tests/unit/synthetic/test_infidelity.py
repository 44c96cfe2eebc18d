"""Infidelity of the study's maps: the metric itself, picture by picture, is the twin."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from experiments.synthetic.demonstrations import shown
from experiments.synthetic.infidelity import _permuted, infidelities
from experiments.synthetic.shapes import shapes

import usu

PICTURES = shapes(2, size=56)


def model(batch: torch.Tensor) -> torch.Tensor:
    light = batch.flatten(1)[:, ::3].sum(1)
    return torch.stack([light, 2 * light, 3 * light], 1)


def test_the_numbers_are_those_of_the_metric() -> None:
    records = {record["method"]: record for record in infidelities({"light": model}, PICTURES)}
    assert list(records) == ["bilinear", "bicubic", "lanczos3", "usu", "iwmr", "usu-permuted-scores"]
    raw = {"bilinear": [], "usu": []}
    optimal = {"bilinear": [], "usu": []}
    for number in range(2):
        maps = shown("", model, PICTURES, number)[0].maps
        asked = PICTURES.images[number], model, int(PICTURES.labels[number])
        for name in raw:
            field = maps[name] / maps[name].max()
            raw[name].append(usu.metrics.infidelity(field, *asked, scaling="raw").value)
            optimal[name].append(usu.metrics.infidelity(field, *asked).value)
    for name in raw:
        assert records[name]["raw"] == pytest.approx(np.sqrt(np.prod(raw[name])))
        assert records[name]["scale_optimal"] == pytest.approx(np.mean(optimal[name]))
    ratio = np.sqrt(np.prod(raw["bilinear"]) / np.prod(raw["usu"]))
    assert records["usu"]["times_less"] == pytest.approx(ratio)


def test_permuted_scores_are_the_same_scores_elsewhere() -> None:
    segments = np.repeat(np.arange(8), 3).reshape(4, 6)
    scores = (segments / 10.0) ** 2
    found = _permuted(scores, segments, seed=0)
    np.testing.assert_allclose(np.sort(found.ravel()), np.sort(scores.ravel()))
    assert not np.allclose(found, scores)
