"""Pixel flipping in our definition; Quantus' is compared with Quantus in the integration tests."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from usu.metrics.deletion import deletion
from usu.metrics.pixel_flipping import pixel_flipping


def total(batch):
    return batch.sum((1, 2, 3))[:, None]


def unsure(batch):
    value = batch.square().sum((1, 2, 3)) - batch[:, :, 0].sum((1, 2))
    return torch.stack([value, value * 0], 1)


def test_an_additive_model_written_down():
    """Pixels worth 11, 22, 33, 44 over two channels: 66, 33, 11, 0 are left after each step."""
    picture = torch.tensor([[[1.0, 2.0], [3.0, 4.0]], [[10.0, 20.0], [30.0, 40.0]]])
    measured = pixel_flipping(picture[0], picture, total, 0, fill=0, steps=4, link="logit")
    np.testing.assert_allclose(measured.curve, [66, 33, 11, 0])
    assert measured.value == pytest.approx((66 / 2 + 33 + 11) / 3)


@given(seed=st.integers(0, 10**6), steps=st.integers(2, 12))
def test_it_is_deletion_without_the_untouched_picture(seed, steps):
    generator = torch.Generator().manual_seed(seed)
    picture = torch.randn(3, 3, 4, generator=generator, dtype=torch.float64)
    pixel_map = torch.randn(3, 4, generator=generator, dtype=torch.float64)
    curve = deletion(pixel_map, picture, unsure, 0, steps=steps).curve[1:]
    measured = pixel_flipping(pixel_map, picture, unsure, 0, steps=steps)
    np.testing.assert_array_equal(measured.curve, curve)
    assert measured.value == pytest.approx(np.mean((curve[1:] + curve[:-1]) / 2))
    assert 0 <= measured.value <= 1


@pytest.mark.parametrize("factor", [1e-6, 1e6])
@pytest.mark.parametrize("compat", [None, "quantus"])
def test_the_scale_of_the_map_does_not_matter(factor, compat):
    generator = torch.Generator().manual_seed(0)
    picture, pixel_map = torch.rand(2, 6, 6, generator=generator), torch.randn(6, 6, generator=generator)
    first, second = (
        pixel_flipping(pixel_map * f, picture, unsure, 0, steps=12, compat=compat).value for f in (1, factor)
    )
    assert first == second


@pytest.mark.parametrize("shift", [0, -10])
def test_quantus_by_hand(shift):
    """One channel, black is 1, the smallest value: 4, 3, 2, 1 go one by one, and the area is not divided."""
    picture = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])
    measured = pixel_flipping(picture[0] + shift, picture, total, 0, steps=4, compat="quantus", link="logit")
    np.testing.assert_allclose(measured.curve, [7, 5, 4, 4])
    assert measured.value == pytest.approx(7 / 2 + 5 + 4 + 4 / 2)


def test_quantus_moving_mean_by_hand():
    """0 and 4: the mean of (0, 4) takes the place of 4, then the mean of (0, 2) that of 0."""
    picture = torch.tensor([[[0.0, 4.0]]])
    measured = pixel_flipping(picture[0], picture, total, 0, steps=2, fill="mean", compat="quantus", link="logit")
    np.testing.assert_allclose(measured.curve, [2, 3])


@pytest.mark.parametrize(("target", "extra"), [(0, 0), (None, 1)])
@pytest.mark.parametrize("compat", [None, "quantus"])
def test_the_cost_is_counted(target, extra, compat):
    seen = []

    def model(batch):
        seen.append(len(batch))
        return unsure(batch)

    picture = torch.rand(3, 4, 4)
    measured = pixel_flipping(picture[0], picture, model, target, steps=8, compat=compat)
    assert measured.evaluations == sum(seen) == 8 + extra


@pytest.mark.parametrize(
    ("settings", "error", "sentence"),
    [
        ({"steps": 1}, ValueError, r"`steps` must be a whole number from 2 to the number of pixels \(16\); got 1"),
        ({"steps": 17}, ValueError, r"number of pixels \(16\); got 17"),
        ({"fill": "black", "steps": 8}, ValueError, "`fill` must be one of 'blur', 'mean', 'noise'; got 'black'"),
        ({"compat": "captum"}, ValueError, "`compat` must be one of 'quantus'; got 'captum'"),
        ({"compat": "quantus", "steps": 9}, ValueError, r"`steps` must divide .* \(48\) with compat='quantus'; got 9"),
        (
            {"compat": "quantus", "steps": 8, "fill": "blur"},
            ValueError,
            "`fill` must be one of 'black', 'white', 'mean'",
        ),
        ({"compat": "quantus", "steps": 8, "fill": [0, 0, 0]}, ValueError, "`fill` must be one of 'black'"),
        (
            {"compat": "quantus", "steps": 8, "fill": "uniform", "generator": torch.Generator()},
            TypeError,
            "`generator` must be a seed from 0 to .* with compat='quantus'",
        ),
    ],
)
def test_bad_input(settings, error, sentence):
    picture = torch.rand(3, 4, 4)
    with pytest.raises(error, match=sentence):
        pixel_flipping(picture[0], picture, unsure, 0, **settings)
