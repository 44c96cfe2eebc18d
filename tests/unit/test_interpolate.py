"""The kernels against torch, Pillow and the formula written out."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from skimage import data
from torch.nn import functional

from usu.operator.interpolate import MODES, interpolate, lanczos_weights

SIZES = st.tuples(st.integers(1, 9), st.integers(1, 9))
LARGE = st.tuples(st.integers(1, 40), st.integers(1, 40))


def random_map(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def pillow(array: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    picture = Image.fromarray(array.astype(np.float32))
    assert picture.mode == "F"
    return np.asarray(picture.resize(size[::-1], Image.Resampling.LANCZOS))


@given(SIZES, LARGE)
def test_nearest_is_the_value_of_the_pixels_cell(grid: tuple[int, int], size: tuple[int, int]) -> None:
    coarse = random_map(*grid)
    result = interpolate(coarse, size, "nearest")
    for i in range(size[0]):
        for j in range(size[1]):
            row, column = (2 * i + 1) * grid[0] // (2 * size[0]), (2 * j + 1) * grid[1] // (2 * size[1])
            assert result[i, j] == coarse[row, column]


@given(SIZES, LARGE)
def test_nearest_equals_torchs_nearest_exact_away_from_ties(grid: tuple[int, int], size: tuple[int, int]) -> None:
    coarse = random_map(*grid)
    theirs = functional.interpolate(coarse[None, None], size, mode="nearest-exact")[0, 0]
    # a tie: the pixel's centre lies on a border between cells, and floats fall to either side of it
    tie_rows, tie_columns = (
        torch.tensor([(2 * i + 1) * g % (2 * n) == 0 for i in range(n)]) for g, n in zip(grid, size, strict=True)
    )
    decided = ~(tie_rows[:, None] | tie_columns)
    assert torch.equal(interpolate(coarse, size, "nearest")[decided], theirs[decided])


def test_nearest_takes_the_upper_cell_on_a_tie() -> None:
    assert interpolate(torch.tensor([[0.0, 1.0]]), (1, 3), "nearest").tolist() == [[0, 1, 1]]


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@given(grid=SIZES, size=LARGE)
def test_bilinear_and_bicubic_equal_torchs(mode: str, grid: tuple[int, int], size: tuple[int, int]) -> None:
    coarse = random_map(2, *grid)
    theirs = functional.interpolate(coarse[None], size, mode=mode, align_corners=False, antialias=False)[0]
    torch.testing.assert_close(interpolate(coarse, size, mode), theirs, rtol=0, atol=1e-12)


def naive_weight(mode: str, d: float) -> float:
    d, a = abs(d), -0.75
    if mode == "bilinear":
        return max(0.0, 1 - d)
    if d <= 1:
        return (a + 2) * d**3 - (a + 3) * d**2 + 1
    return a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a if d < 2 else 0.0


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_bilinear_and_bicubic_are_their_kernels_with_replicated_borders(mode: str) -> None:
    coarse = random_map(1, 5)[0]
    for x, value in enumerate(interpolate(coarse[None], (1, 13), mode)[0].tolist()):
        place = (x + 0.5) * 5 / 13 - 0.5
        if mode == "bilinear":
            place = min(max(place, 0.0), 4.0)
        around = range(math.floor(place) - 1, math.floor(place) + 3)
        naive = sum(naive_weight(mode, place - k) * float(coarse[min(max(k, 0), 4)]) for k in around)
        assert value == pytest.approx(naive, abs=1e-12)


@given(SIZES, LARGE, st.integers(0, 5))
def test_lanczos_equals_pillows(grid: tuple[int, int], size: tuple[int, int], seed: int) -> None:
    """Sizes above and below the grid, in either direction."""
    coarse = random_map(*grid, seed=seed).numpy()
    ours = interpolate(coarse, size, "lanczos3")
    spread = max(np.ptp(coarse), abs(coarse).max())
    assert abs(ours - pillow(coarse, size)).max() <= 1e-5 * spread


@pytest.mark.parametrize("size", [(224, 224), (50, 333), (1000, 777)])
def test_lanczos_equals_pillows_on_a_real_picture(size: tuple[int, int]) -> None:
    grey = (data.chelsea()[..., 0] / 255).astype(np.float32)
    assert abs(interpolate(grey, size, "lanczos3") - pillow(grey, size)).max() <= 1e-5


def test_lanczos_weights_are_the_windowed_sinc() -> None:
    weights = lanczos_weights(10, 4)
    for x in range(10):
        naive = []
        for k in range(4):
            d = k + 0.5 - (x + 0.5) * 0.4
            sinc = [1.0 if t == 0 else math.sin(math.pi * t) / (math.pi * t) for t in (d, d / 3)]
            naive.append(sinc[0] * sinc[1] if abs(d) < 3 else 0.0)
        assert weights[x].tolist() == pytest.approx([n / sum(naive) for n in naive], abs=1e-15)


@pytest.mark.parametrize("mode", MODES)
@given(grid=SIZES, size=LARGE, value=st.floats(-5, 5))
def test_a_constant_map_stays_constant(mode: str, grid: tuple[int, int], size: tuple[int, int], value: float) -> None:
    result = interpolate(torch.full(grid, value, dtype=torch.float64), size, mode)
    assert result.shape == size
    torch.testing.assert_close(result, torch.full_like(result, value), rtol=0, atol=1e-12)


@pytest.mark.parametrize("mode", MODES)
def test_any_leading_dimensions(mode: str) -> None:
    stack = random_map(2, 3, 4, 5)
    whole = interpolate(stack, (7, 11), mode)
    assert whole.shape == (2, 3, 7, 11)
    for i in range(2):
        for j in range(3):
            torch.testing.assert_close(whole[i, j], interpolate(stack[i, j], (7, 11), mode))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16"])
def test_library_and_dtype_come_back(mode: str, dtype: str) -> None:
    tensor = random_map(3, 4).to(getattr(torch, dtype))
    result = interpolate(tensor, (8, 9), mode)
    assert isinstance(result, torch.Tensor)
    assert result.dtype == tensor.dtype
    # half precision is computed in float32 and rounded once
    at_least_single = tensor.to(torch.promote_types(tensor.dtype, torch.float32))
    assert torch.equal(result, interpolate(at_least_single, (8, 9), mode).to(tensor.dtype))
    if dtype != "bfloat16":
        array = interpolate(tensor.numpy(), (8, 9), mode)
        assert isinstance(array, np.ndarray)
        assert array.dtype == dtype
        np.testing.assert_array_equal(array, result.numpy())


@pytest.mark.parametrize("mode", MODES)
def test_differentiable(mode: str) -> None:
    coarse = random_map(2, 3, 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda c: interpolate(c, (5, 4), mode), coarse)


def test_strided_and_read_only_arrays() -> None:
    array = np.arange(12.0).reshape(3, 4)
    turned = array[::-1, ::2]
    np.testing.assert_array_equal(interpolate(turned, (6, 4), "nearest"), turned.repeat(2, 0).repeat(2, 1))
    array.flags.writeable = False
    assert interpolate(array, (6, 8), "bicubic").shape == (6, 8)


@pytest.mark.parametrize(
    ("coarse", "size", "mode", "error", "message"),
    [
        ([[1.0]], (2, 2), "nearest", TypeError, "`coarse` .*; got list"),
        (torch.ones(2, 2).long(), (2, 2), "nearest", TypeError, "`coarse` .*; got torch.int64"),
        (torch.ones(4), (2, 2), "nearest", ValueError, "`coarse` .*dimensions of `size`.*got 4"),
        (torch.ones(0, 2), (2, 2), "nearest", ValueError, "`coarse` .*; got shape 0 x 2"),
        (torch.tensor([[math.nan]]), (2, 2), "bilinear", ValueError, "`coarse` .*; got NaN"),
        (torch.tensor([[math.inf]]), (2, 2), "lanczos3", ValueError, "`coarse` .*; got infinity"),
        (torch.ones(2, 2), (2, 0), "nearest", ValueError, "`size` .*; got 0"),
        (torch.ones(2, 2), (2.5, 3), "nearest", TypeError, "`size` .*; got 2.5"),
        (torch.ones(2, 2), 4, "nearest", ValueError, "`size` .*; got 4"),
        (torch.ones(2, 2), (4, 4, 4, 4), "nearest", ValueError, r"`size` .*; got \(4, 4, 4, 4\)"),
        (torch.ones(2), (4,), "bicubic", ValueError, "`mode` .*; got 'bicubic'"),
        (torch.ones(2, 2), (4, 4), "cubic", ValueError, "`mode` .*; got 'cubic'"),
    ],
)
def test_bad_input_is_answered_in_one_sentence(coarse, size, mode, error, message) -> None:
    with pytest.raises(error, match=message):
        interpolate(coarse, size, mode)
