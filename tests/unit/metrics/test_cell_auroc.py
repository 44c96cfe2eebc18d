"""AUROC within cells against scikit-learn, cell by cell, and against counting pairs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import usu
from usu.metrics.cell_auroc import cell_auroc
from usu.operator.cells import Grid


def disc(height, width, radius):
    y, x = np.mgrid[:height, :width]
    return (y - height / 2) ** 2 + (x - width / 2) ** 2 < radius**2


def grid_labels(grid, size):
    return Grid(grid, size, torch.device("cpu")).labels().numpy()


def by_pairs(pixel_map, truth, labels, least):
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


@given(st.data(), st.sampled_from([1, 2, 4]))
def test_counting_pairs(data, least):
    shape = data.draw(hnp.array_shapes(min_dims=2, max_dims=2, max_side=7))
    # each pixel drawn by itself: arrays that are mostly one value have one cell, or no ties across cells
    draws = {"shape": shape, "fill": st.nothing()}
    pixel_map = data.draw(hnp.arrays(np.float64, elements=st.integers(-2, 2).map(float), **draws))
    truth = data.draw(hnp.arrays(np.bool_, **draws))
    labels = data.draw(hnp.arrays(np.int64, elements=st.sampled_from([-3, 0, 1, 70]), **draws))
    found = cell_auroc(pixel_map, truth, labels, least=least)
    assert found == pytest.approx(by_pairs(pixel_map, truth, labels, least), abs=1e-12, nan_ok=True)


@pytest.mark.parametrize(("grid", "size"), [((7, 7), (56, 56)), ((4, 6), (50, 41))])
@pytest.mark.parametrize("decimals", [1, 8])
def test_scikit_learn_cell_by_cell(grid, size, decimals):
    roc_auc_score = pytest.importorskip("sklearn.metrics").roc_auc_score
    truth, labels = disc(*size, 15), grid_labels(grid, size)
    pixel_map = np.round(np.random.default_rng(0).normal(size=size) + truth, decimals)
    areas, weights = [], []
    for label in range(grid[0] * grid[1]):
        here = labels == label
        if truth[here].any() and not truth[here].all():
            areas.append(roc_auc_score(truth[here], pixel_map[here]))
            weights.append(truth[here].sum() * (~truth[here]).sum())
            found = cell_auroc(pixel_map, truth & here, np.where(here, 0, 1 + labels))
            assert found == pytest.approx(areas[-1], abs=1e-12)  # one cell by itself
    assert len(areas) > 4
    assert cell_auroc(pixel_map, truth, grid) == pytest.approx(np.average(areas, weights=weights), abs=1e-12)
    assert cell_auroc(pixel_map, truth, labels) == cell_auroc(pixel_map, truth, grid)


@pytest.mark.parametrize(("grid", "size"), [((7, 7), (224, 224)), ((3, 5), (50, 41))])
def test_nearest_neighbour_is_exactly_chance(grid, size):
    coarse = np.random.default_rng(0).normal(size=grid)
    assert cell_auroc(usu.interpolate(coarse, size, "nearest"), disc(*size, size[0] / 3), grid) == 0.5


@pytest.mark.parametrize("library", [np.asarray, torch.as_tensor])
def test_known_answers(library):
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
    pixel_map = np.arange(8.0).reshape(2, 4)
    halves = np.array([[1, 1, 0, 0], [1, 1, 0, 0]])
    assert np.isnan(cell_auroc(pixel_map, halves, (1, 2)))
    assert np.isnan(cell_auroc(pixel_map, np.zeros((2, 4)), (1, 2)))
    assert np.isnan(cell_auroc(pixel_map, np.ones((2, 4)), (1, 2)))
    assert np.isnan(cell_auroc(pixel_map, halves, (1, 1), least=5))
    assert cell_auroc(pixel_map, halves, (1, 1), least=4) == pytest.approx(4 / 16)


def test_pixels_permuted_within_cells_score_at_chance():
    rng = np.random.default_rng(0)
    truth, labels = disc(56, 56, 18), grid_labels((7, 7), (56, 56))
    pixel_map = rng.normal(size=truth.shape) + 2 * truth + 5 * rng.normal(size=49)[labels]
    assert cell_auroc(pixel_map, truth, (7, 7)) > 0.9
    found = []
    for _ in range(100):
        # by cell, then at random; and the pixels by cell
        shuffled, ordered = np.lexsort((rng.random(labels.size), labels.ravel())), np.argsort(labels.ravel())
        permuted = np.empty(labels.size)
        permuted[ordered] = pixel_map.ravel()[shuffled]
        found.append(cell_auroc(permuted.reshape(truth.shape), truth, (7, 7)))
    assert np.mean(found) == pytest.approx(0.5, abs=0.01)


@given(st.integers(0, 50), st.sampled_from([1e-6, 1e6]))
def test_scale_and_functions_increasing_in_each_cell_change_nothing(seed, factor):
    rng = np.random.default_rng(seed)
    truth, labels = disc(20, 20, 7), grid_labels((4, 4), (20, 20))
    pixel_map = np.round(rng.normal(size=truth.shape), 1)
    wanted = cell_auroc(pixel_map, truth, (4, 4))
    assert cell_auroc(pixel_map * factor, truth, (4, 4)) == wanted
    assert cell_auroc(np.exp(pixel_map) * (1 + labels), truth, (4, 4)) == wanted


def test_bad_input():
    ones = np.ones((2, 2))
    with pytest.raises(ValueError, match=r"^`cells` must be a label per pixel, or the shape"):
        cell_auroc(ones, ones, (3, 3))
    with pytest.raises(TypeError, match=r"^`cells` must hold integer labels"):
        cell_auroc(ones, ones, ones)
    with pytest.raises(ValueError, match=r"^`truth` must be as large as `pixel_map`"):
        cell_auroc(ones, np.ones((2, 3)), (1, 1))
    with pytest.raises(ValueError, match=r"^`pixel_map` must be finite"):
        cell_auroc(ones * np.nan, ones, (1, 1))
    for least in (0, 1.5, True):
        with pytest.raises(ValueError, match=r"^`least` must be a whole number of at least 1; got"):
            cell_auroc(ones, ones, (1, 1), least=least)
