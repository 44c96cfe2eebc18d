"""Noisy linear imputation against the same equations solved densely, and pictures whose holes one can fill by hand."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.ndimage import gaussian_filter

from usu.metrics.road import noisy_linear

#: Not `usu.metrics.road`, which is the metric.
MODULE = sys.modules["usu.metrics.road"]


def dense(image: np.ndarray, keep: np.ndarray) -> np.ndarray:
    """One equation per missing pixel, written down pixel by pixel."""
    height, width = keep.shape
    matrix, right = np.eye(height * width), np.zeros((height * width, len(image)))
    for y in range(height):
        for x in range(width):
            row = y * width + x
            if keep[y, x]:
                right[row] = image[:, y, x]
                continue
            around = {
                (y + dy) * width + x + dx: 1 / 6 if dy * dx == 0 else 1 / 12
                for dy in (-1, 0, 1)
                for dx in (-1, 0, 1)
                if (dy or dx) and 0 <= y + dy < height and 0 <= x + dx < width
            }
            for column, weight in around.items():
                matrix[row, column] = -weight / sum(around.values())
    return np.linalg.solve(matrix, right).T.reshape(image.shape)


def holes(height: int, width: int, share: float, width_of_blobs: float, rng: np.random.Generator) -> np.ndarray:
    field = gaussian_filter(rng.standard_normal((height, width)), width_of_blobs)
    keep = field > np.quantile(field, share)
    keep[rng.integers(height), rng.integers(width)] = True
    return keep


@given(
    height=st.integers(1, 33), width=st.integers(2, 33), share=st.floats(0.05, 0.99), blobs=st.floats(0, 6),
    seed=st.integers(0, 10**6), offset=st.sampled_from([0.0, 1e3]),
)  # fmt: skip
def test_against_the_dense_equations(height, width, share, blobs, seed, offset):
    rng = np.random.default_rng(seed)
    image, keep = rng.normal(size=(2, height, width)) + offset, holes(height, width, share, blobs, rng)
    found, wanted = noisy_linear(image, keep, noise=0), dense(image, keep)
    known = image[:, keep]
    span = np.ptp(known, axis=1).max()
    np.testing.assert_allclose(found, wanted, atol=1e-4 * span + 1e-9 * offset)
    np.testing.assert_array_equal(found[:, keep], known)
    slack = 1e-12 * (1 + offset)
    assert (found >= known.min(1)[:, None, None] - slack).all()
    assert (found <= known.max(1)[:, None, None] + slack).all()


@pytest.mark.parametrize(("share", "blobs"), [(0.5, 10), (0.9, 40), (0.8, 0), (0.2, 3)])
def test_a_large_picture_known_by_formula(share, blobs):
    """Not only small residuals: functions known by formula come back in the holes."""
    y, x = np.mgrid[:224, :224] / 224
    keep = holes(224, 224, share, blobs, np.random.default_rng(1))
    keep[[0, -1]] = keep[:, [0, -1]] = True
    # linear functions and these two quadratic ones equal the mean of their neighbours exactly
    image = np.stack([x - 2 * y, x * y, x**2 - y**2])
    found = noisy_linear(np.where(keep, image, 99.0), keep, noise=0)
    np.testing.assert_allclose(found, image, atol=1e-4)


@pytest.mark.parametrize(("share", "blobs"), [(0.5, 10), (0.8, 40), (0.8, 1), (0.98, 0)])
def test_few_steps_whatever_the_holes(monkeypatch, share, blobs):
    """What the coarser grids are for: plain conjugate gradients need hundreds."""
    calls, inner = [], MODULE._precondition

    def counted(grids):
        calls.append(grids[0].size)
        inner(grids)

    monkeypatch.setattr(MODULE, "_precondition", counted)
    rng = np.random.default_rng(2)
    noisy_linear(rng.normal(size=(3, 224, 224)), holes(224, 224, share, blobs, rng))
    assert 3 < calls.count((224, 224)) <= 15


def test_by_hand():
    """Between 0 and 3 a chain is linear; one missing pixel is the weighted mean; a constant stays one."""
    image = np.array([[6.0, 12.0, 6.0], [0.0, np.pi, 0.0], [0.0, 12.0, 24.0]])
    keep = np.array([[True, True, True], [True, False, True], [True, True, True]])
    assert noisy_linear(image, keep, noise=0)[1, 1] == pytest.approx(24 / 6 + 36 / 12, abs=1e-3)
    corner = np.array([[np.pi, 5.0], [5.0, 10.0]])
    found = noisy_linear(corner, np.array([[False, True], [True, True]]), noise=0)
    assert found[0, 0] == pytest.approx((5 * 2 + 5 * 2 + 10) / 5, abs=1e-3)
    even = noisy_linear(np.full((3, 9, 9), 7.0), np.eye(9, dtype=bool), noise=0)
    np.testing.assert_array_equal(even, 7.0)


def test_what_was_there_does_not_matter():
    rng = np.random.default_rng(0)
    image, keep = rng.normal(size=(3, 20, 24)), holes(20, 24, 0.6, 3, rng)
    other = np.where(keep, image, 1e6)
    np.testing.assert_array_equal(noisy_linear(image, keep), noisy_linear(other, keep))


def test_the_noise():
    image, keep = np.zeros((3, 64, 64)), np.zeros((64, 64), dtype=bool)
    keep[:, :8] = True
    still, shaken = noisy_linear(image, keep, noise=0), noisy_linear(image, keep, noise=0.25, generator=4)
    noise = (shaken - still)[:, ~keep]
    assert noise.std() == pytest.approx(0.25, rel=0.03)
    assert abs(noise.mean()) < 0.01
    assert np.abs((shaken - still)[:, keep]).max() == 0
    np.testing.assert_array_equal(shaken, noisy_linear(image, keep, noise=0.25, generator=4))
    np.testing.assert_array_equal(
        shaken, noisy_linear(image, keep, noise=0.25, generator=torch.Generator().manual_seed(4))
    )
    assert not np.array_equal(shaken, noisy_linear(image, keep, noise=0.25, generator=5))
    keep[:, 8] = True  # one column less is missing: the others keep their noise
    np.testing.assert_array_equal(noisy_linear(image, keep, noise=0.25, generator=4)[:, ~keep], shaken[:, ~keep])


def test_out_comes_what_went_in():
    rng = np.random.default_rng(3)
    image, keep = rng.normal(size=(3, 12, 10)).astype(np.float32), holes(12, 10, 0.5, 1, rng)
    before, kept = image.copy(), keep.copy()
    found = noisy_linear(image, keep)
    assert isinstance(found, np.ndarray)
    assert found.dtype == np.float32
    tensor = noisy_linear(torch.from_numpy(image), torch.from_numpy(keep))
    assert isinstance(tensor, torch.Tensor)
    np.testing.assert_array_equal(tensor.numpy(), found)
    np.testing.assert_array_equal(image, before)
    np.testing.assert_array_equal(keep, kept)
    np.testing.assert_array_equal(noisy_linear(image, np.ones((12, 10), dtype=bool)), image)
    flat = noisy_linear(image[0], keep, noise=0)
    np.testing.assert_allclose(flat, noisy_linear(image, keep, noise=0)[0], atol=1e-4)
    half = noisy_linear(torch.from_numpy(image).half(), torch.from_numpy(keep), noise=0)
    assert half.dtype == torch.float16


def test_mistakes_are_named(monkeypatch):
    image, keep = np.zeros((1, 4, 4)), np.eye(4, dtype=bool)
    with pytest.raises(ValueError, match=r"`image` must .*; got 2 x 1 x 4 x 4"):
        noisy_linear(np.stack([image, image]), keep)
    with pytest.raises(ValueError, match=r"`keep` must hold one boolean per pixel \(4 x 4\); got 4 x 5"):
        noisy_linear(image, np.ones((4, 5), dtype=bool))
    with pytest.raises(ValueError, match=r"one boolean per pixel .* of torch\.float64"):
        noisy_linear(image, keep.astype(float))
    with pytest.raises(ValueError, match="at least one pixel; got none"):
        noisy_linear(image, np.zeros((4, 4), dtype=bool))
    with pytest.raises(ValueError, match="`noise` must be at least 0; got -1"):
        noisy_linear(image, keep, noise=-1)
    with pytest.raises(ValueError, match="`image` must be finite"):
        noisy_linear(image * np.nan, keep)
    monkeypatch.setattr(MODULE, "_MOST_STEPS", 1)
    with pytest.raises(ArithmeticError, match="got none in 1 steps"):
        noisy_linear(np.random.default_rng(0).normal(size=(1, 30, 30)), np.tri(30, k=-20, dtype=bool))
