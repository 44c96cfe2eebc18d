from __future__ import annotations

import itertools
from math import comb

import pytest
import torch
from torch import Tensor, nn

from usu.forward import engine
from usu.score import sampled
from usu.score.groups import segmented
from usu.score.sampled import _ridge, antithetic_groups, shapley_groups

P = 12
SEGMENTS = torch.arange(6 * 8).reshape(6, 8) // 4
EFFECTS = torch.randn(2, P, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
IMAGE = torch.ones(1, 6, 8, dtype=torch.float64)


def shown(batch: Tensor) -> Tensor:
    """Which segments a white picture on black still shows."""
    return torch.stack([batch[:, 0][:, p == SEGMENTS].mean(1) for p in range(P)], 1)


def additive(batch: Tensor) -> Tensor:
    return 3 + shown(batch) @ EFFECTS.T


def game(batch: Tensor) -> Tensor:
    """Pairs and triples interact."""
    z = shown(batch)
    return (z @ EFFECTS[0] + 2 * z[:, 0] * z[:, 1] - z[:, 2] * z[:, 3] * z[:, 4])[:, None]


@pytest.mark.parametrize("fit", ["ridge", "kernel_shap"])
@pytest.mark.parametrize("keep_probability", [0.5, 0.8])
def test_effects_of_an_additive_model_are_recovered(fit, keep_probability):
    scores = sampled(
        engine(additive, [0, 1]), IMAGE, SEGMENTS, fill=0, fit=fit, strength=0, evaluations=60,
        keep_probability=keep_probability,
    )  # fmt: skip
    assert torch.allclose(scores.values, EFFECTS, atol=1e-9)
    assert scores.stderr is not None
    assert scores.stderr.max() < 1e-9
    penalised = sampled(engine(additive, [0, 1]), IMAGE, SEGMENTS, fill=0, fit=fit, evaluations=2000)
    assert torch.allclose(penalised.values, EFFECTS, atol=0.05)


@pytest.mark.parametrize("fit", ["ridge", "kernel_shap"])
@pytest.mark.parametrize("target", [None, 1])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("evaluations", [17, 40])
def test_exactly_as_many_evaluations_as_asked_for(fit, target, known, evaluations):
    net = nn.Sequential(nn.Conv2d(1, 3, 3), nn.Flatten(), nn.Linear(72, 4)).double()
    ask, reference = engine(net, target), None
    if known:
        aimed = ask.aim(IMAGE)
        ask, reference = aimed.engine, aimed.values
    passes = []
    net.register_forward_hook(lambda module, inputs, output: passes.append(len(inputs[0])))
    scores = sampled(ask, IMAGE, SEGMENTS, fit=fit, evaluations=evaluations, reference=reference)
    assert sum(passes) == scores.evaluations == evaluations
    assert scores.values.shape == (1, P)


def test_kernel_shap_approaches_the_shapley_values_and_is_efficient():
    exact = torch.zeros(P, dtype=torch.float64)
    for p in range(5):  # the interacting players; the others are additive
        others = [q for q in range(5) if q != p]
        for size in range(5):
            for group in itertools.combinations(others, size):
                z = torch.zeros(2, P, dtype=torch.float64)
                z[:, list(group)] = 1
                z[1, p] = 1
                value = z @ EFFECTS[0] + 2 * z[:, 0] * z[:, 1] - z[:, 2] * z[:, 3] * z[:, 4]
                exact[p] += (value[1] - value[0]) / (5 * comb(4, size))
    exact[5:] = EFFECTS[0, 5:]
    for strength in (0, 1):
        scores = sampled(
            engine(game, 0), IMAGE, SEGMENTS, fill=0, fit="kernel_shap", evaluations=4000, strength=strength
        )
        assert torch.allclose(scores.values[0], exact, atol=0.06)
        total = game(IMAGE[None]) - game(0 * IMAGE[None])
        assert float(scores.values.sum()) == pytest.approx(float(total), abs=1e-9)


def test_ridge_equals_the_normal_equations_with_an_intercept():
    design = antithetic_groups(40, P, 0.5, torch.Generator().manual_seed(3)).double()
    values = torch.randn(40, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    centred = design - design.mean(0)
    effects, stderr = _ridge(centred, values - values.mean(0), 0.7, intercept=1)
    penalty = 0.7 * P * centred.square().mean()
    # the intercept as a column of its own, not penalised
    full = torch.cat([torch.ones(40, 1, dtype=torch.float64), design], 1)
    shrink = penalty * torch.eye(P + 1, dtype=torch.float64)
    shrink[0, 0] = 0
    inverse = torch.linalg.inv(full.T @ full + shrink)
    coefficients = inverse @ full.T @ values
    assert torch.allclose(effects, coefficients[1:], atol=1e-10)
    hat = full @ inverse @ full.T
    variance = (values - hat @ values).square().sum(0) / (40 - hat.trace())
    covariance = inverse @ full.T @ full @ inverse
    expected = (covariance.diagonal()[1:, None] * variance).sqrt()
    assert torch.allclose(stderr, expected, atol=1e-10)


def test_standard_errors_match_the_spread_over_repeats():
    noise = torch.Generator().manual_seed(9)
    noisy = lambda batch: additive(batch)[:, :1] + torch.randn(len(batch), 1, generator=noise)  # noqa: E731
    runs = [sampled(engine(noisy, 0), IMAGE, SEGMENTS, fill=0, evaluations=80, seed=s) for s in range(60)]
    spread = torch.stack([run.values[0] for run in runs]).std(0).mean()
    claimed = torch.stack([run.stderr[0] for run in runs]).mean()
    assert float(claimed / spread) == pytest.approx(1, abs=0.25)


def test_fewer_evaluations_than_segments_say_that_they_know_little():
    scores = sampled(engine(additive, 0), IMAGE, SEGMENTS, fill=0, evaluations=6, strength=0)
    assert scores.values.isfinite().all()
    assert scores.stderr.min() > 0


def test_groups_are_antithetic():
    generator = torch.Generator().manual_seed(0)
    even = antithetic_groups(10, P, 0.5, generator)
    assert torch.equal(even[0::2], ~even[1::2])
    assert len(antithetic_groups(7, P, 0.5, generator)) == 7
    rare = antithetic_groups(2000, P, 0.2, generator).double()
    assert float(rare.mean()) == pytest.approx(0.2, abs=0.01)
    assert float((rare[0::2] * rare[1::2]).sum()) == 0, "with 0.2 a pair never shows the same segment"


def test_shapley_group_sizes():
    groups = shapley_groups(20000, 6, torch.Generator().manual_seed(0))
    assert torch.equal(groups[0::2], ~groups[1::2])
    weights = torch.tensor([1 / (k * (6 - k)) for k in range(1, 6)])
    frequency = torch.bincount(groups.sum(1), minlength=6)[1:] / 20000
    assert torch.allclose(frequency, weights / weights.sum(), atol=0.02)


def test_only_the_segments_asked_for_are_varied():
    batches = []

    def model(batch: Tensor) -> Tensor:
        batches.append(shown(batch))
        return additive(batch)

    scores = sampled(engine(model, 0), IMAGE, SEGMENTS, fill=0, which=[2, 7], evaluations=20, strength=0)
    rows = torch.cat(batches)
    others = [p for p in range(P) if p not in (2, 7)]
    assert (rows[:, others] == 1).all()
    assert torch.allclose(scores.values[0, [2, 7]], EFFECTS[0, [2, 7]])
    assert scores.values[0, others].isnan().all()
    assert scores.stderr[0, others].isnan().all()


def test_randomness_is_explicit():
    run = lambda seed: sampled(engine(game, 0), IMAGE, SEGMENTS, evaluations=30, fill=0, seed=seed).values  # noqa: E731
    before = torch.get_rng_state()
    assert torch.equal(run(5), run(5))
    assert not torch.equal(run(5), run(6))
    generator = torch.Generator().manual_seed(5)
    assert torch.equal(run(generator), run(5))
    assert not torch.equal(run(generator), run(5)), "a generator moves on"
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("fit", ["ridge", "kernel_shap"])
def test_a_single_segment(fit):
    scores = sampled(engine(additive, 0), IMAGE, torch.zeros(6, 8, dtype=torch.int64), fill=0, fit=fit, strength=0)
    assert float(scores.values) == pytest.approx(float(EFFECTS[0].sum()))


def test_bad_arguments():
    ask = engine(additive, 0)
    with pytest.raises(ValueError, match="`evaluations` must be a whole number of at least 2; got 1"):
        sampled(ask, IMAGE, SEGMENTS, evaluations=1)
    with pytest.raises(ValueError, match="`evaluations` must be a whole number of at least 4; got 3"):
        sampled(ask, IMAGE, SEGMENTS, evaluations=3, fit="kernel_shap")
    with pytest.raises(ValueError, match="`fit` must be one of"):
        sampled(ask, IMAGE, SEGMENTS, fit="lasso")
    with pytest.raises(ValueError, match="`strength` must be at least 0"):
        sampled(ask, IMAGE, SEGMENTS, strength=-1)
    with pytest.raises(ValueError, match="`keep_probability` must lie between 0 and 1"):
        sampled(ask, IMAGE, SEGMENTS, keep_probability=1)


def test_groups_show_their_segments_and_nothing_else():
    image, segments = torch.rand(3, 6, 7, dtype=torch.float64), torch.arange(42).reshape(6, 7) % 5
    batches = []

    def model(batch):
        batches.append(batch.clone())
        return batch.sum((1, 2, 3))[:, None]

    asked = engine(model, 0)
    parts = segmented(asked, image, segments, "mean")
    groups = torch.rand(4, 5) < 0.5
    parts.values_of_groups(asked, groups)
    batch = torch.cat(batches)
    for n in range(4):
        for p in range(5):
            wanted = image if groups[n, p] else parts.filled
            assert torch.equal(batch[n][:, segments == p], wanted[:, segments == p])
