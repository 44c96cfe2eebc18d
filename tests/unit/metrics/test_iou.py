"""IoU against a loop over thresholds; area-matched IoU against a sort."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from usu.metrics.iou import area_iou, iou

SHAPES = hnp.array_shapes(min_dims=2, max_dims=2, max_side=7)
#: Few values, so that there are ties.
VALUES = st.integers(-3, 3).map(float)


@st.composite
def map_and_truth(draw, values=VALUES):
    shape = draw(SHAPES)
    pixel_map = draw(hnp.arrays(np.float64, shape, elements=values))
    truth = draw(hnp.arrays(np.bool_, shape))
    truth.flat[draw(st.integers(0, truth.size - 1))] = True
    return pixel_map, truth


def overlap(chosen, truth):
    return (chosen & truth).sum() / (chosen | truth).sum()


def by_thresholds(pixel_map, truth):
    return max(overlap(pixel_map >= t, truth) for t in np.unique(pixel_map))


@given(map_and_truth())
def test_the_loop_over_thresholds(problem):
    pixel_map, truth = problem
    assert iou(pixel_map, truth) == pytest.approx(by_thresholds(pixel_map, truth), abs=1e-15)
    assert iou(pixel_map, truth) >= truth.mean() - 1e-15


def test_the_loop_over_many_thresholds():
    rng = np.random.default_rng(0)
    truth = np.zeros((30, 40), dtype=bool)
    truth[5:17, 8:30] = True
    pixel_map = np.round(rng.normal(size=truth.shape) + 1.5 * truth, 1)
    assert iou(pixel_map, truth) == pytest.approx(by_thresholds(pixel_map, truth), abs=1e-15)


@pytest.mark.parametrize(
    ("pixel_map", "best", "matched"),
    [
        ([[9, 8, 1, 1], [1, 1, 1, 1]], 1, 1),  # the object exactly
        ([[9, 7, 8, 1], [1, 1, 1, 1]], 2 / 3, 1 / 3),  # one stranger in between
        ([[1, 1, 9, 9], [9, 9, 9, 9]], 1 / 4, 0),  # the opposite: only everything will do
        ([[-1, -2, -3, -3], [-3, -3, -3, -3]], 1, 1),  # the sign does not matter, the order does
    ],
)
@pytest.mark.parametrize("library", [np.asarray, torch.as_tensor])
def test_known_answers(pixel_map, best, matched, library):
    truth = library(np.array([[1, 1, 0, 0], [0, 0, 0, 0]], dtype=bool))
    pixel_map = library(np.array(pixel_map, dtype=np.float64))
    assert iou(pixel_map, truth) == pytest.approx(best)
    assert area_iou(pixel_map, truth) == pytest.approx(matched)


def test_every_pixel_inside_is_always_found():
    assert iou(np.array([[3.0, 1.0]]), np.ones((1, 2))) == 1
    assert area_iou(np.array([[3.0, 1.0]]), np.ones((1, 2))) == 1


@given(map_and_truth(st.floats(-1, 1)))
def test_area_matched_is_the_threshold_at_the_objects_area(problem):
    pixel_map, truth = problem
    values = np.sort(pixel_map.ravel())[::-1]
    area = truth.sum()
    if area < values.size and values[area - 1] == values[area]:
        return  # a tie across the cut: for the seed to decide
    assert area_iou(pixel_map, truth) == pytest.approx(overlap(pixel_map >= values[area - 1], truth))
    assert area_iou(pixel_map, truth) <= iou(pixel_map, truth) + 1e-15


def test_ties_are_broken_by_the_seed_and_not_by_the_place():
    truth = np.zeros((20, 20), dtype=bool)
    truth[:5] = True  # what a reading from the top left would take
    constant = np.ones(truth.shape)
    found = [area_iou(constant, truth, generator=seed) for seed in range(40)]
    assert area_iou(constant, truth, generator=3) == found[3]
    assert len(set(found)) > 5
    assert np.mean(found) == pytest.approx(0.25 / 1.75, abs=0.02)


def test_a_permuted_map_scores_at_chance():
    rng = np.random.default_rng(0)
    truth = np.zeros((64, 64), dtype=bool)
    truth[20:52, 10:42] = True  # a quarter
    pixel_map = rng.normal(size=truth.shape) + 4 * truth
    assert iou(pixel_map, truth) > 0.9
    assert area_iou(pixel_map, truth) > 0.9
    permuted = [rng.permutation(pixel_map.ravel()).reshape(truth.shape) for _ in range(50)]
    assert np.mean([iou(each, truth) for each in permuted]) == pytest.approx(0.25, abs=0.01)
    assert np.mean([area_iou(each, truth) for each in permuted]) == pytest.approx(0.25 / 1.75, abs=0.005)


@given(map_and_truth(), st.sampled_from([1e-6, 1e6]))
def test_scale_and_increasing_functions_change_nothing(problem, factor):
    pixel_map, truth = problem
    for metric in (iou, area_iou):
        wanted = metric(pixel_map, truth)
        assert metric(pixel_map * factor, truth) == wanted
        assert metric(np.exp(pixel_map), truth) == wanted
        assert metric(pixel_map + 7, truth) == wanted


@pytest.mark.parametrize("metric", [iou, area_iou])
def test_bad_input(metric):
    with pytest.raises(ValueError, match=r"^`truth` must mark the object"):
        metric(np.ones((2, 2)), np.zeros((2, 2)))
    with pytest.raises(ValueError, match=r"^`truth` must be as large as `pixel_map`"):
        metric(np.ones((2, 2)), np.ones((4, 1)))
    with pytest.raises(ValueError, match=r"^`pixel_map` must be finite"):
        metric(np.full((2, 2), np.nan), np.ones((2, 2)))


def test_a_bad_seed():
    with pytest.raises(TypeError, match=r"^`generator` must be"):
        area_iou(np.ones((2, 2)), np.ones((2, 2)), generator=-1)
