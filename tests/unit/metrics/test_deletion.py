"""Deletion of additive models, whose curve can be written down, and the laws of the area."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from usu.metrics.deletion import deletion


class Counting:
    """Two classes, the first additive in the pixels, and how many pictures it has seen."""

    def __init__(self, weights=None):
        self.weights, self.pictures = weights, 0

    def __call__(self, batch):
        self.pictures += len(batch)
        weighted = batch if self.weights is None else batch * self.weights
        total = weighted.sum((1, 2, 3))
        return torch.stack([total, torch.zeros_like(total)], 1)


def test_the_curve_of_an_additive_model():
    """Ten pixels worth 1 to 10 with a fill of 0: what is left after the k best is (10 - k)(11 - k) / 2."""
    picture = torch.arange(1.0, 11.0).reshape(1, 2, 5)
    measured = deletion(picture[0], picture, Counting(), 0, fill=0, steps=10, link="logit")
    left = [(10 - k) * (11 - k) / 2 for k in range(11)]
    np.testing.assert_allclose(measured.curve, left)
    assert measured.value == pytest.approx(sum(left) / 10 - 55 / 20)  # the first and the last point count half


def test_steps_that_do_not_divide():
    """10 pixels in 4 steps: 0, 3, 5, 8, 10 are filled, and the area knows that the steps are not equal."""
    picture = torch.arange(1.0, 11.0).reshape(1, 2, 5)
    measured = deletion(picture[0], picture, Counting(), 0, fill=0, steps=4, link="logit")
    np.testing.assert_allclose(measured.curve, [55, 28, 15, 3, 0])
    assert measured.value == pytest.approx((83 / 2 * 3 + 43 / 2 * 2 + 18 / 2 * 3 + 3 / 2 * 2) / 10)


def test_the_mean_is_the_default_fill():
    """Deleting all of a picture leaves its mean colour, so that an unweighted sum ends where it began."""
    picture = torch.randn(3, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    curve = deletion(picture.sum(0), picture, Counting(), 0, link="logit").curve
    assert curve[0] == pytest.approx(curve[-1])
    assert curve[8] < curve[0]


def test_probabilities_are_the_default_link():
    picture = torch.tensor([[[2.0, 0.5]]])
    curve = deletion(picture[0], picture, Counting(), 0, fill=0, steps=2).curve
    np.testing.assert_allclose(curve, 1 / (1 + np.exp([-2.5, -0.5, 0.0])))


def test_the_perfect_ranking_is_the_best_of_all():
    generator = torch.Generator().manual_seed(3)
    picture, weights = torch.randn(2, 1, 2, 3, generator=generator, dtype=torch.float64)
    model = Counting(weights)

    def value(pixel_map):
        return deletion(pixel_map, picture, model, 0, fill=0, steps=6, link="logit").value

    areas = [value(torch.tensor(order, dtype=torch.float64).reshape(2, 3)) for order in permutations(range(6))]
    assert value((picture * weights)[0]) == pytest.approx(min(areas))
    assert value(-(picture * weights)[0]) == pytest.approx(max(areas))
    assert min(areas) < np.median(areas)


@given(seed=st.integers(0, 10**6), factor=st.sampled_from([1e-6, 1e6]))
def test_only_the_order_matters(seed, factor):
    generator = torch.Generator().manual_seed(seed)
    picture = torch.randn(2, 3, 4, generator=generator, dtype=torch.float64)
    pixel_map = torch.randn(3, 4, generator=generator, dtype=torch.float64)
    value = deletion(pixel_map, picture, Counting(), 0, steps=5).value
    assert deletion(pixel_map * factor, picture, Counting(), 0, steps=5).value == value
    assert deletion(pixel_map.exp().numpy(), picture.numpy(), Counting(), 0, steps=5).value == value
    assert 0 <= value <= 1


def test_ties_are_drawn_and_the_draw_is_seeded():
    picture = torch.arange(12.0).reshape(1, 3, 4)
    flat = torch.ones(3, 4)
    values = [
        deletion(flat, picture, Counting(), 0, fill=0, steps=12, link="logit", generator=k).value for k in range(400)
    ]
    assert values[7] == deletion(flat, picture, Counting(), 0, fill=0, steps=12, link="logit", generator=7).value
    # any pixel is as likely as any other at any time: the straight line from 66 to 0
    assert np.mean(values) == pytest.approx(33, abs=4 * np.std(values) / 20)
    assert np.std(values) > 1


@pytest.mark.parametrize(("target", "extra"), [(0, 0), (None, 1), (lambda output: output[:, 0], 0)])
def test_the_cost_is_counted(target, extra):
    model, picture = Counting(), torch.rand(1, 4, 4)
    link = "logit" if callable(target) else "probability"
    measured = deletion(picture[0], picture, model, target, steps=7, link=link)
    assert measured.evaluations == model.pictures == 8 + extra
    assert len(measured.curve) == 8


def test_the_model_is_left_as_it_was():
    net = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(16, 2)).train()
    picture = torch.rand(1, 4, 4)
    values = {deletion(picture[0], picture, net, 0).value for _ in range(3)}
    assert len(values) == 1
    assert net.training
    assert net[1].training


@pytest.mark.parametrize(
    ("change", "error", "sentence"),
    [
        ({"pixel_map": torch.zeros(4, 5)}, ValueError, "`pixel_map` must be as large as the picture"),
        ({"pixel_map": torch.full((4, 4), torch.nan)}, ValueError, "`pixel_map` must be finite; got NaN"),
        ({"image": torch.zeros(4, 4)}, ValueError, "`image` must be one picture, C x H x W; got 4 x 4"),
        ({"steps": 0}, ValueError, r"`steps` must be a whole number from 1 to the number of pixels \(16\); got 0"),
        ({"steps": 17}, ValueError, "`steps` must be a whole number from 1 to the number of pixels"),
        ({"steps": 2.0}, ValueError, "`steps` must be a whole number"),
        ({"steps": True}, ValueError, "`steps` must be a whole number"),
        ({"fill": "black"}, ValueError, "`fill` must be one of 'blur', 'mean', 'noise'; got 'black'"),
        ({"link": "odds"}, ValueError, "`link` must be one of"),
        ({"target": [0, 1]}, ValueError, "`target` must be one class for a metric; got 2"),
        ({"generator": -1}, TypeError, "`generator` must be a torch.Generator or a seed"),
    ],
)
def test_bad_input(change, error, sentence):
    settings = {"pixel_map": torch.rand(4, 4), "image": torch.rand(1, 4, 4), "model": Counting(), "target": 0}
    with pytest.raises(error, match=sentence):
        deletion(**{**settings, **change})
