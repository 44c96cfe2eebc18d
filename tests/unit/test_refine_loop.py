from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.chosen import refining
from usu import refine, segment
from usu.refine import StopReason

PICTURE = np.random.default_rng(0).random((16, 16, 3))
FIRST = segment.Tiles()(PICTURE, 16)
#: What is truly there: a soft disc, off centre.
TRUTH = np.exp(-((np.mgrid[:16, :16][0] - 5) ** 2 + (np.mgrid[:16, :16][1] - 9) ** 2) / 8)


class Effects:
    """Scores a segment by the sum of what lies in it, and keeps the bills: how many it was asked about, and may be."""

    def __init__(self, *fields: np.ndarray, allowed: int | None = None) -> None:
        self.fields, self.allowed, self.calls = fields or (TRUTH,), allowed, []

    def __call__(self, labels: np.ndarray, which: np.ndarray) -> torch.Tensor:
        self.calls.append((labels, which))
        sums = np.stack([np.bincount(labels.ravel(), field.ravel()) for field in self.fields])
        return torch.from_numpy(sums[:, which])

    @property
    def spent(self) -> int:
        return sum(len(which) for _, which in self.calls)

    def left(self) -> int | None:
        return None if self.allowed is None else self.allowed - self.spent


def refined(effects: Effects, **settings: object) -> refine.Refined:
    return refine.refine(effects, quarter, FIRST, refining(**settings), effects.left)


def quarter(labels: np.ndarray, which: np.ndarray, limit: int | None) -> np.ndarray:
    return segment.split(labels, which, PICTURE, segment.Tiles(), 4, limit=limit)


def test_depth_zero_scores_the_first_partition_only() -> None:
    effects = Effects()
    result = refine.refine(effects, quarter, FIRST, refining(depth=0))
    sums = np.bincount(FIRST.ravel(), TRUTH.ravel())
    expected = (sums - sums.min()) / np.ptp(sums)
    np.testing.assert_allclose(result.scores[0], expected[FIRST], atol=1e-12)
    assert result.scores.dtype == torch.float64
    assert (effects.spent, result.stop_reason, len(effects.calls)) == (16, StopReason.DEPTH, 1)
    assert len(result.fields) == len(result.segments) == len(result.segment_scores) == 1


def test_one_step_by_hand() -> None:
    effects = Effects()
    result = refine.refine(effects, quarter, FIRST, refining(depth=1))
    coarse, fine = result.segments
    raw = np.bincount(coarse.ravel(), TRUTH.ravel())
    low, span = raw.min(), np.ptp(raw)
    s0 = (raw - low) / span
    field = s0[coarse]
    extended = np.pad(field, 1, mode="edge")
    h = np.array([[np.ptp(extended[i : i + 3, j : j + 3]) for j in range(16)] for i in range(16)])
    marked = [p for p in range(16) if h[coarse == p].max() > 0.1]
    assert 0 < len(marked) < 16
    finer_raw = (np.bincount(fine.ravel(), TRUTH.ravel()) - low) / span
    parent = segment.parents(fine, coarse)
    s1 = np.empty(len(parent))
    for c, p in enumerate(parent):
        siblings = np.flatnonzero(parent == p)
        assert len(siblings) == (4 if p in marked else 1)
        mean = finer_raw[siblings].mean()  # tiles of equal size
        s1[c] = np.clip(finer_raw[c] - mean + s0[p], 0, 1) if p in marked else s0[p]
    alpha = 1 / (1 + np.exp((h - 0.1) / 0.02))
    np.testing.assert_allclose(result.segment_scores[1][0], s1, atol=1e-12)
    np.testing.assert_allclose(result.scores[0], alpha * field + (1 - alpha) * s1[fine], atol=1e-12)
    assert effects.spent == 16 + 4 * len(marked)
    assert np.array_equal(effects.calls[1][1], np.flatnonzero(np.isin(parent, marked)))


def test_refinement_comes_nearer_to_the_truth_when_edges_reach_through_their_segment() -> None:
    per_pixel = (TRUTH - TRUTH.min()) / np.ptp(TRUTH)
    errors = {}
    for reach in ("pixel", "segment"):
        fields = refine.refine(Effects(), quarter, FIRST, refining(depth=2, reach=reach)).fields
        errors[reach] = [np.abs(field[0].numpy() - per_pixel).mean() for field in fields]
    assert errors["segment"][1] < errors["segment"][0]
    assert errors["pixel"][1] <= errors["pixel"][0]
    assert errors["segment"][-1] < errors["pixel"][-1]


def test_without_a_limit_split_is_told_so() -> None:
    effects, limits = Effects(), []

    def spy(labels: np.ndarray, which: np.ndarray, limit: int | None) -> np.ndarray:
        limits.append(limit)
        return quarter(labels, which, limit)

    refine.refine(effects, spy, FIRST, refining(depth=1))
    assert limits == [None]


@pytest.mark.parametrize("extra", range(0, 12))
def test_what_is_affordable_goes_to_the_most_heterogeneous_segments(extra: int) -> None:
    effects = Effects(allowed=16 + extra)
    result = refined(effects, depth=3, threshold=0.05)
    assert 16 + extra - effects.spent in (0, 1)
    assert result.stop_reason is StopReason.EVALUATIONS
    if extra < 2:
        assert len(result.fields) == 1
        return
    strength = refine.strengths(refine.heterogeneity(result.fields[0]), FIRST).numpy()
    split = np.flatnonzero(np.bincount(segment.parents(result.segments[1], FIRST)) > 1)
    whole = np.setdiff1d(np.arange(16), split)
    assert strength[split].min() >= strength[whole].max()


@pytest.mark.parametrize("most", [16, 17, 25, 40])
def test_a_level_has_at_most_so_many_segments_and_the_most_heterogeneous_are_split(most: int) -> None:
    result = refine.refine(Effects(), quarter, FIRST, refining(depth=9, threshold=0.01, tolerance=0), most=most)
    assert all(int(labels.max()) < most for labels in result.segments)
    assert result.stop_reason is StopReason.SEGMENTS
    assert len(result.fields) > (most > 18)
    if len(result.fields) > 1:
        strength = refine.strengths(refine.heterogeneity(result.fields[0]), FIRST).numpy()
        split = np.flatnonzero(np.bincount(segment.parents(result.segments[1], FIRST)) > 1)
        assert strength[split].min() >= strength[np.setdiff1d(np.arange(16), split)].max()


def test_scoring_at_a_fixed_price() -> None:
    """Three rounds are paid for, whatever the number of segments."""
    effects = Effects()
    result = refine.refine(
        effects, quarter, FIRST, refining(depth=5, tolerance=0), lambda: None if len(effects.calls) < 3 else 0
    )
    assert len(result.fields) == len(effects.calls) == 3
    assert result.stop_reason is StopReason.EVALUATIONS


def test_reasons_to_stop() -> None:
    run = lambda allowed=None, **settings: refined(Effects(allowed=allowed), **settings)  # noqa: E731
    assert run(depth=1).stop_reason is StopReason.DEPTH
    assert run(depth=9, tolerance=0.5).stop_reason is StopReason.CONVERGED
    assert len(run(depth=9, tolerance=0.5).fields) == 2
    assert run(depth=9, threshold=1.0).stop_reason is StopReason.NOTHING_TO_REFINE
    assert run(16, depth=9).stop_reason is StopReason.EVALUATIONS
    assert run(20, depth=1).stop_reason is StopReason.EVALUATIONS  # the last level was cut short
    assert run(16, depth=0).stop_reason is StopReason.EVALUATIONS
    assert run(17, depth=0).stop_reason is StopReason.DEPTH
    effects = Effects()
    unsplittable = refine.refine(effects, lambda labels, which, limit: labels, FIRST, refining(depth=9))
    assert unsplittable.stop_reason is StopReason.NOTHING_TO_REFINE
    assert effects.spent == 16


def test_constant_effects_give_one_half_everywhere_and_nothing_to_do() -> None:
    result = refine.refine(Effects(np.ones((16, 16))), quarter, FIRST, refining(depth=3))
    assert torch.equal(result.scores, torch.full((1, 16, 16), 0.5, dtype=torch.float64))
    assert result.stop_reason is StopReason.NOTHING_TO_REFINE


def test_several_targets_share_segments_but_not_scales() -> None:
    every, one = Effects(TRUTH, 100 * TRUTH + 7, np.ones((16, 16))), Effects(TRUTH)
    both, alone = (refine.refine(effects, quarter, FIRST, refining(depth=2)) for effects in (every, one))
    assert both.scores.shape == (3, 16, 16)
    assert every.spent == one.spent
    assert torch.allclose(both.scores[0], alone.scores[0], atol=1e-12)
    assert torch.allclose(both.scores[0], both.scores[1], atol=1e-12)
    assert torch.equal(both.scores[2], torch.full((16, 16), 0.5, dtype=torch.float64))


def test_a_partition_may_be_a_tensor() -> None:
    assert refine.refine(Effects(), quarter, torch.from_numpy(FIRST), refining(depth=0)).scores.shape == (1, 16, 16)
