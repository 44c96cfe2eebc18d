"""Laws of the posterior of segment effects."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import usu
from tests.chosen import chosen
from tests.small_nets import Tower, seeded
from usu.pipeline.certainty import mean_iou, tops
from usu.score import posterior
from usu.score.groups import orthogonal_groups
from usu.score.posterior import differences, fit, kernels, repeat, segment_sums


def dice(seed=0):
    return torch.Generator().manual_seed(seed)


def pairs(count, parts, seed=0):
    """Groups that are followed by their complements."""
    first = torch.rand(count, parts, generator=dice(seed)) < 0.5
    return torch.stack([first, ~first], 1).flatten(0, 1)


def covariance(parts, seed=0):
    """Any positive definite matrix."""
    root = torch.randn(parts, parts, generator=dice(seed), dtype=torch.float64)
    return root @ root.T + torch.eye(parts, dtype=torch.float64)


def additive(groups, effects):
    return (groups.double() @ effects)[:, None] + 2.5


@pytest.mark.parametrize("kernel", [torch.eye(7), covariance(7)])
def test_an_additive_models_effects_are_recovered_without_noise_and_shrinkage(kernel):
    groups, effects = pairs(12, 7), torch.arange(7).double() - 2
    found = fit(groups, additive(groups, effects), covariances=[kernel], ratios=[0.0])
    assert (found.mean[0] - effects).abs().max() < 1e-9
    assert found.noise[0] < 1e-9
    assert found.stderr.max() < 1e-9


def test_unpaired_groups_recover_them_as_well():
    groups, effects = torch.rand(20, 5, generator=dice(1)) < 0.3, torch.arange(5).double()
    found = fit(groups, additive(groups, effects), covariances=[torch.eye(5)], ratios=[0.0])
    assert (found.mean[0] - effects).abs().max() < 1e-9


def test_the_mean_is_the_ridge_estimate_under_an_identity_covariance():
    groups = pairs(10, 6)
    values = torch.randn(20, 1, generator=dice(3), dtype=torch.float64)
    signs, seen = differences(groups, values)
    ridge = torch.linalg.solve(signs.T @ signs + 0.7 * torch.eye(6).double(), signs.T @ seen)[:, 0]
    found = fit(groups, values, covariances=[torch.eye(6)], ratios=[0.7])
    assert (found.mean[0] - ridge).abs().max() < 1e-12


@pytest.mark.parametrize("few", [0, 256])  # in the coordinates that the data see, and in all of them
def test_it_is_the_textbook_posterior_with_evidence_and_any_covariance(few, monkeypatch):
    monkeypatch.setattr(posterior, "FEW", few)
    groups, kernel, hope = pairs(4, 6), covariance(6, 2), torch.rand(6, generator=dice(4), dtype=torch.float64)
    values = torch.randn(8, 1, generator=dice(5), dtype=torch.float64)
    found = fit(groups, values, covariances=[kernel], evidence=hope, ratios=[0.5], strengths=[2.0], scale=1.5)
    unit, b = kernel / kernel.diagonal().mean(), hope / hope.square().mean().sqrt()
    prior = 1.5**2 * (unit + 2.0 * torch.outer(b, b))
    signs, seen = differences(groups, values)
    gain = prior @ signs.T @ torch.linalg.inv(signs @ prior @ signs.T + 1.5**2 * 0.5 * torch.eye(4).double())
    assert (found.mean[0] - (gain @ seen)[:, 0]).abs().max() < 1e-10
    assert (found.covariance[0] - (prior - gain @ signs @ prior)).abs().max() < 1e-10


def test_with_few_groups_of_many_segments_all_coordinates_and_some_say_the_same(monkeypatch):
    groups, hope = pairs(6, 20), torch.rand(2, 20, generator=dice(4), dtype=torch.float64)
    values, told = torch.randn(12, 2, generator=dice(5), dtype=torch.float64), {}
    for few in (0, 256):
        monkeypatch.setattr(posterior, "FEW", few)
        kernels_ = [covariance(20, 2), covariance(20, 3)]
        told[few] = fit(groups, values, covariances=kernels_, evidence=hope)
        drawn = repeat(told[few], groups.repeat(2, 1), 3, dice(6), covariances=kernels_, evidence=hope)
        assert drawn.isfinite().all()
    for name in ("mean", "covariance", "noise", "belief"):
        one, other = (getattr(found, name) for found in told.values())
        assert (one - other).abs().max() < 1e-11 * one.abs().max(), name


@pytest.mark.parametrize("few", [0, 256])  # by Cholesky's root, and by eigenvectors
def test_draws_have_the_posteriors_covariance_also_where_some_effects_are_certain(few, monkeypatch):
    monkeypatch.setattr(posterior, "FEW", few)
    groups, values = pairs(9, 6), torch.randn(18, 2, generator=dice(5), dtype=torch.float64)
    for ratios in ([0.5], [0.0]):
        found = fit(groups, values, covariances=[covariance(6)], ratios=ratios)
        root = found._root
        assert (root @ root.mT - found.covariance).abs().max() < 1e-12
        drawn = found.draw(4, dice(1)) - found.mean
        normal = torch.randn(4, 2, 6, generator=dice(1), dtype=torch.float64)
        assert (drawn - (root @ normal[..., None])[..., 0]).abs().max() < 1e-12


def test_beliefs_are_those_of_the_marginal_likelihood():
    groups, ratios = pairs(9, 4), [0.1, 10.0]
    kernel = [torch.eye(4).double(), covariance(4)]
    values = torch.randn(18, 1, generator=dice(6), dtype=torch.float64)
    found = fit(groups, values, covariances=kernel, ratios=ratios)
    signs, seen = differences(groups, values)
    logs = []
    for one, ratio in itertools.product(kernel, ratios):
        total = signs @ (one / one.diagonal().mean()) @ signs.T + ratio * torch.eye(9).double()
        tau = float(seen.T @ torch.linalg.solve(total, seen)) / 9
        logs.append(torch.distributions.MultivariateNormal(torch.zeros(9).double(), tau * total).log_prob(seen[:, 0]))
    usual = -0.5 * ((torch.tensor(ratios) / (0.3 * 4)).log() / np.log(3.0)) ** 2
    expected = (torch.stack(logs).reshape(2, 2) + usual).flatten().softmax(0).reshape(2, 2)
    assert (found.belief[0, :, :, 0] - expected).abs().max() < 1e-3


def test_with_fixed_hyperparameters_more_groups_never_raise_the_variance():
    groups, kernel = pairs(30, 8), covariance(8)
    values = torch.randn(60, 1, generator=dice(7), dtype=torch.float64)
    before = None
    for count in (2, 4, 10, 30, 60):
        now = fit(
            groups[:count], values[:count], covariances=[kernel], evidence=torch.ones(8), ratios=[0.5],
            strengths=[1.0], scale=2.0,
        ).covariance[0]  # fmt: skip
        if before is not None:
            assert torch.linalg.eigvalsh(before - now).min() > -1e-9
        before = now


def test_even_interactions_change_neither_the_estimate_nor_its_error():
    groups = pairs(20, 6)
    values = torch.randn(40, 1, generator=dice(8), dtype=torch.float64)
    signs = 2 * groups.double() - 1
    even = 3 * signs[:, 0] * signs[:, 1] - 2 * signs[:, 1] * signs[:, 2] * signs[:, 3] * signs[:, 5]
    without = fit(groups, values, covariances=[torch.eye(6)])
    with_them = fit(groups, values + even[:, None], covariances=[torch.eye(6)])
    assert (without.mean - with_them.mean).abs().max() < 1e-9
    assert (without.covariance - with_them.covariance).abs().max() < 1e-9
    assert (without.noise - with_them.noise).abs().max() < 1e-9


def test_several_targets_are_each_target_alone_and_share_the_factorisation(monkeypatch):
    groups, hope = pairs(20, 6), torch.rand(3, 6, generator=dice(9), dtype=torch.float64)
    values = torch.randn(40, 3, generator=dice(10), dtype=torch.float64) * torch.tensor([1.0, 5.0, 0.1])
    candidates = [torch.eye(6), covariance(6)]
    calls, eigh = [], torch.linalg.eigh
    monkeypatch.setattr(torch.linalg, "eigh", lambda one: calls.append(1) or eigh(one))
    together = fit(groups, values, covariances=candidates, evidence=hope)
    assert len(calls) == 2
    for t in range(3):
        alone = fit(groups, values[:, [t]], covariances=candidates, evidence=hope[t])
        assert (together.mean[t] - alone.mean[0]).abs().max() < 1e-9
        assert (together.covariance[t] - alone.covariance[0]).abs().max() < 1e-9


def test_a_leftover_row_is_left_out():
    groups, values = pairs(10, 4), torch.randn(20, 1, generator=dice(11), dtype=torch.float64)
    even = fit(groups, values, covariances=[torch.eye(4)])
    odd = fit(
        torch.cat([groups, groups[:1]]), torch.cat([values, torch.tensor([[1e6]]).double()]), covariances=[torch.eye(4)]
    )
    assert torch.equal(even.mean, odd.mean)


def test_draws_have_the_posteriors_mean_and_covariance():
    groups = pairs(10, 4)
    found = fit(groups, torch.randn(20, 2, generator=dice(12), dtype=torch.float64), covariances=[covariance(4)])
    drawn = found.draw(40_000, dice(13))
    assert drawn.shape == (40_000, 2, 4)
    for t in range(2):
        assert torch.allclose(drawn[:, t].mean(0), found.mean[t], atol=0.03 * float(found.stderr.max()))
        assert torch.allclose(drawn[:, t].T.cov(), found.covariance[t], atol=0.05 * float(found.covariance.max()))


def test_intervals_hold_effects_drawn_from_the_prior():
    parts, kernel, hits = 12, covariance(12), []
    lower = torch.linalg.cholesky(kernel)
    for seed in range(40):
        groups = pairs(30, parts, seed)
        effects = lower @ torch.randn(parts, generator=dice(100 + seed), dtype=torch.float64)
        noise = 2 * torch.randn(60, 1, generator=dice(200 + seed), dtype=torch.float64)
        found = fit(groups, groups.double() @ effects[:, None] + noise, covariances=[kernel])
        hits.append(((found.mean[0] - effects).abs() < 1.645 * found.stderr[0]).double().mean())
    assert 0.86 < float(torch.stack(hits).mean()) < 0.94


def test_kernels_are_positive_definite_and_know_place_and_colour():
    segments = torch.arange(16).reshape(4, 4).repeat_interleave(5, 0).repeat_interleave(5, 1)
    picture = torch.zeros(20, 20, 3)
    picture[:, 10:] = 1.0
    candidates = kernels(segments, picture)
    assert candidates.shape[1:] == (16, 16)
    for one in candidates:
        assert torch.linalg.eigvalsh(one).min() > 0
        assert abs(float(one.diagonal().mean()) - 1) < 1e-12
        assert one[0, 1] > one[0, 15]  # near and alike against far and unlike
        assert one[0, 1] > one[1, 2]  # as near, but across the edge


def test_sums_over_segments():
    segments = torch.randint(0, 5, (6, 7), generator=dice(14))
    field = torch.rand(2, 6, 7, generator=dice(15), dtype=torch.float64)
    for t, p in itertools.product(range(2), range(5)):
        assert abs(segment_sums(field, segments)[t, p] - field[t][segments == p].sum()) < 1e-12


def test_the_expected_iou_of_noise_is_that_of_chance_and_ties_are_drawn_by_lot():
    maps = torch.rand(30, 40, 40, generator=dice(16))
    assert abs(mean_iou(maps) - 0.05 / 1.95) < 0.01
    flat = tops(torch.zeros(1, 40, 40), 0.05, dice(17))
    assert int(flat.sum()) == 80
    assert flat[0, :80].sum() < 20
    assert mean_iou(maps[:1].expand(4, -1, -1)) == 1.0


def test_repeats_scatter_as_other_runs_do():
    parts, kernel = 10, torch.eye(10).double()
    effects = torch.randn(parts, generator=dice(30), dtype=torch.float64)

    def run(seed):
        groups = pairs(60, parts, seed)
        noise = torch.randn(120, 1, generator=dice(300 + seed), dtype=torch.float64)
        return groups, fit(groups, groups.double() @ effects[:, None] + noise, covariances=[kernel])

    runs = [run(seed) for seed in range(40)]
    means = torch.stack([found.mean[0] for _, found in runs])
    apart = (means[:20] - means[20:]).square().mean()
    groups, first = runs[0]
    again = repeat(first, groups, 40, dice(31), covariances=[kernel])
    assert again.shape == (40, 1, parts)
    assert 0.6 < float((again[:20, 0] - again[20:, 0]).square().mean() / apart) < 1.6


@pytest.mark.parametrize("few", [0, 256])
@pytest.mark.parametrize("pairs_of", [4, 15])  # fewer than there are segments, and more
def test_runs_three_times_as_long_are_runs_of_the_groups_three_times(few, pairs_of, monkeypatch):
    monkeypatch.setattr(posterior, "FEW", few)
    groups, known = pairs(pairs_of, 9), {"covariances": [covariance(9, 2), covariance(9, 3)]}
    known["evidence"] = torch.rand(2, 9, generator=dice(4), dtype=torch.float64)
    found = fit(groups, torch.randn(len(groups), 2, generator=dice(5), dtype=torch.float64), **known)
    short, long = (
        repeat(found, groups, 5, dice(6), times=3, **known),
        repeat(found, groups.repeat(3, 1), 5, dice(6), **known),
    )
    assert (short - long).abs().max() < 1e-9 * long.abs().max()
    assert not torch.allclose(short, repeat(found, groups, 5, dice(6), **known))


def test_repeats_are_not_shrunk_twice():
    """They are as large as what is reported; taken from the mean as it is, they are a fifth smaller here."""
    parts, kernel, large, reported = 30, torch.eye(30).double(), 0.0, 0.0
    for seed in range(8):
        effects = torch.randn(parts, 1, generator=dice(1000 + seed), dtype=torch.float64)
        groups = pairs(75, parts, 50 * seed)
        noise = 3 * torch.randn(150, 1, generator=dice(7000 + seed), dtype=torch.float64)
        found = fit(groups, groups.double() @ effects + noise, covariances=[kernel])
        reported += float(found.mean.square().sum())
        large += float(repeat(found, groups, 30, dice(31), covariances=[kernel]).square().sum(2).mean())
    assert 0.92 < large / reported < 1.25


@pytest.mark.parametrize("sigma", [0.1, 3.0, 30.0])
def test_the_stretched_mean_is_as_large_as_the_effects_that_are_expected(sigma):
    noise = sigma * torch.randn(40, 2, generator=dice(32), dtype=torch.float64)
    groups = pairs(20, 6, 33)
    found = fit(groups, groups.double()[:, :2] + noise, covariances=[torch.eye(6)])
    assert torch.allclose(torch.cosine_similarity(found.stretched, found.mean), torch.ones(2).double())
    drawn = found.draw(20000, dice(34)).square().sum(2).mean(0)
    assert torch.allclose(found.stretched.square().sum(1), drawn, rtol=0.03)


def test_where_nothing_was_seen_nothing_is_stretched():
    groups = pairs(4, 3)
    found = fit(groups, torch.zeros(8, 1), covariances=[torch.eye(3)])
    assert torch.equal(found.stretched, torch.zeros(1, 3).double())


def spread(parts, seed):
    return torch.rand(parts, 2, generator=dice(seed))


def test_orthogonal_groups_pair_balance_and_extend():
    groups = orthogonal_groups(241, spread(58, 3), dice(40))
    assert groups.shape == (241, 58)
    assert bool((groups[:240:2] ^ groups[1:240:2]).all())
    signs = 2 * groups[:128:2].double() - 1
    assert torch.equal(signs.T @ signs, 64 * torch.eye(58).double())
    assert torch.equal(groups[:30], orthogonal_groups(30, spread(58, 3), dice(40)))
    shown = torch.stack([orthogonal_groups(2, spread(3, 4), dice(seed))[0] for seed in range(800)])
    counts = (shown.long() * torch.tensor([4, 2, 1])).sum(1).bincount(minlength=8)
    assert counts.min() > 60  # each of the eight groups is as likely


@pytest.mark.parametrize("parts", [1, 2, 5, 64])
def test_orthogonal_groups_of_any_number_of_segments(parts):
    groups = orthogonal_groups(2 * 64, spread(parts, 5), dice(6))
    signs = 2 * groups[::2].double() - 1
    assert torch.equal(signs.T @ signs, 64 * torch.eye(parts).double())


def test_groups_belong_to_places_not_to_labels():
    places = spread(50, 7)
    groups = orthogonal_groups(100, places, dice(8))
    backwards = orthogonal_groups(100, places.flip(0), dice(8))
    assert torch.equal(backwards.flip(1), groups)
    # one segment is gone, all labels behind it are others: nearly all keep their lots
    fewer = orthogonal_groups(100, torch.cat([places[:10], places[11:]]), dice(8))
    kept = (fewer == torch.cat([groups[:, :10], groups[:, 11:]], 1)).all(0)
    assert kept.double().mean() > 0.8


def test_orthogonal_groups_lower_the_variance_of_independent_ones():
    fixed = {"covariances": [torch.eye(60)], "ratios": [18.0], "scale": 1.0}
    values = torch.zeros(240, 1)
    independent = fit(pairs(120, 60, 41), values, **fixed).stderr.square().mean()
    orthogonal = fit(orthogonal_groups(240, spread(60, 9), dice(42)), values, **fixed).stderr.square().mean()
    assert orthogonal < 0.85 * independent


# ---------------------------------------------------------------- the pipeline with a posterior

IMAGE = torch.rand(3, 32, 32, generator=torch.Generator().manual_seed(6))
COARSE = torch.rand(4, 4, generator=torch.Generator().manual_seed(7), dtype=torch.float64) + 0.1


@pytest.mark.parametrize("preset", ["soft", "cell"])
def test_a_result_knows_its_stability_and_standard_errors(preset):
    net = seeded(Tower)
    few, many = (usu.upsample(COARSE, IMAGE, net, 1, preset=preset, evaluations=n) for n in (120, 400))
    assert few.stderr.shape == few.pixel_map.shape
    assert bool((few.stderr >= 0).all())
    assert 0 <= few.stability <= 1
    assert many.stability > few.stability
    assert float(many.stderr.mean()) < float(few.stderr.mean())
    assert (few.evaluations, many.evaluations) == (120, 400)
    assert usu.upsample(COARSE, IMAGE, net, 1, preset="fast").stability == 1.0
    assert usu.upsample(COARSE, IMAGE, net, 1, preset=chosen("soft", fit="ridge"), evaluations=30).stability is None


def test_auto_stops_when_the_map_is_stable_or_at_its_ceiling():
    net = seeded(Tower)
    run = lambda level, ceiling: usu.upsample(  # noqa: E731
        COARSE, IMAGE, net, 1, preset=chosen("soft", evaluations="auto", stability=level, ceiling=ceiling)
    )
    easy, hard = run(0.05, 600), run(1.0, 150)
    assert easy.evaluations == 121, "one pass for the layers, and two looks that agree"
    assert easy.stop_reason is usu.StopReason.STABLE
    assert (hard.evaluations, hard.stop_reason) == (150, usu.StopReason.EVALUATIONS)
    assert torch.equal(run(0.05, 600).pixel_map, easy.pixel_map), "the same seed, the same evaluations"
    exact = usu.upsample(COARSE, IMAGE, net, 1, preset="soft", evaluations=121)
    assert torch.equal(exact.pixel_map, easy.pixel_map), "a longer plan begins with the groups of a shorter one"


def test_an_additive_models_effects_come_back_through_the_pipeline():
    weights = torch.linspace(-1, 2, 16).reshape(4, 4).repeat_interleave(8, 0).repeat_interleave(8, 1)
    model = lambda batch: (batch[:, 0] * weights).sum((1, 2))[:, None]  # noqa: E731
    settings = chosen("soft", segmenter=usu.segment.Tiles(), parts=16, fill=0.0, edges="segments", base=None)
    found = usu.upsample(COARSE, torch.ones(3, 32, 32), model, 0, preset=settings, evaluations=200)
    expected = 64 * torch.linspace(-1, 2, 16).double()
    assert float((found.effects.mean[0] - expected).abs().max()) < 1e-3 * float(expected.max())
    share = weights.clamp(min=0) / weights.max()
    assert float((found.scores - torch.log1p(100 * share) / math.log(101)).abs().max()) < 1e-2
    linear = replace(settings, scale="density", evaluations=200)
    plain = usu.upsample(COARSE, torch.ones(3, 32, 32), model, 0, preset=linear)
    assert float((plain.scores - share).abs().max()) < 1e-2
