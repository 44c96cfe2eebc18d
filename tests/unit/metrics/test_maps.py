"""The checks that the metrics share, shares and means."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from usu.metrics.maps import checked_cells, checked_truth, dense_cells, group_means, share_inside

SIZE = (2, 3)
WANTED = [[True, False, True], [False, False, True]]


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.int64, np.float32, np.float64])
@pytest.mark.parametrize("library", [np.asarray, torch.as_tensor])
def test_booleans_and_zeros_and_ones_of_any_type(dtype, library):
    found = checked_truth(library(np.array(WANTED, dtype=dtype)), SIZE)
    assert found.dtype == torch.bool
    assert found.tolist() == WANTED


def test_a_truth_that_cannot_be_written_to():
    truth = np.array(WANTED)
    truth.flags.writeable = False
    assert checked_truth(truth[:, ::-1], SIZE).tolist() == np.array(WANTED)[:, ::-1].tolist()


def test_every_pixel_is_welcome_and_none_only_where_it_is_not_needed():
    assert checked_truth(np.ones(SIZE), SIZE).all()
    assert not checked_truth(np.zeros(SIZE), SIZE, needed=False).any()
    with pytest.raises(ValueError, match="`truth` must mark the object"):
        checked_truth(np.zeros(SIZE), SIZE)


@pytest.mark.parametrize(("value", "said"), [(255, "255"), (0.5, "0.5"), (-1.0, "-1"), (np.nan, "nan")])
def test_a_truth_that_is_not_zero_and_one(value, said):
    truth = np.array([[0, 1, value], [0, 0, 1]], dtype=np.float64)
    with pytest.raises(ValueError, match=rf"`truth` must .* got values such as {said}\."):
        checked_truth(truth, SIZE)


@pytest.mark.parametrize("scale", [5e-324, 1e-300, 1e-6, 1.0, 1e6, 1e308])
def test_a_share_of_any_scale(scale):
    weight = torch.tensor([1.0, 1.0, 0.0, 0.0], dtype=torch.float64) * scale
    assert share_inside(weight, torch.tensor([True, False, True, False])) == 0.5


def test_a_share_is_never_above_one():
    inside = torch.rand(64, 64, generator=torch.Generator().manual_seed(0)) < 0.7
    for seed in range(50):
        weight = torch.rand(64, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) * inside
        assert share_inside(weight, inside) == 1


def test_cells_of_a_grid_are_those_of_nearest_exact():
    grid = torch.arange(12, dtype=torch.float64).reshape(1, 1, 3, 4)
    wanted = torch.nn.functional.interpolate(grid, (10, 9), mode="nearest-exact")[0, 0].long()
    for cells in ((3, 4), [3, 4], torch.Size((3, 4)), wanted.numpy(), wanted.int()):
        assert torch.equal(checked_cells(cells, (10, 9)), wanted)


@pytest.mark.parametrize("cells", [(3, 3), (0, 1), (1.5, 1), 2, (1, 1, 1), "ab", None])
def test_a_grid_that_does_not_fit(cells):
    with pytest.raises(ValueError, match=r"`cells` must be .* from 1 x 1 to 2 x 3; got"):
        checked_cells(cells, SIZE)


@pytest.mark.parametrize(("labels", "error"), [(np.ones(SIZE), TypeError), (np.ones((2, 2), dtype=int), ValueError)])
def test_labels_that_will_not_do(labels, error):
    with pytest.raises(error, match="`segments` must"):
        dense_cells(labels, SIZE, "segments")


def test_dense_cells_have_no_gaps():
    labels, count = dense_cells((2, 2), (4, 5))
    assert labels.tolist() == [[0, 0, 1, 1, 1]] * 2 + [[2, 2, 3, 3, 3]] * 2
    assert count == 4
    labels, count = dense_cells(np.array([[7, -1], [7, 3]]), (2, 2))
    assert labels.tolist() == [[2, 0], [2, 1]]
    assert count == 3


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 6))
def test_group_means_by_counting(seed, count):
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(count), rng.integers(0, count, 30)])
    field = rng.normal(size=labels.size)
    ours = group_means(torch.from_numpy(field), torch.from_numpy(labels), count).numpy()
    np.testing.assert_allclose(ours, [field[labels == k].mean() for k in range(count)], atol=1e-12)


def test_group_means_keep_ties():
    """0.1 added seven times and divided by seven is not 0.1; here it is."""
    labels = torch.arange(10).repeat_interleave(torch.arange(1, 11))
    assert group_means(torch.full((55,), 0.1, dtype=torch.float64), labels, 10).tolist() == [0.1] * 10
