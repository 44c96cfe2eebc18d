"""Localization against loops written from the definitions, and AUROC within cells against scikit-learn."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import usu
from tests.problems import grid_labels
from usu.metrics import area_iou, cell_auroc, concentration, energy_in_mask, iou, pointing_game

LIBRARIES = pytest.mark.parametrize("library", [np.asarray, torch.as_tensor])


#: So few that there are ties.
VALUES = st.integers(-3, 3).map(float)


@st.composite
def map_and_truth(draw, values=VALUES):
    """At least one pixel is inside."""
    shape = draw(hnp.array_shapes(min_dims=2, max_dims=2, max_side=7))
    pixel_map = draw(hnp.arrays(np.float64, shape, elements=values, fill=st.nothing()))
    truth = draw(hnp.arrays(np.bool_, shape, fill=st.nothing()))
    truth.flat[draw(st.integers(0, truth.size - 1))] = True
    return pixel_map, truth


def disc(height, width, radius):
    y, x = np.mgrid[:height, :width]
    return (y - height / 2) ** 2 + (x - width / 2) ** 2 < radius**2


def overlap(chosen, truth):
    return (chosen & truth).sum() / (chosen | truth).sum()


def nearest_hits(pixel_map, truth, tolerance):
    """Every highest pixel asks every pixel of the object how far it is."""
    highest = np.argwhere(pixel_map == pixel_map.max()).tolist()
    near = [any(math.hypot(y - v, x - u) <= tolerance for v, u in np.argwhere(truth).tolist()) for y, x in highest]
    return np.mean(near)


@settings(max_examples=60)
@given(map_and_truth(), st.sampled_from([0, 1, 1.5, 2, 5]), st.sampled_from([1e-6, 1.0, 1e6]))
def test_every_metric_is_its_definition_at_any_scale(problem, tolerance, factor):
    pixel_map, truth = problem
    pairs = list(zip(pixel_map.ravel().tolist(), truth.ravel().tolist(), strict=True))
    sums = {
        concentration: (sum(abs(v) for v, hit in pairs if hit), sum(abs(v) for v, _ in pairs)),
        energy_in_mask: (sum(v for v, hit in pairs if hit and v > 0), sum(v for v, _ in pairs if v > 0)),
    }
    for metric, (inside, all_of_it) in sums.items():
        expected = inside / all_of_it if all_of_it else truth.mean()
        assert metric(pixel_map * factor, truth) == pytest.approx(expected, abs=1e-12)
    assert concentration(-pixel_map, truth) == concentration(pixel_map, truth)
    assert energy_in_mask(np.abs(pixel_map), truth) == concentration(pixel_map, truth)
    best = max(overlap(pixel_map >= t, truth) for t in np.unique(pixel_map))
    assert iou(pixel_map * factor, truth) == pytest.approx(best, abs=1e-15)
    found = pointing_game(pixel_map * factor, truth, tolerance=tolerance)
    assert found == pytest.approx(nearest_hits(pixel_map, truth, tolerance), abs=1e-15)
    for metric in (iou, area_iou, pointing_game):  # any increasing function
        assert metric(np.exp(pixel_map), truth) == metric(pixel_map * factor, truth) == metric(pixel_map + 7, truth)


@settings(max_examples=40)
@given(map_and_truth(st.floats(-1, 1)))
def test_area_iou_is_the_threshold_at_the_objects_area(problem):
    pixel_map, truth = problem
    values, area = np.sort(pixel_map.ravel())[::-1], truth.sum()
    if area < values.size and values[area - 1] == values[area]:
        return  # a tie across the cut: for the seed to decide
    assert area_iou(pixel_map, truth) == pytest.approx(overlap(pixel_map >= values[area - 1], truth))
    assert area_iou(pixel_map, truth) <= iou(pixel_map, truth) + 1e-15


@pytest.mark.parametrize(
    ("pixel_map", "wanted"),
    [  # concentration, energy, pointing game, IoU, IoU at the object's area
        ([[9, 8, 0, 0], [0, 0, 0, 0]], (1, 1, 1, 1, 1)),
        ([[0, 0, 1, 1], [1, 1, 1, 1]], (0, 0, 0, 1 / 4, 0)),  # the opposite: only everything will do
        ([[9, 7, 8, 0], [0, 0, 0, 0]], (16 / 24, 16 / 24, 1, 2 / 3, 1 / 3)),  # one stranger in between
        ([[1, -2, 3, -4], [0, 0, 0, 0]], (3 / 10, 1 / 4, 0, 1 / 3, 1 / 3)),  # of either sign, the positive alone
        ([[-1, -2, -3, -3], [-3, -3, -3, -3]], (3 / 21, 1 / 4, 1, 1, 1)),  # nowhere positive: as a constant
    ],
)
@LIBRARIES
def test_known_answers(pixel_map, wanted, library):
    pixel_map = library(np.array(pixel_map, dtype=np.float64))
    truth = library(np.array([[1, 1, 0, 0], [0, 0, 0, 0]], dtype=bool))
    found = [metric(pixel_map, truth) for metric in (concentration, energy_in_mask, pointing_game, iou, area_iou)]
    assert found == pytest.approx(wanted, abs=1e-15)


def test_what_says_nothing_gets_the_area_share_and_every_pixel_inside_is_found():
    truth = np.array([[1, 0, 0, 0]])
    for metric in (concentration, energy_in_mask, pointing_game, iou):
        assert [metric(np.full((1, 4), value), truth) for value in (0.0, 5.0)] == [0.25, 0.25]
    for metric in (concentration, energy_in_mask, pointing_game, iou, area_iou):
        assert metric(np.array([[3.0, 1.0]]), np.ones((1, 2))) == 1


@LIBRARIES
def test_the_tolerance_is_a_disc_around_the_object(library):
    truth = np.zeros((5, 5), dtype=bool)
    truth[2, 2] = True

    def at(*places):
        pixel_map = np.full((5, 5), -3.0)
        for place in places:
            pixel_map[place] = -1.0
        return library(pixel_map)

    truth = library(truth)
    assert pointing_game(at((2, 2), (0, 0), (4, 4), (0, 4)), truth) == 1 / 4  # the share of the highest
    assert [pointing_game(at((2, 3)), truth, tolerance=t) for t in (0, 1)] == [0, 1]
    assert [pointing_game(at((1, 1)), truth, tolerance=t) for t in (1, math.sqrt(2))] == [0, 1]


def test_ties_are_broken_by_the_seed_and_not_by_the_place():
    truth = np.zeros((20, 20), dtype=bool)
    truth[:5] = True  # what a reading from the top left would take
    found = [area_iou(np.ones(truth.shape), truth, generator=seed) for seed in range(40)]
    assert area_iou(np.ones(truth.shape), truth, generator=3) == found[3]
    assert len(set(found)) > 5
    assert np.mean(found) == pytest.approx(0.25 / 1.75, abs=0.02)


def test_a_permuted_map_scores_at_chance():
    rng = np.random.default_rng(0)
    truth = np.zeros((32, 32), dtype=bool)
    truth[8:24, 8:24] = True  # a quarter
    pixel_map = rng.normal(size=truth.shape) + 9 * truth
    permuted = [rng.permutation(pixel_map.ravel()).reshape(truth.shape) for _ in range(100)]
    chance = {concentration: 0.25, energy_in_mask: 0.25, iou: 0.25, area_iou: 0.25 / 1.75, pointing_game: 0.25}
    for metric, wanted in chance.items():
        assert metric(pixel_map, truth) > 0.75
        # four standard errors of a hit or miss; the others are means over many pixels
        slack = 4 * np.sqrt(0.25 * 0.75 / 100) if metric is pointing_game else 0.01
        assert np.mean([metric(each, truth) for each in permuted]) == pytest.approx(wanted, abs=slack)


def auroc_by_pairs(pixel_map, truth, labels, least):
    won = pairs = 0.0
    for label in np.unique(labels):
        here = labels == label
        inside, outside = pixel_map[here & truth], pixel_map[here & ~truth]
        if min(inside.size, outside.size) < least:
            continue
        gap = inside[:, None] - outside
        won += (gap > 0).sum() + (gap == 0).sum() / 2
        pairs += gap.size
    return won / pairs if pairs else np.nan


@settings(max_examples=60)
@given(map_and_truth(), st.data(), st.sampled_from([1, 2, 4]), st.sampled_from([1e-6, 1e6]))
def test_auroc_counts_pairs_and_only_the_order_in_each_cell_matters(problem, data, least, factor):
    pixel_map, truth = problem
    cells = st.sampled_from([-3, 0, 1, 70])
    labels = data.draw(hnp.arrays(np.int64, truth.shape, elements=cells, fill=st.nothing()))
    found = cell_auroc(pixel_map, truth, labels, least=least)
    assert found == pytest.approx(auroc_by_pairs(pixel_map, truth, labels, least), abs=1e-12, nan_ok=True)
    for same in (pixel_map * factor, np.exp(pixel_map) * (4 + labels)):
        assert cell_auroc(same, truth, labels, least=least) == pytest.approx(found, abs=0, nan_ok=True)


@pytest.mark.parametrize(("grid", "size"), [((7, 7), (56, 56)), ((4, 6), (50, 41))])
def test_scikit_learn_cell_by_cell(grid, size):
    roc_auc_score = pytest.importorskip("sklearn.metrics").roc_auc_score
    truth, labels = disc(*size, 15), grid_labels(grid, size)
    pixel_map = np.round(np.random.default_rng(0).normal(size=size) + truth, 1)
    areas, weights = [], []
    for label in range(grid[0] * grid[1]):
        here = labels == label
        if truth[here].any() and not truth[here].all():
            areas.append(roc_auc_score(truth[here], pixel_map[here]))
            weights.append(truth[here].sum() * (~truth[here]).sum())
    assert len(areas) > 4
    assert cell_auroc(pixel_map, truth, grid) == pytest.approx(np.average(areas, weights=weights), abs=1e-12)
    assert cell_auroc(pixel_map, truth, labels) == cell_auroc(pixel_map, truth, grid)


@pytest.mark.parametrize(("grid", "size"), [((7, 7), (224, 224)), ((3, 5), (50, 41))])
def test_nearest_neighbour_is_exactly_chance(grid, size):
    coarse = np.random.default_rng(0).normal(size=grid)
    assert cell_auroc(usu.interpolate(coarse, size, "nearest"), disc(*size, size[0] / 3), grid) == 0.5


@LIBRARIES
def test_auroc_known_answers(library):
    truth = library(np.array([[1, 0, 0, 0, 1, 1, 0, 0]]))
    perfect = library(np.array([[2.0, 1, 1, 1, -1, -1, -2, -2]]))  # the second cell is lower, and as right
    assert cell_auroc(perfect, truth, (1, 2)) == 1
    assert cell_auroc(-perfect, truth, (1, 2)) == 0
    same = library(np.array([[1.0, 1, 1, 2, 3, 2, 2, 2]]))  # a value on both sides of a cell's border is no tie
    assert cell_auroc(same, truth, (1, 2)) == pytest.approx((2 / 2 + 2 + 2 / 2) / 7)
    half = library(np.array([[2.0, 1, 1, 1, -2, -2, -1, -1]]))  # 3 of 3 pairs, and 0 of 4
    assert cell_auroc(half, truth, (1, 2)) == pytest.approx(3 / 7)
    assert cell_auroc(half, truth, (1, 2), least=2) == 0  # the first cell has one pixel inside


def test_no_cell_on_both_sides():
    pixel_map, halves = np.arange(8.0).reshape(2, 4), np.array([[1, 1, 0, 0], [1, 1, 0, 0]])
    for truth in (halves, np.zeros((2, 4)), np.ones((2, 4))):
        assert np.isnan(cell_auroc(pixel_map, truth, (1, 2)))
    assert np.isnan(cell_auroc(pixel_map, halves, (1, 1), least=5))
    assert cell_auroc(pixel_map, halves, (1, 1), least=4) == pytest.approx(4 / 16)


def test_pixels_permuted_within_cells_score_at_chance():
    rng = np.random.default_rng(0)
    truth, labels = disc(56, 56, 18), grid_labels((7, 7), (56, 56))
    pixel_map = rng.normal(size=truth.shape) + 2 * truth + 5 * rng.normal(size=49)[labels]
    assert cell_auroc(pixel_map, truth, (7, 7)) > 0.9
    found, ordered = [], np.argsort(labels.ravel())
    for _ in range(50):
        permuted = np.empty(labels.size)
        permuted[ordered] = pixel_map.ravel()[np.lexsort((rng.random(labels.size), labels.ravel()))]
        found.append(cell_auroc(permuted.reshape(truth.shape), truth, (7, 7)))
    assert np.mean(found) == pytest.approx(0.5, abs=0.01)
