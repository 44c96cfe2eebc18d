"""Alpha and beta errors, and the mass that forces them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import usu
from tests.problems import Problem, grid_labels, problems


@given(problems(), st.integers(0, 2**32 - 1))
def test_at_most_one_error_per_pixel_and_they_add_up(p: Problem, seed: int) -> None:
    rng = np.random.default_rng(seed)
    found, truth = rng.normal(size=p.labels.shape), rng.normal(size=p.labels.shape)
    alpha, beta = usu.alpha_beta_errors(found, truth)
    assert not ((alpha > 0) & (beta > 0)).any()
    np.testing.assert_allclose(alpha + beta, np.abs(np.abs(found) - np.abs(truth)), atol=1e-15)


@given(problems(), st.integers(0, 2**32 - 1))
def test_mass_imbalance_bounds_the_errors_from_below(p: Problem, seed: int) -> None:
    rng = np.random.default_rng(seed)
    found, truth = rng.random(p.labels.shape), rng.random(p.labels.shape)
    alpha, beta = usu.alpha_beta_errors(found, truth)
    deficit, excess = usu.mass_imbalance(found, truth, p.labels)
    assert (p.sums(alpha)[: len(excess)] >= excess - 1e-12).all()
    assert (p.sums(beta)[: len(deficit)] >= deficit - 1e-12).all()
    np.testing.assert_allclose(excess - deficit, (p.sums(found) - p.sums(truth))[: len(excess)], atol=1e-12)


@given(problems(signs=("positive",), on_grid=True), st.integers(0, 2**32 - 1))
def test_d1_zeroes_both_bounds_where_the_coarse_map_sums_the_truth(p: Problem, seed: int) -> None:
    truth = np.random.default_rng(seed).random(p.labels.shape)
    coarse = (p.sums(truth) / p.sizes).reshape(p.coarse.shape)
    result = usu.redistribute(coarse, p.scores, temperature=p.temperature)
    deficit, excess = usu.mass_imbalance(result, truth, p.coarse.shape)
    assert max(deficit.max(), excess.max()) <= 1e-12 * truth.sum()


def test_interpolation_is_committed_to_errors() -> None:
    truth = np.zeros((8, 8))
    truth[:4, :4] = 1
    found = usu.interpolate(np.array([[1.0, 0.0], [0.0, 0.0]]), (8, 8), "bilinear")
    deficit, excess = usu.mass_imbalance(found, truth, (2, 2))
    assert deficit[0] > 1
    assert excess[1] > 1


def test_batches_and_grids() -> None:
    rng = np.random.default_rng(0)
    found, truth = rng.random((2, 3, 5, 7)), rng.random((2, 3, 5, 7))
    by_grid = usu.mass_imbalance(found, truth, (2, 3))
    by_label = usu.mass_imbalance(found, truth, grid_labels((2, 3), (5, 7)))
    assert by_grid.deficit.shape == (2, 3, 6)
    np.testing.assert_allclose(by_grid.deficit, by_label.deficit, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_double_and_comes_back(dtype: torch.dtype) -> None:
    """2048 - 0.5 is 2048 in half precision: the two cells would lose their halves, were only the sum exact."""
    found, truth = torch.tensor([[2048.0, -2046.0, 3.0, 1.0]]).to(dtype), torch.full((1, 4), 0.5).to(dtype)
    exact = [*usu.alpha_beta_errors(found.double(), truth), *usu.mass_imbalance(found.double(), truth, (1, 2))]
    ours = [*usu.alpha_beta_errors(found, truth), *usu.mass_imbalance(found, truth, (1, 2))]
    assert [one.dtype for one in ours] == [dtype] * 4
    assert all(torch.equal(one, wanted.to(dtype)) for one, wanted in zip(ours, exact, strict=True))


def test_bad_input() -> None:
    with pytest.raises(ValueError, match=r"^`truth` must"):
        usu.alpha_beta_errors(np.ones((2, 2)), np.ones(3))
    with pytest.raises(ValueError, match=r"^`cells` must"):
        usu.mass_imbalance(np.ones((2, 2)), np.ones((2, 2)), np.full((2, 2), -1))
    with pytest.raises(ValueError, match=r"^`cells` must"):
        usu.mass_imbalance(np.ones((2, 2)), np.ones((2, 2)), (3, 1))
