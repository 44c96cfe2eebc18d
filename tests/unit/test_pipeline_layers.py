"""The pipeline with a base measure from the model's own layers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import usu
from tests.chosen import PLAIN, chosen
from tests.small_nets import Tokens, Tower, counted, seeded
from usu import segment
from usu.errors import UsuWarning
from usu.forward import engine
from usu.operator.interpolate import follow_picture, layered
from usu.pipeline import explain, upsample
from usu.settings import PRESETS
from usu.sources.finer import finer_maps
from usu.sources.layers import LEVELS

DRAW = torch.Generator().manual_seed(6)
IMAGE = torch.rand(3, 32, 32, generator=DRAW)
COARSE = torch.rand(4, 4, generator=DRAW, dtype=torch.float64) + 0.1
TARGETS = [2, None, [0, 1, 4], lambda output: output[:, 3], lambda output: output[:, [3, 1]]]


@pytest.fixture
def tower() -> Tower:
    return seeded(Tower)


def small(name: str = "cell", **changes: object) -> usu.Settings:
    plain = {} if name == "fast" else PLAIN
    return chosen(name, **{**plain, "segmenter": segment.Tiles(), "parts": 25, **changes})


def heard(net: nn.Module, target: object, cells: int = 16, picture: Tensor = IMAGE) -> tuple[Tensor, ...]:
    return finer_maps(engine(net, target), net, picture, cells).maps


# ---------------------------------------------------------------- how often the model is asked


@pytest.mark.parametrize("link", ["log_odds", "probability"])
def test_layers_that_are_handed_in_give_the_scores_of_those_that_are_heard(tower, link):
    """The layers are asked about a logit, the segments about what the settings say."""
    settings, maps = small("cell", link=link), [level[0] for level in heard(tower, 2)]
    own = upsample(COARSE, IMAGE, tower, 2, preset=settings, evaluations=31)
    handed = upsample(COARSE, IMAGE, tower, 2, preset=settings, evaluations=30, finer=maps)
    assert torch.equal(own.scores, handed.scores)


@pytest.mark.parametrize("preset", ["cell", "soft"])
@pytest.mark.parametrize("target", TARGETS, ids=["one", "top", "several", "callable", "callables"])
@pytest.mark.parametrize("evaluations", [10, 37])
def test_the_pass_that_hears_the_layers_is_one_of_the_budget(tower, preset, target, evaluations):
    told: list[tuple[int, int]] = []
    with counted(tower) as seen:
        result = upsample(
            COARSE, IMAGE, tower, target, preset=small(preset), evaluations=evaluations,
            progress=lambda done, total: told.append((done, total)),
        )  # fmt: skip
    assert sum(seen) == result.evaluations == evaluations
    assert told[-1] == (evaluations - 1, evaluations - 1), "the others are groups"
    assert result.stop_reason is usu.StopReason.EVALUATIONS


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("target", [2, None])
@pytest.mark.parametrize("fit", ["ridge", "kernel_shap"])
def test_also_through_all_depths(tower, depth, target, fit):
    settings = small(parts=9, depth=depth, fit=fit, evaluations=31, threshold=0.0, tolerance=0.0)
    with counted(tower) as seen:
        result = upsample(COARSE, IMAGE, tower, target, preset=settings)
    assert len(result.segments) == depth + 1
    assert 31 - depth <= sum(seen) == result.evaluations <= 31


@pytest.mark.parametrize("scoring", ["delete", "gradient", "none"])
@pytest.mark.parametrize("target", [2, None, [0, 3]])
def test_other_scores_count_it_as_well(tower, scoring, target):
    settings = small(scoring=scoring, evaluations=None, parts=9)
    with counted(tower) as seen:
        result = upsample(COARSE, IMAGE, tower, target, preset=settings)
    expected = {"delete": 1 + 1 + 9, "gradient": 1 + 1, "none": 1}[scoring]
    assert sum(seen) == result.evaluations == expected
    top = int(tower(IMAGE[None]).argmax())
    assert result.provenance["target"] == (top if target is None else target)


@pytest.mark.parametrize(
    ("change", "least"),
    [({}, 3), ({"depth": 2}, 7), ({"fit": "kernel_shap"}, 5), ({"scoring": "delete", "parts": 9}, 11),
     ({"scoring": "gradient"}, 2)],
)  # fmt: skip
@pytest.mark.parametrize("target", [1, None])
def test_too_few_evaluations_are_said_in_the_callers_number(tower, change, least, target):
    settings = small(**change)
    with pytest.raises(ValueError, match=f"^`evaluations` must be at least {least}[ ,].*; got {least - 1}. "):
        upsample(COARSE, IMAGE, tower, target, preset=settings, evaluations=least - 1)
    with counted(tower) as seen:
        assert upsample(COARSE, IMAGE, tower, target, preset=settings, evaluations=least).evaluations <= least
    assert sum(seen) <= least


@pytest.mark.parametrize("preset", ["cell", "soft", "fast"])
def test_a_map_of_zeros_is_not_worth_a_pass(tower, preset):
    with counted(tower) as seen, pytest.warns(UsuWarning):
        result = upsample(torch.zeros(4, 4), IMAGE, tower, [1, 2], preset=preset)
    assert (sum(seen), result.evaluations) == (0, 0)
    assert result.pixel_map.shape == (2, 32, 32)
    assert not result.pixel_map.any()


# ---------------------------------------------------------------- the result


@pytest.mark.parametrize("preset", ["cell", "soft"])
@pytest.mark.parametrize("sign", [1.0, -1.0, 0.0])
@pytest.mark.parametrize("target", TARGETS, ids=["one", "top", "several", "callable", "callables"])
def test_the_map_is_the_operator_on_filtered_scores_with_the_layers_as_base(tower, preset, sign, target):
    coarse = sign * COARSE if sign else COARSE - COARSE.mean()
    settings = small(preset, evaluations=40)
    picture = torch.rand(32, 32, 3, generator=torch.Generator().manual_seed(9)).numpy()
    result = upsample(coarse, IMAGE, tower, target, preset=settings, picture=picture)
    field = follow_picture(result.depth_scores[-1], picture)
    scores = field if result.scores.ndim == 3 else field[0]
    assert torch.equal(result.scores, scores)
    maps = heard(tower, target)
    maps = maps if result.scores.ndim == 3 else tuple(level[0] for level in maps)
    base = layered(usu.interpolate(coarse, (32, 32), "bilinear"), maps, 2, settings.of_coarse)
    base = base if preset == "soft" else base.abs()
    expected = usu.redistribute(
        coarse, scores, temperature=settings.temperature_of(16), base=base, budget=settings.budget,
        max_gain=settings.max_gain,
    )  # fmt: skip
    assert torch.allclose(result.pixel_map, expected, rtol=1e-9, atol=1e-12)
    bilinear = upsample(coarse, IMAGE, tower, target, preset=replace(settings, base="bilinear"), picture=picture)
    if sign >= 0:  # where the map is against the target the finer ones have no say in it
        assert not torch.allclose(result.pixel_map, bilinear.pixel_map, rtol=0.1)


def test_scores_with_the_borders_of_segments(tower):
    result = upsample(COARSE, IMAGE, tower, 1, preset=small(edges="segments", evaluations=40))
    assert torch.equal(result.scores, result.depth_scores[-1][0])


def test_a_batch_is_its_pictures_one_by_one(tower):
    images = torch.stack([IMAGE, IMAGE.flip(2)])
    coarse = torch.stack([COARSE, COARSE.T])
    settings = small(evaluations=20)
    batch = upsample(coarse, images, tower, [1, 3], preset=settings)
    for i, target in enumerate((1, 3)):
        alone = upsample(coarse[i], images[i], tower, target, preset=settings)
        assert torch.allclose(batch.pixel_map[i], alone.pixel_map, rtol=1e-9)
    assert batch.evaluations == 40


@pytest.mark.parametrize("preset", ["cell", "soft", "fast"])
def test_one_map_for_several_targets_and_several_for_one(tower, preset):
    settings = small(preset, **({} if preset == "fast" else {"evaluations": 30}))
    both = upsample(COARSE, IMAGE, tower, [1, 3], preset=settings).pixel_map
    assert both.shape == (2, 32, 32)
    for row, target in zip(both, (1, 3), strict=True):
        alone = upsample(COARSE, IMAGE, tower, target, preset=settings).pixel_map
        assert torch.allclose(row, alone, rtol=1e-4, atol=1e-6)
    maps = torch.stack([COARSE, COARSE.T])
    rows = upsample(maps, IMAGE, tower, 1, preset=settings).pixel_map
    for row, coarse in zip(rows, maps, strict=True):
        alone = upsample(coarse, IMAGE, tower, 1, preset=settings).pixel_map
        assert torch.allclose(row, alone, rtol=1e-9)


@pytest.mark.parametrize("lead", [(), (2,)])
def test_cells_of_any_form_keep_their_mass(tower, lead):
    labels = segment.Slic()(IMAGE.permute(1, 2, 0).numpy().astype(np.float64), 12)
    count = int(labels.max()) + 1
    coarse = torch.rand(*lead, count, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    coarse[..., 3] = 0
    target = 1 if not lead else [1, 2]
    result = upsample(coarse, IMAGE, tower, target, preset=small(evaluations=30), cells=labels)
    assert result.evaluations == 30
    for k in range(count):
        inside = torch.from_numpy(labels == k)
        wanted = coarse[..., k] * int(inside.sum())
        assert torch.allclose(result.pixel_map[..., inside].sum(-1), wanted, rtol=1e-12, atol=1e-11)
    flat = upsample(coarse, IMAGE, tower, target, preset=small(evaluations=29, base=None), cells=labels)
    assert torch.equal(flat.scores, result.scores)
    assert not torch.allclose(result.pixel_map, flat.pixel_map, rtol=0.1), "the layers had no say"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_the_coarse_maps_dtype_comes_back(tower, dtype):
    coarse = COARSE.to(dtype)
    coarse[1, 1] = 0
    for preset in ("cell", "soft", "fast"):
        settings = small(preset, **({} if preset == "fast" else {"evaluations": 20}))
        result = upsample(coarse, IMAGE, tower, 1, preset=settings)
        assert result.pixel_map.dtype == dtype
        assert result.mass_error < (1e-6 if dtype == torch.float32 else 0.01)
        assert torch.isfinite(result.pixel_map).all()


# ---------------------------------------------------------------- models without finer layers


@pytest.mark.parametrize("preset", ["cell", "soft"])
@pytest.mark.parametrize("target", [2, None, [0, 4]])
def test_tokens_of_one_grid_leave_the_coarse_map_alone_for_one_evaluation(preset, target):
    net = seeded(Tokens)
    with counted(net) as seen:
        result = upsample(COARSE, IMAGE, net, target, preset=small(preset, evaluations=30))
    assert sum(seen) == result.evaluations == 30
    named = int(net(IMAGE[None]).argmax()) if target is None else target
    plain = upsample(COARSE, IMAGE, net, named, preset=small(preset, evaluations=29), finer=[])
    assert torch.equal(result.pixel_map, plain.pixel_map)


@pytest.mark.parametrize("preset", ["cell", "soft"])
def test_a_callable_leaves_the_coarse_map_alone_for_nothing(tower, preset):
    with counted(tower) as seen:
        result = upsample(COARSE, IMAGE, lambda batch: tower(batch), 1, preset=small(preset, evaluations=30))
    assert sum(seen) == result.evaluations == 30
    plain = upsample(COARSE, IMAGE, tower, 1, preset=small(preset, evaluations=30), finer=[])
    assert torch.allclose(result.pixel_map, plain.pixel_map, rtol=1e-4, atol=1e-6)


def test_weights_made_in_inference_mode_let_no_gradient_pass(tower):
    with torch.inference_mode():
        frozen = seeded(Tower)
    result = upsample(COARSE, IMAGE, frozen, 1, preset=small(evaluations=30))
    plain = upsample(COARSE, IMAGE, tower, 1, preset=small(evaluations=30), finer=[])
    assert torch.allclose(result.pixel_map, plain.pixel_map, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("target", [1, None])
def test_without_scores_a_model_without_finer_layers_is_refused(tower, target):
    refusal = r"^`model` must be an nn\.Module with layers finer than `coarse`"
    for model in (seeded(Tokens), lambda batch: tower(batch)):
        with pytest.raises(ValueError, match=refusal) as caught:
            upsample(COARSE, IMAGE, model, target, preset="fast")
        assert "preset='cell' or 'soft'" in str(caught.value)
        assert "`finer`" in str(caught.value)
    with pytest.raises(ValueError, match=refusal):
        explain(seeded(Tokens), IMAGE, target, preset="fast")
    with pytest.raises(ValueError, match=refusal):
        upsample(COARSE, IMAGE, tower, target, preset="fast", finer=[])
    with pytest.raises(ValueError, match=refusal):
        upsample(torch.ones(32, 32), IMAGE, tower, target, preset="fast")  # no layer is finer than the picture


def test_fast_follows_the_middle_block_of_a_transformer():
    net = seeded(lambda: Tokens(6))
    middle = usu.layercam(net, IMAGE[None], 1, layer="blocks.2").values[0]
    found = explain(net, IMAGE, 1, preset="fast")
    by_hand = upsample(found.coarse, IMAGE, net, 1, preset="fast", picture=found.picture, finer=[middle])
    np.testing.assert_allclose(found.pixel_map, by_hand.pixel_map, rtol=1e-6)
    plain = upsample(found.coarse, IMAGE, net, 1, preset="fast", picture=found.picture, finer=[torch.ones(4, 4)])
    assert np.corrcoef(np.ravel(found.pixel_map), np.ravel(plain.pixel_map))[0, 1] < 0.99


# ---------------------------------------------------------------- maps that are handed in


@pytest.mark.parametrize("preset", ["cell", "soft", "fast"])
def test_maps_that_are_handed_in_cost_nothing(tower, preset):
    settings = small(preset, **({} if preset == "fast" else {"evaluations": 30}))
    for target, lead in ((1, 0), ([1, 3], slice(None))):
        coarse = COARSE if lead == 0 else COARSE.expand(2, -1, -1)
        maps = [level[lead] for level in heard(tower, target)]
        with counted(tower) as seen:
            result = upsample(coarse, IMAGE, tower, target, preset=settings, finer=maps)
        assert sum(seen) == result.evaluations == (0 if preset == "fast" else 30)
        one_more = settings if preset == "fast" else replace(settings, evaluations=31)
        asked = upsample(coarse, IMAGE, tower, target, preset=one_more)
        assert torch.allclose(result.pixel_map, asked.pixel_map, rtol=1e-9, atol=1e-12)
        as_arrays = upsample(coarse.numpy(), IMAGE, tower, target, preset=settings, finer=[one.numpy() for one in maps])
        np.testing.assert_allclose(as_arrays.pixel_map, result.pixel_map.numpy(), rtol=1e-9, atol=1e-12)


def test_they_serve_a_callable_and_every_target(tower):
    maps = [level[0] for level in heard(tower, 1)]
    model = lambda batch: tower(batch)  # noqa: E731
    alone = upsample(COARSE, IMAGE, model, 1, preset="fast", finer=maps)
    assert torch.allclose(alone.pixel_map, upsample(COARSE, IMAGE, tower, 1, preset="fast").pixel_map, rtol=1e-9)
    both = upsample(COARSE, IMAGE, model, [1, 3], preset="fast", finer=maps)
    assert torch.equal(both.pixel_map, alone.pixel_map.expand(2, -1, -1))
    assert both.provenance["target"] == [1, 3]
    top = upsample(COARSE, IMAGE, model, None, preset="fast", finer=maps)
    assert (top.evaluations, top.provenance["target"]) == (1, int(tower(IMAGE[None]).argmax()))


def test_a_batch_has_its_own(tower):
    images, coarse = torch.stack([IMAGE, IMAGE.flip(2)]), COARSE.expand(2, -1, -1)
    each = [heard(tower, 1, picture=image) for image in images]
    maps = [torch.cat(level) for level in zip(*each, strict=True)]
    given = upsample(coarse, images, tower, 1, preset="fast", finer=maps)
    assert torch.allclose(given.pixel_map, upsample(coarse, images, tower, 1, preset="fast").pixel_map, rtol=1e-9)
    assert given.evaluations == 0


# ---------------------------------------------------------------- fast, and explain


@pytest.mark.parametrize("target", [2, None, lambda output: output[:, 1]])
@pytest.mark.parametrize("source", ["gradcam", "hirescam", "layercam"])
def test_explain_fast_is_one_pass_in_all(tower, target, source):
    with counted(tower) as seen:
        result = explain(tower, IMAGE, target, preset="fast", source=source)
    assert seen == [1]
    assert result.coarse.any()
    assert (result.source.evaluations, result.upsampled.evaluations) == (1, 0)
    assert [level.shape for level in result.source.finer] == [(1, 8, 8), (1, 16, 16)][:LEVELS]
    with counted(tower) as seen:
        again = upsample(result.coarse, IMAGE, tower, target, preset="fast")
    assert seen == [1]
    np.testing.assert_allclose(result.pixel_map, again.pixel_map, rtol=1e-6, atol=1e-6 * result.pixel_map.max())
    assert result.pixel_map.sum() == pytest.approx(result.coarse.mean() * 1024, rel=1e-12)
    base = layered(usu.interpolate(torch.from_numpy(result.coarse), (32, 32), "bilinear"), result.source.finer)[0]
    by_hand = base / base.sum() * result.coarse.mean() * 1024
    assert PRESETS["fast"].budget == usu.SoftPrior(1.0, 0.0), "or the next line is not all there is to it"
    np.testing.assert_allclose(result.pixel_map, by_hand.numpy(), rtol=1e-6)


@pytest.mark.parametrize("preset", ["cell", "soft"])
def test_explain_hears_them_in_the_sources_own_pass(tower, preset):
    with counted(tower) as seen:
        result = explain(tower, IMAGE, 2, preset=chosen(preset, **PLAIN), evaluations=20)
    assert (sum(seen), result.upsampled.evaluations) == (21, 20)
    plain = explain(tower, IMAGE, 2, preset=chosen(preset, base="bilinear", **PLAIN), evaluations=20)
    assert plain.source.finer == ()
    np.testing.assert_array_equal(plain.upsampled.scores, result.upsampled.scores)
    assert not np.allclose(plain.pixel_map, result.pixel_map, rtol=0.1)


def test_a_source_that_hears_none_leaves_it_to_the_budget(tower):
    with counted(tower) as seen:
        result = explain(tower, IMAGE, 2, source=COARSE, evaluations=20)
    assert sum(seen) == result.upsampled.evaluations == 20
    asked = upsample(COARSE, IMAGE, tower, 2, preset="soft", evaluations=20)
    np.testing.assert_array_equal(result.pixel_map, asked.pixel_map.numpy())


@pytest.mark.parametrize("coarse", [COARSE, -COARSE, COARSE - COARSE.mean()], ids=["for", "against", "both"])
@pytest.mark.parametrize("preset", ["soft", "fast"])
def test_the_total_of_each_sign_is_kept_and_cells_are_not(tower, coarse, preset):
    settings = small(preset, **({} if preset == "fast" else {"evaluations": 40}))
    result = upsample(coarse, IMAGE, tower, 1, preset=settings)
    assert float(result.pixel_map.sum()) == pytest.approx(64 * float(coarse.sum()), abs=1e-10)
    for part in (1, -1):
        if not (part * coarse > 0).any():
            assert not (part * result.pixel_map > 0).any()
    cells = result.pixel_map.reshape(4, 8, 4, 8).sum((1, 3))
    assert (cells - 64 * coarse).abs().max() > 1
    assert result.mass_error < 1e-12


def test_fast_has_no_scores_and_one_segment(tower):
    result = upsample(COARSE, IMAGE, tower, 1, preset="fast")
    assert result.segments[0].max() == 0
    assert len(result.scores.unique()) == 1
    cold = upsample(COARSE, IMAGE, tower, 1, preset=replace(PRESETS["fast"], temperature=0.01))
    assert torch.allclose(result.pixel_map, cold.pixel_map, rtol=1e-9)


def test_a_compiled_model_is_the_model(tower):
    compiled = torch.compile(tower, backend="eager")
    for preset in ("cell", "fast"):
        settings = small(preset, **({} if preset == "fast" else {"evaluations": 20}))
        one, other = (upsample(COARSE, IMAGE, net, 1, preset=settings) for net in (tower, compiled))
        assert one.evaluations == other.evaluations
        assert torch.allclose(one.pixel_map, other.pixel_map, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("preset", ["cell", "soft", "fast"])
def test_the_model_is_as_it_was_when_that_pass_fails(tower, preset):
    tower.train()
    tower.norm.eval()
    tower.fails = True
    modes = [module.training for module in tower.modules()]
    with pytest.raises(RuntimeError, match="the cable is loose"):
        upsample(COARSE, IMAGE, tower, 1, preset=preset)
    assert [module.training for module in tower.modules()] == modes
    assert not any(module._forward_hooks for module in tower.modules())
    assert all(weight.grad is None for weight in tower.parameters())
