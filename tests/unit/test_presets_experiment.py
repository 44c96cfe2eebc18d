"""The rivals and verdicts of the search for presets."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from experiments.presets.rivals import LayerCam, RefineCam, Rise, Spiked
from experiments.presets.verdicts import CLAIMS, FAMILY, verdicts

import usu
from tests.small_nets import Tower
from usu.bench import Sample, Table
from usu.bench.contenders import Guided
from usu.bench.scene import Scene, scene_of
from usu.bench.table import Row


@pytest.fixture
def scene() -> Scene:
    torch.manual_seed(0)
    model = Tower().eval()
    image = torch.rand(3, 32, 32, generator=torch.Generator().manual_seed(1))
    coarse = np.array([[0.0, 2.0, 1.0, 0.5], [3.0, 0.0, 0.1, 1.0], [1.0, 1.0, 0.0, 2.0], [0.2, 0.4, 0.6, 0.8]])
    return scene_of(Sample("a", image, coarse=coarse, target=1), model, model, source="gradcam", layer=None, seed=0)


def test_the_bound_keeps_every_cells_mass_and_the_order_of_soft(scene):
    soft = Guided("soft", usu.PRESETS["fast"])
    found, order = Spiked(soft)(scene).pixel_map, soft(scene).pixel_map
    sums = found.reshape(4, 8, 4, 8).sum((1, 3))
    np.testing.assert_allclose(sums, scene.coarse * 64, rtol=1e-9, atol=1e-7)
    inside = np.kron(scene.coarse > 0, np.ones((8, 8))) > 0
    spikes = np.zeros_like(inside)
    for row in range(4):
        for column in range(4):
            block = np.s_[8 * row : 8 * row + 8, 8 * column : 8 * column + 8]
            spikes[block].flat[order[block].argmax()] = True
    kept = inside & ~spikes
    np.testing.assert_array_equal(found[kept].argsort(kind="stable"), order[kept].argsort(kind="stable"))
    assert found[~inside].max() < found[kept].min()


def test_layercam_is_that_of_the_next_finer_layer(scene):
    finer = usu.sources.finer.finer_maps(usu.forward.engine(scene.model, 1), scene.model, scene.image, 16).maps[0]
    wanted = usu.interpolate(finer[0], (32, 32), "bilinear").numpy()
    np.testing.assert_allclose(LayerCam()(scene).pixel_map, wanted, atol=1e-7)


def test_rise_is_kept_and_is_the_same_twice(scene, tmp_path):
    rise = Rise(tmp_path, {"a": 3}, count=16)
    first = rise(scene)
    assert (tmp_path / "a.npy").exists()
    np.testing.assert_array_equal(first.pixel_map, rise(scene).pixel_map)
    np.testing.assert_array_equal(first.pixel_map, Rise(tmp_path / "other", {"a": 3}, count=16)(scene).pixel_map)
    assert not np.allclose(first.pixel_map, Rise(tmp_path / "again", {"a": 4}, count=16)(scene).pixel_map)
    assert first.evaluations == 16


def test_refinecam_is_a_product_in_the_unit_interval(scene):
    made = RefineCam(levels=2)(scene)
    assert made.evaluations == 2
    assert 0 <= made.pixel_map.min() <= made.pixel_map.max() <= 1


def test_a_verdict_for_every_claim():
    names = {name for preset, _, rivals in CLAIMS for name in (preset, *rivals)}
    rows = [
        Row(f"{n}", 0, name, metric, n / 7 + (name == "cell"), 0, 0, 0.0, 0.0)
        for n in range(8)
        for metric in {metric for _, metric, _ in CLAIMS}
        for name in sorted(names)
    ]
    lines = verdicts(Table(tuple(rows), {})).splitlines()[2:]
    assert len(lines) == FAMILY
    against = [line for line in lines if line.startswith("| cell | half-deletion | bilinear")]
    assert "+1.000" in against[0]
    assert "100%" in against[0]
    lower = [line for line in lines if line.startswith("| cell | infidelity | bilinear")]
    assert "-1.000" in lower[0], "lower is better there"
