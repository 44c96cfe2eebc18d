"""The rivals and verdicts of the search for presets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from experiments.presets.candidates import Based, Fitted, Mixed, Perplexed, temperature_of
from experiments.presets.rivals import LayerCam, RefineCam, Rise, Spiked
from experiments.presets.search import GROUPS
from experiments.presets.verdicts import CLAIMS, FAMILY, verdicts
from experiments.renewed import renewed

import usu
from tests.small_nets import Tower
from usu.bench import Sample, Table
from usu.bench.contenders import Guided, Made
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
    found = {(one.preset, one.metric, one.rival): one for one in verdicts(Table(tuple(rows), {}))}
    assert len(found) == FAMILY
    assert found["cell", "half-deletion", "bilinear"].shift == pytest.approx(1)
    assert found["cell", "infidelity", "bilinear"].shift == pytest.approx(-1), "lower is better there"
    assert found["cell", "half-deletion", "bilinear"].p < found["cell", "infidelity", "bilinear"].p == 1


def test_a_control_variate_changes_nothing_for_a_model_that_is_its_own_gradient(scene):
    weights = torch.rand(3, 32, 32, generator=torch.Generator().manual_seed(2)).double()

    def line(batch):
        return (batch.double() * weights).sum((1, 2, 3))[:, None].repeat(1, 2)

    scene = replace(scene, model=line, forward=line)
    settings = replace(usu.PRESETS["cell"], parts=9, evaluations=40)
    plain, controlled = (Fitted("a", settings, strength=0.0, controlled=on)(scene) for on in (False, True))
    np.testing.assert_allclose(controlled.pixel_map, plain.pixel_map, rtol=1e-6)
    assert controlled.evaluations == plain.evaluations == 40


def test_a_control_variate_leaves_a_noisy_fit_little_to_do(scene):
    weights = torch.rand(3, 32, 32, generator=torch.Generator().manual_seed(2)).double()
    asked = []

    def line(batch):
        asked.append(len(batch))
        return (batch.double() * weights).sum((1, 2, 3))[:, None].repeat(1, 2)

    scene = replace(scene, model=line, forward=line)
    # fewer groups than segments: no fit can know, but the gradient does
    few = replace(usu.PRESETS["cell"], parts=60, per_segment=0, evaluations=20)
    exact = replace(few, evaluations=600)
    wanted = Fitted("a", exact, strength=0.0)(scene).pixel_map
    spent = sum(asked)
    controlled = Fitted("a", few, controlled=True)(scene)
    # the evaluation that hears the layers is not asked of a plain function, and the slope is one pass
    assert sum(asked) - spent == controlled.evaluations - 1
    np.testing.assert_allclose(controlled.pixel_map, wanted, rtol=1e-5)
    assert not np.allclose(Fitted("a", few)(scene).pixel_map, wanted, rtol=0.05)


def test_perplexity_finds_the_temperature_that_was_asked_for():
    field = torch.rand(40, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = temperature_of(field, 0.4)
    weights = (field / found).flatten().softmax(0)
    assert float((-(weights * weights.log()).sum()).exp()) == pytest.approx(0.4 * 1600, rel=1e-6)
    assert temperature_of(field, 0.8) > found


def test_mixed_scores_share_the_budget_and_bases_are_not_the_preset(scene):
    settings = replace(usu.PRESETS["cell"], parts=9, evaluations=60)
    plain = Guided("a", settings)(scene).pixel_map
    mixed = Mixed("b", settings, fills=("blur", "noise"), parts=(9,))(scene)
    assert mixed.evaluations <= 60
    for other in (mixed, Based("c", settings), Perplexed("e", settings)):
        found = other if isinstance(other, Made) else other(scene)
        assert not np.allclose(found.pixel_map, plain)
        # whatever was changed, cells keep their mass
        np.testing.assert_allclose(
            found.pixel_map.reshape(4, 8, 4, 8).sum((1, 3)), scene.coarse * 64, rtol=1e-9, atol=1e-7
        )


def test_the_candidates_have_names_of_their_own():
    names = [one if isinstance(one, str) else getattr(one, "name", None) or one[0] for one in GROUPS["candidates"]]
    assert len(set(names)) == len(names)


def test_what_was_measured_again_takes_the_place_of_what_was_there(tmp_path: Path) -> None:
    """Column by column, where the keys are the same; the order stays, and what is new comes last."""
    committed, fresh = tmp_path / "committed.csv", tmp_path / "fresh.csv"
    committed.write_text("picture,map,a,b\n1,cell,1,2\n1,soft,3,4\n2,cell,5,6\n")
    fresh.write_text("picture,map,b,c\n2,cell,60,7\n1,cell,20,8\n3,cell,9,9\n")
    renewed(committed, fresh, ("picture", "map"))
    assert committed.read_text() == ("picture,map,a,b,c\n1,cell,1,20,8\n1,soft,3,4,\n2,cell,5,60,7\n3,cell,,9,9\n")
