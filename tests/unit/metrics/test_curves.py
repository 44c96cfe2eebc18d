"""The walk and the area against loops written from their definitions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from usu.forward import engine
from usu.metrics.curves import area, cuts, group_means, label_map, walk

WEIGHTS = torch.tensor([3.0, -1.0, 0.5])[:, None, None]


def weighted(batch):
    """Sees each channel by itself, and not in a straight line."""
    return (batch * WEIGHTS).sum((1, 2, 3))[:, None] + batch.square().sum((1, 2, 3))[:, None]


@pytest.mark.parametrize("insert", [False, True])
@pytest.mark.parametrize("channelwise", [False, True])
@pytest.mark.parametrize("chunk", [None, 2])
def test_every_row_is_the_picture_built_by_hand(insert, channelwise, chunk):
    generator = torch.Generator().manual_seed(1)
    image, filled = torch.randn(2, 3, 4, 5, generator=generator, dtype=torch.float64)
    count = 60 if channelwise else 20
    order = torch.randperm(count, generator=generator)
    counts = torch.tensor([0, 1, 7, 7, count])
    expected = []
    for n in counts.tolist():
        start, end = (filled, image) if insert else (image, filled)
        picture = start.clone()
        for k in order[:n].tolist():
            where = np.unravel_index(k, (3, 4, 5) if channelwise else (4, 5))
            if channelwise:
                picture[where] = end[where]
            else:
                picture[:, where[0], where[1]] = end[:, where[0], where[1]]
        expected.append(float(weighted(picture[None])))
    ours = walk(engine(weighted, 0, chunk=chunk), image, filled, order, counts, insert=insert)
    np.testing.assert_allclose(ours, expected, rtol=1e-12)


def test_a_target_of_several_numbers_is_refused():
    asked = engine(lambda batch: batch, lambda output: output.flatten(1))
    picture = torch.zeros(1, 2, 2)
    with pytest.raises(ValueError, match="`target` must give one number per picture for a metric; got 4"):
        walk(asked, picture, picture, torch.arange(4), torch.tensor([0]), insert=False)


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=9), st.integers(0, 10**6))
def test_area_is_numpys_trapezoid(values, seed):
    places = np.sort(np.random.default_rng(seed).random(len(values)))
    expected = np.trapezoid(values, places) if hasattr(np, "trapezoid") else np.trapz(values, places)
    assert area(torch.tensor(values, dtype=torch.float64), torch.tensor(places)) == pytest.approx(expected, abs=1e-9)


@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n))))
def test_cuts_are_the_nearest_whole_numbers(problem):
    pixels, steps = problem
    ours = cuts(pixels, steps)
    assert ours[0] == 0
    assert ours[-1] == pixels
    assert len(ours) == steps + 1
    assert bool((ours.diff() >= 1).all())
    exact = np.arange(steps + 1) * pixels / steps
    assert np.abs(ours.numpy() - exact).max() <= 0.5 + 1e-9


def test_label_map_takes_grids_and_labels_with_gaps():
    labels, count = label_map("cells", (2, 2), (4, 5))
    assert labels.tolist() == [[0, 0, 1, 1, 1]] * 2 + [[2, 2, 3, 3, 3]] * 2
    assert count == 4
    labels, count = label_map("cells", np.array([[7, -1], [7, 3]]), (2, 2))
    assert labels.tolist() == [[2, 0], [2, 1]]
    assert count == 3


def test_label_map_names_what_it_refuses():
    """What is refused is tested with `checked_cells`."""
    with pytest.raises(ValueError, match="`segments` must be a label per pixel"):
        label_map("segments", (0, 2), (4, 4))
    with pytest.raises(TypeError, match=r"`segments` must hold integer labels; got torch\.float64"):
        label_map("segments", np.zeros((4, 4)), (4, 4))


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
