from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter

from usu.forward.fills import Blur, Constant, Mean, Noise, apply, fill_named, filled

IMAGE = torch.rand(3, 12, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("shape", [(3, 12, 20), (1, 1, 1), (2, 3, 40)])
@pytest.mark.parametrize("sigma", [0.05, 0.3])
def test_blur_equals_scipy(shape, sigma):
    image = torch.rand(shape, dtype=torch.float64)
    width = sigma * min(shape[1:])
    radius = max(1, round(4 * width))
    expected = gaussian_filter(image.numpy(), (0, width, width), mode="nearest", radius=(0, radius, radius))
    assert np.allclose(Blur(sigma)(image).numpy(), expected, atol=1e-12)


def test_blur_scales_with_the_picture_and_keeps_the_type():
    impulse = torch.zeros(1, 224, 224)
    impulse[0, 112, 112] = 1
    spread = Blur()(impulse)[0].sum(0)
    place = torch.arange(224.0) - 112
    assert float((spread * place**2).sum().sqrt()) == pytest.approx(11.2, rel=0.01)
    assert Blur()(impulse.half()).dtype == torch.float16


def test_mean_and_constant():
    assert torch.allclose(Mean()(IMAGE)[:, 3, 4], IMAGE.mean((1, 2)))
    assert filled(IMAGE, 0.25).unique().tolist() == [0.25]
    assert filled(IMAGE, (0, 0.5, 1))[:, 2, 2].tolist() == [0, 0.5, 1]


def test_noise_is_its_formula():
    """Also of one pixel, which has no deviation: dividing by n - 1 would make it NaN."""
    for image in (IMAGE, IMAGE[:, :1, :1]):
        drawn = torch.randn(image.shape, generator=torch.Generator().manual_seed(4)).double()
        mean, deviation = (f(image.numpy(), axis=(1, 2), keepdims=True) for f in (np.mean, np.std))
        assert np.allclose(Noise(std=2.0, seed=4)(image), mean + 2 * deviation * drawn.numpy(), rtol=1e-12)


def test_noise_is_repeatable_and_has_the_pictures_scale():
    image = torch.randn(3, 100, 100) * torch.tensor([1.0, 5.0, 0.1])[:, None, None] + 3
    noise = Noise(std=2.0, seed=4)(image)
    assert torch.equal(noise, Noise(std=2.0, seed=4)(image))
    assert not torch.equal(noise, Noise(std=2.0, seed=5)(image))
    assert torch.allclose(noise.std((1, 2)) / image.std((1, 2)), torch.tensor(2.0), rtol=0.05)
    generator = torch.Generator().manual_seed(4)
    drawing = Noise(std=2.0, seed=generator)
    assert torch.equal(drawing(image), noise)
    assert not torch.equal(drawing(image), noise)
    before = torch.get_rng_state()
    Noise()(image)
    assert torch.equal(torch.get_rng_state(), before)


def test_names_numbers_and_callables():
    assert fill_named("blur") == Blur()
    assert fill_named("mean") == Mean()
    assert fill_named("noise") == Noise()
    assert fill_named(1) == Constant(1.0)
    assert torch.equal(filled(IMAGE, lambda image: image.flip(2)), IMAGE.flip(2))


def test_bad_fills():
    with pytest.raises(ValueError, match=r"`fill` must .*; got 'zebra'"):
        fill_named("zebra")
    with pytest.raises(TypeError, match=r"`fill` must be 'blur'.*got dict"):
        fill_named({})
    with pytest.raises(ValueError, match=r"same shape \(3 x 12 x 20\); got 3 x 12"):
        filled(IMAGE, lambda image: image[:, :, 0])
    with pytest.raises(ValueError, match=r"one per channel \(3\); got 2"):
        filled(IMAGE, (0.0, 1.0))
    with pytest.raises(ValueError, match=r"`fill` must .*; got NaN"):
        filled(IMAGE, lambda image: image * torch.nan)
    with pytest.raises(ValueError, match="`sigma` must be greater than 0"):
        Blur(0)


def test_apply_equals_a_loop():
    other = Mean()(IMAGE)
    keep = torch.rand(4, 12, 20) < 0.5
    result = apply(IMAGE, other, keep)
    assert result.shape == (4, 3, 12, 20)
    for n in range(4):
        for y in range(12):
            for x in range(20):
                source = IMAGE if keep[n, y, x] else other
                assert torch.equal(result[n, :, y, x], source[:, y, x])
    assert torch.equal(apply(IMAGE, other, keep.double()), result)


def test_apply_mixes():
    assert torch.allclose(apply(IMAGE, IMAGE * 0, torch.full((12, 20), 0.25)), IMAGE / 4)


def test_bad_keeps():
    with pytest.raises(ValueError, match=r"`keep` must end with the picture's height and width \(12 x 20\); got 5 x 5"):
        apply(IMAGE, IMAGE, torch.ones(5, 5, dtype=torch.bool))
    with pytest.raises(TypeError, match="`keep` must be boolean or floating-point"):
        apply(IMAGE, IMAGE, torch.ones(12, 20, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"`keep` must lie in \[0, 1\]"):
        apply(IMAGE, IMAGE, torch.full((12, 20), 2.0))
