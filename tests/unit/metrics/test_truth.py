"""The checks that the metrics with a truth share."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from usu.metrics.truth import checked_cells, checked_labels, checked_truth, share_inside

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
    with pytest.raises(ValueError, match=r"^`truth` must mark the object; got not one pixel inside\. Leave such"):
        checked_truth(np.zeros(SIZE), SIZE)


def test_a_truth_of_another_size():
    with pytest.raises(ValueError, match=r"^`truth` must be as large as `pixel_map` \(2 x 3\); got 3 x 2\. Resize it"):
        checked_truth(np.ones((3, 2)), SIZE)


@pytest.mark.parametrize(("value", "said"), [(255, "255"), (0.5, "0.5"), (-1.0, "-1"), (np.nan, "nan")])
def test_a_truth_that_is_not_zero_and_one(value, said):
    truth = np.array([[0, 1, value], [0, 0, 1]], dtype=np.float64)
    with pytest.raises(
        ValueError, match=rf"^`truth` must be boolean, or hold 0 and 1; got values such as {said}\. Com"
    ):
        checked_truth(truth, SIZE)


def test_a_truth_that_is_no_array():
    with pytest.raises(TypeError, match=r"^`truth` must be a numpy array or a torch tensor; got list\."):
        checked_truth(WANTED, SIZE)


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
    message = r"^`cells` must be a label per pixel, or the shape \(h, w\) of a grid, from 1 x 1 to 2 x 3; got .+\. For"
    with pytest.raises(ValueError, match=message):
        checked_cells(cells, SIZE)


@pytest.mark.parametrize("dtype", [np.float32, np.bool_])
def test_labels_that_are_no_integers(dtype):
    with pytest.raises(
        TypeError, match=r"^`segments` must hold integer labels; got torch\..+\. Convert it, e\.g\. to i"
    ):
        checked_labels("segments", np.ones(SIZE, dtype=dtype), SIZE)


def test_labels_of_another_size():
    with pytest.raises(ValueError, match=r"^`cells` must be as large as `pixel_map` \(2 x 3\); got 2 x 2\. Give every"):
        checked_cells(np.ones((2, 2), dtype=int), SIZE)
