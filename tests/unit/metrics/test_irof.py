"""IROF against removing segments one by one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from usu.metrics.curves import irof


def total(batch):
    return batch.sum((1, 2, 3))[:, None]


def unsure(batch):
    value = batch.square().sum((1, 2, 3)) - batch[:, :, 0].sum((1, 2))
    return torch.stack([value, value * 0], 1)


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6))
def test_against_removing_them_one_by_one(seed):
    rng = np.random.default_rng(seed)
    image, field, segments = rng.normal(size=(2, 6, 5)), rng.normal(size=(6, 5)), rng.integers(0, 5, (6, 5))

    def f(picture):
        return float(torch.softmax(unsure(torch.from_numpy(picture)[None]), 1)[0, 0])

    labels = sorted(np.unique(segments), key=lambda k: -field[segments == k].mean())
    picture, fill = image.copy(), image.mean((1, 2), keepdims=True)
    curve = [f(picture)]
    for label in labels:
        picture = np.where(segments == label, fill, picture)
        curve.append(f(picture))
    ratios = np.clip(np.array(curve) / curve[0], 0, 1)
    expected = 1 - np.mean((ratios[1:] + ratios[:-1]) / 2)
    measured = irof(field, image, unsure, 0, segments=segments)
    np.testing.assert_allclose(measured.curve, curve, atol=1e-12)
    assert measured.value == pytest.approx(expected, abs=1e-12)
    assert 0 <= measured.value <= 1
    assert measured.evaluations == len(labels) + 1


def test_an_additive_model_written_down():
    """Segments worth 6, 3 and 1 of 10, of sizes 1, 3 and 1: the largest mean first, not the largest sum."""
    picture, segments = torch.tensor([[[6.0, 1.0, 1.0, 1.0, 1.5]]]), torch.tensor([[4, 2, 2, 2, 9]])
    measured = irof(picture[0], picture, total, 0, segments=segments, fill=0, link="logit")
    np.testing.assert_allclose(measured.curve, [10.5, 4.5, 3, 0])
    assert measured.value == pytest.approx(1 - (10.5 / 2 + 4.5 + 3) / 10.5 / 3)


def test_a_rise_above_the_start_counts_as_nothing_lost():
    """Values 2, 4, 0: clipped to ratios 1, 1, 0, so that a quarter of the square is over the curve."""
    picture = torch.tensor([[[-2.0, 4.0]]])
    measured = irof(-picture[0], picture, total, 0, segments=(1, 2), fill=0, link="logit")
    assert measured.curve.tolist() == [2, 4, 0]
    assert measured.value == 0.25


def test_blocks_are_the_default():
    """28 x 42 pixels in 14 x 14 blocks of 2 x 3; a short side has blocks of one pixel."""
    picture = torch.rand(1, 28, 42, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    blocks = torch.arange(14).repeat_interleave(2)[:, None] * 14 + torch.arange(14).repeat_interleave(3)
    default, given_blocks = (irof(picture[0], picture, unsure, 0, segments=s) for s in (None, blocks))
    assert default.evaluations == 197
    np.testing.assert_array_equal(default.curve, given_blocks.curve)
    assert irof(picture[0, :3], picture[:, :3], unsure, 0).evaluations == 3 * 14 + 1


def test_ties_between_segments_are_drawn():
    """0.1 everywhere, in segments of different sizes: every order comes up, the first segment leads a third of them."""
    picture, segments = torch.tensor([[[1.0, 1.0, 1.0, 5.0, 5.0, 9.0]]]), torch.tensor([[0, 0, 0, 1, 1, 2]])
    flat = torch.full((1, 6), 0.1)
    first = [
        irof(flat, picture, total, 0, segments=segments, fill=0, link="logit", generator=k).curve[1] for k in range(120)
    ]
    counts = np.unique(first, return_counts=True)
    assert counts[0].tolist() == [12, 13, 19]
    assert counts[1].min() > 24


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), factor=st.sampled_from([1e-6, 1e6]))
def test_the_scale_of_the_map_does_not_matter(seed, factor):
    rng = np.random.default_rng(seed)
    image, field = rng.normal(size=(1, 6, 6)), rng.normal(size=(6, 6))
    assert irof(field * factor, image, unsure, 0).value == irof(field, image, unsure, 0).value


@pytest.mark.parametrize(("target", "extra"), [(0, 0), (None, 1)])
def test_the_cost_is_counted(target, extra):
    seen = []

    def model(batch):
        seen.append(len(batch))
        return unsure(batch)

    picture = torch.rand(1, 4, 4)
    assert irof(picture[0], picture, model, target, segments=(2, 3)).evaluations == sum(seen) == 7 + extra
