"""Insertion: the mirror of deletion, and its own known answers."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from usu.metrics.deletion import deletion
from usu.metrics.insertion import insertion


def total(batch):
    return batch.sum((1, 2, 3))[:, None]


def bent(batch):
    """Two classes, and nothing additive about them."""
    value = (batch[:, :, :-1] * batch[:, :, 1:]).sum((1, 2, 3))
    return torch.stack([value, value * 0], 1)


def test_the_curve_of_an_additive_model():
    """Pixels worth 1 to 4 on a fill of 0, the best first."""
    picture = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])
    measured = insertion(picture[0], picture, total, 0, fill=0, steps=4, link="logit")
    np.testing.assert_allclose(measured.curve, [0, 4, 7, 9, 10])
    assert measured.value == pytest.approx(25 / 4)


def test_the_mean_is_the_default_fill():
    picture = torch.tensor([[[0.0, 4.0]]])
    measured = insertion(picture[0], picture, total, 0, steps=2, link="logit")
    np.testing.assert_allclose(measured.curve, [4, 6, 4])


@given(seed=st.integers(0, 10**6), steps=st.sampled_from([1, 2, 3, 4, 6, 12]))
def test_inserting_is_deleting_the_other_way_round(seed, steps):
    """The best shown first is the worst taken first, read backwards."""
    generator = torch.Generator().manual_seed(seed)
    picture = torch.randn(3, 3, 4, generator=generator, dtype=torch.float64)
    pixel_map = torch.randn(3, 4, generator=generator, dtype=torch.float64)
    forwards = insertion(pixel_map, picture, bent, 0, steps=steps)
    backwards = deletion(-pixel_map, picture, bent, 0, steps=steps)
    np.testing.assert_allclose(forwards.curve, backwards.curve[::-1], atol=1e-12)
    assert forwards.value == pytest.approx(backwards.value, abs=1e-12)
    assert 0 <= forwards.value <= 1


def test_the_perfect_ranking_is_the_best_of_all():
    picture = torch.randn(1, 2, 3, generator=torch.Generator().manual_seed(5), dtype=torch.float64)

    def value(pixel_map):
        return insertion(pixel_map, picture, total, 0, fill=0, steps=6, link="logit").value

    areas = [value(torch.tensor(order, dtype=torch.float64).reshape(2, 3)) for order in permutations(range(6))]
    assert value(picture[0]) == pytest.approx(max(areas))
    assert max(areas) > np.median(areas)


@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_the_scale_of_the_map_does_not_matter(factor):
    generator = torch.Generator().manual_seed(0)
    picture, pixel_map = torch.rand(2, 6, 6, generator=generator), torch.randn(6, 6, generator=generator)
    first, second = (insertion(pixel_map * f, picture, bent, 0).value for f in (1, factor))
    assert first == second


@pytest.mark.parametrize(("target", "extra"), [(0, 0), (None, 1)])
def test_the_cost_is_counted(target, extra):
    seen = []

    def model(batch):
        seen.append(len(batch))
        return bent(batch)

    picture = torch.rand(1, 4, 4)
    assert insertion(picture[0], picture, model, target, steps=5).evaluations == sum(seen) == 6 + extra


def test_bad_input():
    with pytest.raises(ValueError, match="`steps` must be a whole number from 1 to the number of pixels"):
        insertion(torch.rand(2, 2), torch.rand(1, 2, 2), total, 0, steps=5)
    with pytest.raises(ValueError, match="`pixel_map` must be as large as the picture"):
        insertion(torch.rand(2, 3), torch.rand(1, 2, 2), total, 0)
