"""Walks and areas against loops written from their definitions, and the curves of additive models by hand."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from usu.forward import engine
from usu.metrics import deletion, insertion, pixel_flipping
from usu.metrics.maps import cuts, walk

CURVES = (deletion, insertion, pixel_flipping)


def total(batch):
    """One number, additive in the pixels."""
    return batch.sum((1, 2, 3))[:, None]


def bent(batch):
    """Two classes that see each channel and row by itself, and not in a straight line."""
    weights = torch.tensor([3.0, -1.0, 0.5]).to(batch)[: batch.shape[1], None, None]
    value = (batch * weights).sum((1, 2, 3)) + (batch[:, :, :-1] * batch[:, :, 1:]).sum((1, 2, 3))
    return torch.stack([value, value * 0], 1)


@pytest.mark.parametrize("insert", [False, True])
@pytest.mark.parametrize("channelwise", [False, True])
@pytest.mark.parametrize("chunk", [None, 2])
def test_every_row_is_the_image_built_by_hand(insert, channelwise, chunk):
    generator = torch.Generator().manual_seed(1)
    image, filled = torch.randn(2, 3, 4, 5, generator=generator, dtype=torch.float64)
    count = 60 if channelwise else 20
    order = torch.randperm(count, generator=generator)
    counts = torch.tensor([0, 1, 7, 7, count])
    expected = []
    for n in counts.tolist():
        start, end = (filled, image) if insert else (image, filled)
        built = start.clone()
        for k in order[:n].tolist():
            where = np.unravel_index(k, (3, 4, 5) if channelwise else (4, 5))
            if channelwise:
                built[where] = end[where]
            else:
                built[:, where[0], where[1]] = end[:, where[0], where[1]]
        expected.append(float(bent(built[None])[0, 0]))
    ours = walk(engine(bent, 0, chunk=chunk), image, filled, order, counts, insert=insert)
    np.testing.assert_allclose(ours, expected, rtol=1e-12)


def test_a_target_of_several_numbers_is_refused():
    asked = engine(lambda batch: batch, lambda output: output.flatten(1))
    image = torch.zeros(1, 2, 2)
    with pytest.raises(ValueError, match=r"`target` must .*; got 4"):
        walk(asked, image, image, torch.arange(4), torch.tensor([0]))


@settings(max_examples=40)
@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n))))
def test_cuts_are_the_nearest_whole_numbers(problem):
    pixels, steps = problem
    ours = cuts(pixels, steps)
    assert (ours[0], ours[-1], len(ours)) == (0, pixels, steps + 1)
    assert bool((ours.diff() >= 1).all())
    exact = np.arange(steps + 1) * pixels / steps
    assert np.abs(ours.numpy() - exact).max() <= 0.5 + 1e-9


def test_curves_of_an_additive_model():
    """Ten pixels worth 1 to 10 with a fill of 0: what is left after the k best is (10 - k)(11 - k) / 2."""
    image = torch.arange(1.0, 11.0).reshape(1, 2, 5)
    left = np.array([(10 - k) * (11 - k) / 2 for k in range(11)])
    deleted, inserted, flipped = (f(image[0], image, total, 0, fill=0, steps=10, link="logit") for f in CURVES)
    np.testing.assert_allclose(deleted.curve, left)
    assert deleted.value == pytest.approx(sum(left) / 10 - 55 / 20)  # the first and the last point count half
    np.testing.assert_allclose(inserted.curve, 55 - left)
    assert inserted.value == pytest.approx(55 - deleted.value)
    np.testing.assert_allclose(flipped.curve, left[1:])  # without the untouched image
    assert flipped.value == pytest.approx((sum(left[1:]) - 45 / 2) / 9)


def test_channels_of_a_pixel_go_together():
    """Pixels worth 11, 22, 33, 44 over two channels: 66, 33, 11, 0 are left after each step."""
    image = torch.tensor([[[1.0, 2.0], [3.0, 4.0]], [[10.0, 20.0], [30.0, 40.0]]])
    assert pixel_flipping(image[0], image, total, 0, fill=0, steps=4, link="logit").curve.tolist() == [66, 33, 11, 0]


def test_steps_that_do_not_divide():
    """10 pixels in 4 steps: 0, 3, 5, 8, 10 are filled, and the area knows that the steps are not equal."""
    image = torch.arange(1.0, 11.0).reshape(1, 2, 5)
    measured = deletion(image[0], image, total, 0, fill=0, steps=4, link="logit")
    np.testing.assert_allclose(measured.curve, [55, 28, 15, 3, 0])
    assert measured.value == pytest.approx((83 / 2 * 3 + 43 / 2 * 2 + 18 / 2 * 3 + 3 / 2 * 2) / 10)


def test_the_mean_and_probabilities_are_the_defaults():
    image = torch.tensor([[[0.0, 4.0]]])
    for metric, curve in zip(CURVES, ([4, 2, 4], [4, 6, 4], [2, 4]), strict=True):
        np.testing.assert_allclose(metric(image[0], image, total, 0, steps=2, link="logit").curve, curve)
    curve = deletion(image[0], image, lambda batch: torch.cat([total(batch), 0 * total(batch)], 1), 0, steps=2).curve
    np.testing.assert_allclose(curve, 1 / (1 + np.exp([-4.0, -2.0, -4.0])))


def test_the_perfect_ranking_is_the_best_of_all():
    image, weights = torch.randn(2, 1, 1, 5, generator=torch.Generator().manual_seed(3), dtype=torch.float64)

    def value(metric, pixel_map):
        return metric(pixel_map, image, lambda batch: total(batch * weights), 0, fill=0, steps=5, link="logit").value

    for metric, best, worst in ((deletion, min, max), (insertion, max, min)):
        areas = [value(metric, torch.tensor([order], dtype=torch.float64)) for order in permutations(range(5))]
        assert value(metric, (image * weights)[0]) == pytest.approx(best(areas))
        assert value(metric, -(image * weights)[0]) == pytest.approx(worst(areas))
        assert min(areas) < np.median(areas) < max(areas)


@settings(max_examples=30)
@given(seed=st.integers(0, 10**6), steps=st.sampled_from([2, 3, 4, 6, 12]), factor=st.sampled_from([1e-6, 1e6]))
def test_only_the_order_matters_and_the_three_curves_are_one(seed, steps, factor):
    """The best shown first is the worst taken first, read backwards; flipping has no untouched image."""
    image, pixel_map = np.random.default_rng(seed).normal(size=(4, 3, 4)), np.random.default_rng(seed).normal(size=12)
    image, pixel_map = image[:3], pixel_map.reshape(3, 4)
    deleted, inserted, flipped = (f(pixel_map, image, bent, 0, steps=steps) for f in CURVES)
    for metric, found in zip(CURVES, (deleted, inserted, flipped), strict=True):
        assert metric(pixel_map * factor, image, bent, 0, steps=steps).value == found.value
        assert metric(torch.tensor(pixel_map).exp(), torch.tensor(image), bent, 0, steps=steps).value == found.value
        assert 0 <= found.value <= 1
    backwards = deletion(-pixel_map, image, bent, 0, steps=steps)
    np.testing.assert_allclose(inserted.curve, backwards.curve[::-1], atol=1e-12)
    assert inserted.value == pytest.approx(backwards.value, abs=1e-12)
    np.testing.assert_array_equal(flipped.curve, deleted.curve[1:])
    assert flipped.value == pytest.approx(np.mean((flipped.curve[1:] + flipped.curve[:-1]) / 2))


def test_ties_are_drawn_and_the_draw_is_seeded():
    image, flat = torch.arange(12.0).reshape(1, 3, 4), torch.ones(3, 4)
    values = [deletion(flat, image, total, 0, fill=0, steps=12, link="logit", generator=k).value for k in range(200)]
    assert values[7] == deletion(flat, image, total, 0, fill=0, steps=12, link="logit", generator=7).value
    # any pixel is as likely as any other at any time: the straight line from 66 to 0
    assert np.mean(values) == pytest.approx(33, abs=4 * np.std(values) / np.sqrt(200))
    assert np.std(values) > 1


@pytest.mark.parametrize(("target", "extra"), [(0, 0), (None, 1), (lambda output: output[:, 0], 0)])
@pytest.mark.parametrize("metric", CURVES)
def test_the_cost_is_counted_and_the_model_left_as_it_was(metric, target, extra):
    seen = []
    net = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(16, 2)).train()
    net.register_forward_pre_hook(lambda _, given: seen.append(len(given[0])))
    image = torch.rand(1, 4, 4)
    link = "logit" if callable(target) else "probability"
    found = [metric(image[0], image, net, target, steps=7, link=link) for _ in range(2)]
    assert found[0].value == found[1].value  # no dropout while it is asked
    assert found[0].evaluations == sum(seen) / 2 == len(found[0].curve) + extra
    assert len(found[0].curve) == 7 + (metric is not pixel_flipping)
    assert net.training
    assert net[1].training


@pytest.mark.parametrize("shift", [0, -10])
def test_quantus_flipping_by_hand(shift):
    """One channel, black is 1, the smallest value: 4, 3, 2, 1 go one by one, and the area is not divided."""
    image = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])
    measured = pixel_flipping(image[0] + shift, image, total, 0, steps=4, compat="quantus", link="logit")
    np.testing.assert_allclose(measured.curve, [7, 5, 4, 4])
    assert measured.value == pytest.approx(7 / 2 + 5 + 4 + 4 / 2)
    assert measured.evaluations == 4


def test_quantus_moving_mean_by_hand():
    """0 and 4: the mean of (0, 4) takes the place of 4, then the mean of (0, 2) that of 0."""
    image = torch.tensor([[[0.0, 4.0]]])
    measured = pixel_flipping(image[0], image, total, 0, steps=2, fill="mean", compat="quantus", link="logit")
    np.testing.assert_allclose(measured.curve, [2, 3])
