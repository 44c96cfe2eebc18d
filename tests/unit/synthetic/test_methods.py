"""The methods are what they are called: presets, oracles, rivals, controls; and grids share their scores."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from experiments.synthetic.methods import (
    GROUPS,
    INTERPOLATIONS,
    Memory,
    OracleScores,
    OracleSegments,
    OracleShares,
    Shared,
    described,
    magnitude,
    methods,
    paper,
    studied,
)

import usu
from usu.bench import Guided, Sample
from usu.bench.scene import scene_of

SIZE = 32


class Bright(torch.nn.Module):
    """Likes what is bright, and counts how often it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        self.asked += len(batch)
        light = batch.flatten(1).sum(1)
        return torch.stack([light, -light], 1)


@pytest.fixture
def truth() -> np.ndarray:
    y, x = np.mgrid[:SIZE, :SIZE]
    return (y - 14) ** 2 + (x - 17) ** 2 <= 49


def scenes(truth: np.ndarray, model: Bright, grids: tuple[int, ...] = (4, 8)) -> list:
    image = torch.from_numpy(np.where(truth, 0.9, 0.1)).float()[None]
    coarse = {grid: truth.reshape(grid, SIZE // grid, grid, SIZE // grid).mean((1, 3)) + 0.1 for grid in grids}
    return [
        scene_of(
            Sample(f"disc@{grid}", image, target=0, truth=truth, coarse=coarse[grid]), model, model,
            source="gradcam", layer=None, seed=0,
        )
        for grid in grids
    ]  # fmt: skip


def test_every_group_has_its_methods_once() -> None:
    names = [one.name for one in methods(evaluations=40)]
    assert len(names) == len(set(names))
    ours = ["usu", "iwmr", "hybrid", "printed-usu", "printed-iwmr", "cell", "soft"]
    assert names[: len(INTERPOLATIONS) + len(ours)] == [*INTERPOLATIONS, *ours]
    wanted = {
        "oracle-segments-usu", "oracle-segments-iwmr", "oracle-scores-usu", "oracle-scores-iwmr", "bilinear-corrected",
        "guided", "guided-corrected", "segment-pooled", "usu-permuted-scores", "cell-permuted-scores", "scores-alone",
        "kernel-shap", "area-iwmr", "soft-shuffled-coarse",
    }  # fmt: skip
    assert wanted <= set(names)
    assert [one.name for one in methods(["interpolations"])] == list(INTERPOLATIONS)
    with pytest.raises(ValueError, match="`groups` must be of"):
        methods(["interpolation"])


@pytest.mark.parametrize("one", methods(GROUPS, evaluations=60), ids=lambda one: one.name)
def test_everyone_makes_a_finite_map(truth, one) -> None:
    (scene,) = scenes(truth, Bright(), (4,))
    made = one(scene)
    assert made.pixel_map.shape == (SIZE, SIZE)
    assert np.isfinite(made.pixel_map).all()


def test_printed_usu_is_the_paper_preset(truth) -> None:
    model = Bright()
    (scene,) = scenes(truth, model, (4,))
    (found,) = (one(scene) for one in methods(["redistributions"]) if one.name == "printed-usu")
    wanted = usu.upsample(scene.coarse, scene.image, model, 0, preset="paper", picture=scene.picture)
    # all cells have mass, so the pipeline excuses no segment and the shared scores are its own
    np.testing.assert_allclose(found.pixel_map, wanted.pixel_map, rtol=1e-12)
    assert found.evaluations == wanted.evaluations


def test_scores_of_the_study_say_how_much_and_not_for_whom(truth) -> None:
    (scene,) = scenes(truth, Bright(), (4,))
    both = [Memory(unsigned=True).scored(replace(scene, target=target), studied("usu")) for target in (0, 1)]
    # the second class's score is minus the first's: deleting a part moves both as far
    np.testing.assert_allclose(both[0].field, both[1].field, atol=1e-6)
    signed = [Memory().scored(replace(scene, target=target), studied("usu")) for target in (0, 1)]
    np.testing.assert_allclose(signed[0].field, 1 - signed[1].field, atol=1e-6)


def test_usu_is_the_operator_with_the_scores_of_the_study(truth) -> None:
    model = Bright()
    (scene,) = scenes(truth, model, (4,))
    (found,) = (one(scene) for one in methods(["redistributions"]) if one.name == "usu")
    assert found.evaluations == model.asked  # the target's own pass is counted, too
    target = magnitude(model, scene.image, 0)
    assert float(target(model(scene.image[None]))) == 0
    wanted = usu.upsample(scene.coarse, scene.image, model, target, preset=studied("usu"), picture=scene.picture)
    np.testing.assert_allclose(found.pixel_map, wanted.pixel_map, rtol=1e-12)


def test_grids_and_budgets_share_scores_and_pictures_do_not(truth) -> None:
    model, memory = Bright(), Memory()
    four, eight = scenes(truth, model)
    fixed, soft = (Shared(Guided(name, paper(name)), memory) for name in ("usu", "iwmr"))
    first = fixed(four)
    asked = model.asked
    assert asked == first.evaluations > 0
    assert soft(four).evaluations == first.evaluations
    assert not np.allclose(fixed(eight).pixel_map, first.pixel_map)
    assert model.asked == asked
    fixed(replace(four, name="another@4"))
    assert model.asked == 2 * asked


def test_a_fill_of_another_kind_is_scored_anew(truth) -> None:
    model, memory = Bright(), Memory()
    (scene,) = scenes(truth, model, (4,))
    one, other = (memory.scored(scene, replace(paper("usu"), fill=fill, depth=0)) for fill in ("blur", "mean"))
    assert model.asked == one.evaluations + other.evaluations
    assert not np.allclose(one.scored.fields[0], other.scored.fields[0])


def test_the_oracle_of_segments_asks_the_model_which_side_matters(truth) -> None:
    for seen, inside in ((truth, True), (~truth, False)):
        asked = []
        mask = torch.from_numpy(seen)

        def model(batch: torch.Tensor, asked=asked, mask=mask) -> torch.Tensor:
            asked.append(len(batch))
            return (batch[:, 0] * mask).sum((1, 2))[:, None].repeat(1, 2)

        (scene,) = scenes(truth, model, (4,))
        made = OracleSegments("usu")(scene)
        assert made.evaluations == sum(asked) == 4
        # with the right segments the wrong side wins, if that is where the model looks
        assert (made.pixel_map[truth].mean() > made.pixel_map[~truth].mean()) is np.bool_(inside)


def test_the_oracle_of_shares_has_the_pipelines_segments_and_the_truths_scores(truth) -> None:
    model, memory = Bright(), Memory(unsigned=True)
    (scene,) = scenes(truth, model, (4,))
    pipeline = Shared(Guided("usu", studied("usu")), memory)(scene)
    asked = model.asked
    made = OracleShares("usu", memory)(scene)
    assert model.asked == asked  # the segments are known already
    assert made.evaluations == pipeline.evaluations
    segments = memory.scored(scene, studied("usu")).scored.segments[-1]
    inside, outside = truth & (segments == segments[14, 17]), ~truth & (segments == segments[0, 0])
    assert made.pixel_map[inside].min() > made.pixel_map[outside].max()
    # a truth that is one of the segments is found without any loss
    own = replace(scene, truth=segments == segments[14, 17], coarse=np.ones((1, 1)))
    assert usu.metrics.iou(OracleShares("usu", memory)(own).pixel_map, own.truth) == 1


def test_what_decides_a_map_is_described() -> None:
    found = {one.name: described(one) for one in methods(evaluations=60)}
    assert found["usu"]["parts"] == 10
    assert found["usu"]["unsigned"] is True
    assert found["usu-permuted-scores"] == found["usu"] | {"scores": "permuted"}
    assert found["oracle-segments-usu"] != found["oracle-segments-iwmr"]
    assert found["cell"]["evaluations"] == 60


def test_presets_share_their_scores(truth) -> None:
    model = Bright()
    (scene,) = scenes(truth, model, (4,))
    by_name = {one.name: one for one in methods(evaluations=60)}
    by_name["cell"](scene)
    asked = model.asked
    for name in ("soft", "scores-alone", "area-iwmr", "cell-permuted-scores"):
        by_name[name](scene)
    assert model.asked == asked


def test_the_oracle_of_scores_is_the_truth_handed_in(truth) -> None:
    model = Bright()
    (scene,) = scenes(truth, model, (4,))
    made = OracleScores("iwmr")(scene)
    assert made.evaluations == model.asked == 0
    assert usu.metrics.iou(made.pixel_map, truth) == 1
    assert usu.metrics.mass_error(OracleScores("usu")(scene).pixel_map, scene.coarse) < 1e-12
