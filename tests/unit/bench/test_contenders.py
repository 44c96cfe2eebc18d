"""Presets and controls: what each keeps, and what each takes away."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import usu
from usu.bench import CONTROLS, GUIDED, PLAIN, Guided, Sample, ScoresAlone, contenders
from usu.bench.scene import Remembered, scene_of
from usu.metrics.catalogue import Memory
from usu.segment import Tiles


def network() -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(
        nn.Conv2d(3, 6, 5, 2), nn.ReLU(), nn.Conv2d(6, 8, 3, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(8, 4),
    )  # fmt: skip


MODEL = network().eval()
PICTURE = torch.rand(3, 40, 40, generator=torch.Generator().manual_seed(5))


@pytest.fixture
def scene():
    return scene_of(Sample("a", PICTURE), MODEL, MODEL, source="gradcam", layer="2", seed=0)


@pytest.mark.parametrize("name", usu.PRESETS)
def test_a_preset_is_what_upsample_does(scene, name):
    (rival,) = contenders([name], evaluations=120)
    made = rival(scene)
    budget = None if name == "fast" else 120
    wanted = usu.upsample(
        scene.coarse, scene.image, MODEL, scene.target, preset=name, evaluations=budget, picture=scene.picture,
        finer=scene.heard,
    )  # fmt: skip
    np.testing.assert_array_equal(made.pixel_map, wanted.pixel_map)
    assert made.evaluations == wanted.evaluations


@pytest.mark.parametrize("rival", [*PLAIN, *GUIDED, *CONTROLS], ids=lambda one: one.name)
def test_everyone_makes_a_map_of_the_size_of_the_picture(scene, rival):
    made = contenders([rival.name], evaluations=80)[0](scene)
    assert made.pixel_map.shape == (40, 40)
    assert np.isfinite(made.pixel_map).all()
    assert made.seconds > 0
    assert made.evaluations <= 80


def test_controls_take_exactly_one_ingredient_away(scene):
    settings = replace(usu.PRESETS["cell"], evaluations=60, parts=12, segmenter=Tiles(), base=None, max_gain=None)
    real = Guided("real", settings)(scene).pixel_map
    assert scene.coarse.shape == (4, 4)
    np.testing.assert_allclose(real.reshape(4, 10, 4, 10).sum((1, 3)), scene.coarse * 100, atol=1e-9)
    constant = Guided("constant", settings, scores="constant")(scene)
    np.testing.assert_allclose(constant.pixel_map, usu.interpolate(scene.coarse, (40, 40), "nearest"), atol=1e-12)
    assert constant.evaluations == 0


def test_shuffled_and_uniform_cells_keep_the_total(scene):
    for kind in ("shuffled", "uniform"):
        made = Guided(kind, replace(usu.PRESETS["cell"], evaluations=60, parts=12), coarse=kind)(scene)
        total = usu.interpolate(scene.coarse, (40, 40), "nearest").sum()
        assert made.pixel_map.sum() == pytest.approx(total, rel=0.2)
        assert made.evaluations == 60


def test_every_picture_is_shuffled_in_its_own_way(scene):
    """One permutation for all would be a bias that no number of pictures averages out."""
    shuffled = [Guided("s", usu.PRESETS["cell"], coarse="shuffled")._coarse(replace(scene, seed=n)) for n in (1, 1, 2)]
    np.testing.assert_array_equal(shuffled[0], shuffled[1])
    assert (shuffled[0] != shuffled[2]).any()
    for one in shuffled:
        np.testing.assert_array_equal(np.sort(one, axis=None), np.sort(scene.coarse, axis=None))


def test_permuted_scores_are_the_same_scores_elsewhere(scene):
    settings = replace(usu.PRESETS["soft"], evaluations=60, parts=16, segmenter=Tiles())
    found = scene.scored(settings)
    plain = replace(settings, edges="segments")
    permuted = Guided("p", plain, scores="permuted")._field(scene, found)
    real = found.scored.fields[-1][0].numpy()
    assert sorted(np.unique(permuted.round(9))) == sorted(np.unique(real.round(9)))
    assert (permuted != real).any()
    filtered = Guided("p", settings, scores="permuted")._field(scene, found)  # as the real ones are
    assert len(np.unique(filtered)) > len(np.unique(permuted))


def test_scores_alone_know_nothing_of_the_coarse_map(scene):
    settings = replace(usu.PRESETS["soft"], evaluations=60, parts=16)
    one = ScoresAlone("s", settings)(scene)
    other = scene_of(
        Sample("a", PICTURE, coarse=np.ones((3, 3)), target=scene.target), MODEL, MODEL, source="gradcam", layer=None,
        seed=0,
    )  # fmt: skip
    np.testing.assert_array_equal(one.pixel_map, ScoresAlone("s", settings)(other).pixel_map)


@pytest.mark.parametrize("order", [("soft", "scores-alone"), ("scores-alone", "soft")])
def test_an_empty_coarse_map_leaves_scores_alone_what_they_are(scene, order):
    """Nobody else asks the model there, whoever comes first."""
    wanted = contenders(["scores-alone"], evaluations=40)[0](scene)
    empty = replace(scene, coarse=np.zeros_like(scene.coarse), memory=Memory())
    made = {rival.name: rival(empty) for rival in contenders(order, evaluations=40)}
    np.testing.assert_array_equal(made["scores-alone"].pixel_map, wanted.pixel_map)
    assert len(np.unique(wanted.pixel_map)) > 1
    assert (made["scores-alone"].evaluations, made["soft"].evaluations) == (40, 0)
    assert not made["soft"].pixel_map.any()


def test_scores_are_made_once_for_operators_that_share_them(scene):
    seen = []
    model = Remembered(lambda batch: (seen.append(len(batch)), MODEL(batch))[1])
    counting = replace(scene, scorer=model, memory=Memory())
    for rival in contenders(["soft", "scores-alone", "soft-permuted-scores", "soft-uniform-coarse"], evaluations=40):
        assert rival(counting).evaluations == 40
    # with what the coarse map lets expect and without: other scores, the same passes
    assert sum(seen) == 40


def test_equal_budgets_and_another_fill():
    made = contenders(["controls", "presets"], evaluations=77)
    assert {one.settings.evaluations for one in made if one.settings.scoring != "none"} == {77}
    assert contenders(["cell:noise"])[0].settings.fill == "noise"
    (control,) = contenders(["scores-alone:mean"])
    assert (control.name, control.settings.fill, type(control)) == ("scores-alone:mean", "mean", ScoresAlone)


NO_BUDGETS = ("cell@", "cell@0", "cell@-3", "cell@50:noise", "fast@50", "bilinear@50", "presets@50")


def test_budgets_of_their_own(scene):
    made = contenders(["cell", "cell@50", "soft:noise@60", "scores-alone@70"], evaluations=80)
    assert [one.settings.evaluations for one in made] == [80, 50, 60, 70]
    assert [one.name for one in made] == ["cell", "cell@50", "soft:noise@60", "scores-alone@70"]
    assert made[1](scene).evaluations == 50
    assert made[2].settings.fill == "noise"
    with pytest.raises(ValueError, match="`evaluations` must be a whole number of at least 1; got 0"):
        contenders("cell", evaluations=0)


def test_both_ingredients_replaced(scene):
    both = contenders("crossed", evaluations=60)
    assert len(both) == len({one.name for one in both}) == 2 * 2 * 3
    made = {one.name: one(scene).pixel_map for one in both}
    single = {one.name: one(scene).pixel_map for one in contenders("controls", evaluations=60)}
    for preset in ("cell", "soft"):
        crossed = made[f"{preset}-shuffled-coarse-permuted-scores"]
        for other in (f"{preset}-shuffled-coarse", f"{preset}-permuted-scores"):
            assert not np.allclose(crossed, single[other])
        assert crossed.sum() == pytest.approx(scene.coarse.sum() / scene.coarse.size * PICTURE[0].numel())


@pytest.mark.parametrize(
    ("given", "error", "sentence"),
    [
        (["bilinaer"], ValueError, "got 'bilinaer'. Choose from nearest"),
        (["cell:black"], ValueError, "got 'cell:black'"),
        *(([name], ValueError, f"cell:noise@50; got '{name}'") for name in NO_BUDGETS),
        (3, TypeError, "got int"),
        ([], ValueError, "must name at least one"),
        ([3], TypeError, "got int"),
        ([usu.upsamplers.by_name("usu")], TypeError, "must not be driven by a score field"),
        ([("a", usu.PRESETS["cell"]), ("a", usu.PRESETS["soft"])], ValueError, "two called 'a'"),
    ],
)
def test_bad_upsamplers_get_one_sentence(given, error, sentence):
    with pytest.raises(error, match=sentence):
        contenders(given)


def test_own_upsamplers_and_settings():
    class Mine:
        name, guarantees = "mine", frozenset()

        def __call__(self, coarse, picture):
            return usu.interpolate(coarse, picture.shape[:2], "nearest")

    made = contenders([Mine(), ("sharp", replace(usu.PRESETS["cell"], temperature=0.05))])
    assert [one.name for one in made] == ["mine", "sharp"]
