"""Laws of several rounds: partitions that are cut further, and all their groups in one posterior."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

import usu
from usu.forward import Engine
from usu.score.groups import Effects, effects_of_groups
from usu.score.posterior import differences, fit, kernels
from usu.segment import Tiles

SIDE = 12
COARSE = torch.from_numpy(np.asarray(Tiles()(np.zeros((SIDE, SIDE, 3)), 9)))
#: The first, the fifth and the last of nine are cut in four.
FINE = torch.from_numpy(usu.segment.split(COARSE.numpy(), [0, 4, 8], np.zeros((SIDE, SIDE, 3)), Tiles(), 4))
PARENT = torch.zeros(int(FINE.max()) + 1, dtype=torch.long)
PARENT[FINE.flatten()] = COARSE.flatten()
#: The same from the fine partition to one more, in which everything is cut in two.
FINEST = torch.from_numpy(usu.segment.split(FINE.numpy(), range(len(PARENT)), np.zeros((SIDE, SIDE, 3)), Tiles(), 2))
WEIGHTS = torch.randn(SIDE, SIDE, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
PICTURE = np.full((SIDE, SIDE, 3), 0.5)


def dice(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def pairs(count: int, parts: int, seed: int) -> Tensor:
    first = torch.rand(count, parts, generator=dice(seed)) < 0.5
    return torch.stack([first, ~first], 1).flatten(0, 1)


def sums(labels: Tensor) -> Tensor:
    """What each segment adds to the additive model below."""
    return torch.bincount(labels.flatten(), WEIGHTS.flatten())


def additive(batch: Tensor) -> Tensor:
    return (batch[:, 0].double() * WEIGHTS).sum((1, 2))[:, None]


def asked(labels: Tensor, evaluations: int, before: Effects | None = None, **changes: object) -> Effects:
    every = np.ones(int(labels.max()) + 1, dtype=bool)
    known: dict[str, object] = {"evidence": None, "enough": None, "seed": 0, "progress": None}
    return effects_of_groups(
        Engine(additive, (0,)), torch.ones(1, SIDE, SIDE), labels.numpy(), PICTURE, evaluations=evaluations, fill=0.0,
        which=every, before=before, **known | changes,
    )  # fmt: skip


def test_the_prior_of_nested_segments_is_its_formula() -> None:
    parent = torch.zeros(int(FINEST.max()) + 1, dtype=torch.long)
    parent[FINEST.flatten()] = FINE.flatten()
    lineage = torch.stack([PARENT[parent], parent, torch.arange(len(parent))])
    picture = torch.rand(SIDE, SIDE, 3, generator=dice(5), dtype=torch.float64)
    flat, nested = (kernels(FINEST, picture, places=[0.2], own=[0.4], lineage=levels)[0] for levels in (None, lineage))
    areas = torch.bincount(FINEST.flatten()).double()
    share = areas.square().mean()
    for p in range(len(parent)):
        for q in range(len(parent)):
            levels = sum(bool(one[p] == one[q]) for one in lineage) / 3
            added = 0.4 * (levels - (p == q)) * areas[p] * areas[q] / share
            assert abs(float(nested[p, q] - flat[p, q] - added)) < 1e-12
    assert torch.linalg.eigvalsh(nested).min() > 0


def test_one_level_is_no_hierarchy() -> None:
    alone = torch.arange(int(FINE.max()) + 1)[None]
    assert torch.equal(
        kernels(FINE, torch.from_numpy(PICTURE)), kernels(FINE, torch.from_numpy(PICTURE), lineage=alone)
    )


def test_pieces_that_no_group_tells_apart_add_up_to_their_segment() -> None:
    """The posterior of the sums is that of the segments, under the prior that the pieces' prior gives their sums."""
    parts = len(PARENT)
    root = torch.randn(parts, parts, generator=dice(1), dtype=torch.float64)
    prior = root @ root.T + torch.eye(parts).double()
    together = torch.nn.functional.one_hot(PARENT).double()  # (pieces, segments)
    groups = pairs(7, together.shape[1], 2)
    values = torch.randn(14, 1, generator=dice(4), dtype=torch.float64)
    above = together.T @ prior @ together
    # λ and τ² are in units of the mean variance, of which the pieces have less
    unit = float(prior.diagonal().mean() / above.diagonal().mean())
    fine = fit(groups[:, PARENT], values, covariances=[prior], ratios=[0.5 / unit], scale=unit**0.5)
    coarse = fit(groups, values, covariances=[above], ratios=[0.5], scale=1.0)
    torch.testing.assert_close(fine.mean @ together, coarse.mean, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(together.T @ fine.covariance[0] @ together, coarse.covariance[0], rtol=1e-9, atol=1e-9)


def test_an_additive_models_effects_are_recovered_from_two_rounds() -> None:
    groups = torch.cat([pairs(6, 9, 0)[:, PARENT], pairs(20, len(PARENT), 1)])
    values = groups.double() @ sums(FINE)[:, None]
    found = fit(groups, values, covariances=[torch.eye(len(PARENT))], ratios=[0.0])
    assert (found.mean[0] - sums(FINE)).abs().max() < 1e-9


def test_a_second_round_never_raises_a_variance() -> None:
    prior = kernels(FINE, torch.from_numpy(PICTURE))[:1]
    groups = torch.cat([pairs(6, 9, 0)[:, PARENT], pairs(20, len(PARENT), 1)])
    values = torch.randn(len(groups), 1, generator=dice(6), dtype=torch.float64)
    first, both = (
        fit(groups[:n], values[:n], covariances=prior, ratios=[0.5], scale=1.0).stderr for n in (12, len(groups))
    )
    assert bool((both <= first + 1e-12).all())


@pytest.mark.parametrize("evaluations", [40, 41])  # the last group of an odd number has no complement
def test_a_round_is_one_fit_with_those_before_it(evaluations: int) -> None:
    first = asked(COARSE, evaluations)
    second = asked(FINE, 50, first)
    third = asked(FINEST, 64, second)
    assert second.lineage.tolist() == [PARENT.tolist(), list(range(len(PARENT)))]
    assert len(third.lineage) == 3
    assert third.groups.shape == (40 + 50 + 64, int(FINEST.max()) + 1)
    shown = third.groups.double()  # what the model said of each group is the sum of what it shows, whoever asked
    torch.testing.assert_close(shown @ sums(FINEST), third.values[:, 0], rtol=1e-6, atol=1e-5)
    signs, _ = differences(third.groups, third.values)
    assert signs.abs().min() == 1, "every group has its complement, so that even interactions cancel"
    again = fit(third.groups, third.values, covariances=third.covariances)
    assert torch.equal(again.mean, third.posterior.mean)
    assert not third.mean.isnan().any()


def test_no_round_asks_what_another_has_asked() -> None:
    """Also where nothing was cut, so that both rounds have one design."""
    both = asked(COARSE, 16, asked(COARSE, 16)).groups
    assert len(torch.unique(both, dim=0)) == len(both)


def naive_undecided(effects: Effects, share: float) -> list[float]:
    areas = torch.bincount(effects.segments.flatten()).tolist()
    drawn = effects.draws(100)
    found = []
    for p in range(len(areas)):
        per_target = []
        for target in range(drawn.shape[1]):
            inside = 0
            for one in drawn[:, target].tolist():
                own = one[p] / areas[p]
                inside += sum(a for e, a in zip(one, areas, strict=True) if e / a > own) < share * sum(areas)
            per_target.append(min(inside / 100, 1 - inside / 100))
        found.append(max(per_target))
    return found


@pytest.mark.parametrize("share", [0.05, 0.3])
def test_undecided_is_its_formula(share: float) -> None:
    found = asked(FINE, 24).undecided(share)
    np.testing.assert_allclose(found.numpy(), naive_undecided(asked(FINE, 24), share), atol=1e-12)
    assert 0 < float(found.max()) <= 0.5


# ---------------------------------------------------------------- in the pipeline


def rough(batch: Tensor) -> Tensor:
    """Two classes, of which no sum of effects tells all."""
    weights = torch.randn(24, 24, generator=dice(7))
    seen = (weights * batch[:, 0]).sum((1, 2)) / 8
    return torch.stack([seen + 2 * (2 * seen).sin(), -seen], 1)


SHOWN = {"model": rough, "target": 0, "picture": np.ones((24, 24, 3))}


def refined(depth: int, evaluations: int | str = 120, **changes: object) -> usu.Upsampled:
    settings = {"depth": depth, "parts": 16, "segmenter": Tiles(), "base": "bilinear", "fill": 0.0, **changes}
    preset = replace(usu.PRESETS["soft"], **settings)
    return usu.upsample(torch.ones(4, 4), torch.ones(1, 24, 24), preset=preset, evaluations=evaluations, **SHOWN)


@pytest.mark.parametrize("depth", [1, 2])
def test_rounds_spend_what_was_asked_for_and_every_segment_has_its_effect(depth: int) -> None:
    result = refined(depth, threshold=0.0)
    assert result.evaluations == 120
    assert len(result.segments) == depth + 1
    assert result.effects.mean.shape[1] == int(result.segments[-1].max()) + 1
    assert not result.effects.mean.isnan().any()
    assert 0 <= result.stability <= 1


def test_only_what_is_undecided_is_cut() -> None:
    result = refined(1, threshold=0.2)
    coarse, fine = result.segments
    first = refined(0, evaluations=60)
    cut = np.bincount(usu.segment.parents(fine, coarse)) > 1
    assert cut.any()
    assert np.array_equal(cut, first.effects.undecided().numpy() > 0.2)


@pytest.mark.parametrize(("evaluations", "spent"), [(120, 40), ("auto", 120)])
def test_where_all_is_decided_no_further_round_is_asked_for(evaluations: int | str, spent: int) -> None:
    result = refined(2, evaluations, threshold=0.5, stability=0.0, ceiling=600)
    assert (result.stop_reason, result.evaluations) == (usu.StopReason.DECIDED, spent)


def test_who_stops_in_the_first_round_gets_no_second() -> None:
    preset = replace(usu.PRESETS["soft"], depth=2, base="bilinear")
    ended = {"evaluations": 400, "progress": lambda done, _: done >= 70}
    result = usu.upsample(torch.ones(4, 4), torch.ones(1, 24, 24), preset=preset, **SHOWN, **ended)
    assert (result.stop_reason, result.evaluations, len(result.segments)) == (usu.StopReason.STOPPED, 120, 1)
