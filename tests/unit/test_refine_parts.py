from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from usu import refine

CASES = ["cold", "constant_scores", "grid_7_to_28", "grid_not_divisible", "signed"]


@pytest.mark.parametrize("case", CASES)
def test_reference_vectors(vectors: Path, case: str) -> None:
    with np.load(vectors / f"{case}.npz") as stored:
        known = dict(stored)
    for library in (np.asarray, torch.from_numpy):
        h = refine.heterogeneity(library(known["scores"]), "diagonal")
        assert isinstance(h, type(library(known["scores"])))
        np.testing.assert_allclose(np.asarray(h), known["hmap"], rtol=0, atol=1e-12)
        alpha = refine.mixing(h, center=0.1, temperature=0.02)
        np.testing.assert_allclose(np.asarray(alpha), known["mixing"], rtol=1e-9, atol=1e-12)
        marked = refine.boundary_segments(h, library(known["segments"]), 0.5)
        assert np.asarray(marked).tolist() == known["boundary"].tolist()


@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (4, 1), (6, 7)])
def test_heterogeneity_equals_a_loop_over_pixels(shape: tuple[int, int]) -> None:
    scores = np.random.default_rng(0).random(shape)
    kernel = np.array([[-1, 0, 1], [0, 0, 0], [1, 0, -1]])
    extended = np.pad(scores, 1, mode="edge")
    for i in range(shape[0]):
        for j in range(shape[1]):
            window = extended[i : i + 3, j : j + 3]
            assert refine.heterogeneity(scores)[i, j] == pytest.approx(np.ptp(window), abs=1e-15)
            expected = (window * kernel).sum()
            assert refine.heterogeneity(scores, "diagonal")[i, j] == pytest.approx(expected, abs=1e-15)


def test_diagonal_is_blind_to_straight_edges_and_range_is_not() -> None:
    square = torch.zeros(9, 9)
    square[3:6, 3:6] = 1
    assert int((refine.heterogeneity(square, "diagonal") != 0).sum()) == 16  # four pixels at each corner
    assert int((refine.heterogeneity(square, "range") != 0).sum()) == 24  # all 25 but the middle one


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_dtypes_and_leading_dimensions_come_back(dtype: torch.dtype) -> None:
    scores = torch.rand(2, 3, 5, 6, generator=torch.Generator().manual_seed(0)).to(dtype)
    for kind in ("range", "diagonal"):
        h = refine.heterogeneity(scores, kind)
        assert h.dtype == dtype
        assert h.shape == scores.shape
        assert torch.equal(h[1, 2], refine.heterogeneity(scores[1, 2], kind))
    assert refine.mixing(h).dtype == dtype
    assert refine.merge(scores, scores, refine.mixing(h)).dtype == dtype


def test_boundary_segments_over_targets_takes_the_strongest() -> None:
    h = torch.tensor([[[0.0, 0.3, 0.0]], [[0.0, 0.0, -0.4]]])
    labels = np.array([[0, 2, 4]])
    assert refine.boundary_segments(h, labels, 0.1).tolist() == [2, 4]
    assert isinstance(refine.boundary_segments(h, labels, 0.1), np.ndarray)
    assert refine.boundary_segments(h, labels, 0.35).tolist() == [4]
    assert refine.boundary_segments(h, labels, 0.4000001).tolist() == []
    assert refine.boundary_segments(torch.zeros(1, 3), labels, 0).tolist() == []


def test_merge_does_not_step_over_an_end_by_rounding() -> None:
    coarse, fine = np.array([0.21]), np.array([0.6])
    assert fine + 1.0 * (coarse - fine) < coarse
    assert refine.merge(coarse, fine, np.ones(1)) == coarse


def test_changed_is_the_root_mean_square() -> None:
    old, new = torch.zeros(3, 4), torch.full((3, 4), 0.2)
    assert refine.changed(new, old, 0.19)
    assert not refine.changed(new, old, 0.21)
    corner = torch.zeros(3, 4)
    corner[0, 0] = 1  # 1 / sqrt(12) = 0.2887
    assert refine.changed(corner, old, 0.288)
    assert not refine.changed(corner, old, 0.289)


def test_one_changed_target_is_enough() -> None:
    old = torch.zeros(2, 5, 5)
    new = old.clone()
    new[1] = 0.1
    assert refine.changed(new, old, 0.09)  # over both together it would be 0.07


def test_one_scale_for_all_depths() -> None:
    scale = refine.unit_scale(torch.tensor([[-1.0, 3.0, 1.0], [2.0, 2.0, 2.0]], dtype=torch.float64))
    assert scale(torch.tensor([[-1.0, 3.0, 1.0], [2.0, 2.0, 2.0]])).tolist() == [[0, 1, 0.5], [0.5, 0.5, 0.5]]
    later = torch.tensor([[5.0, -3.0], [7.0, -7.0]])
    assert scale(later).tolist() == [[1, 0], [0.5, 0.5]]
    assert scale.unclipped(later).tolist() == [[1.5, -0.5], [0.5, 0.5]]


def test_rounding_is_not_a_difference() -> None:
    values = torch.tensor([[0.1 + 0.2, 0.3]], dtype=torch.float64)
    assert float(values[0, 0]) != float(values[0, 1])
    assert refine.unit_scale(values)(values).tolist() == [[0.5, 0.5]]


def test_recentre_for_several_targets() -> None:
    children = torch.tensor([[0.0, 0.3], [0.5, 0.2]], dtype=torch.float64)
    parent, areas = torch.tensor([0.5, 0.9], dtype=torch.float64), torch.tensor([2, 1])
    shifted = refine.recentre(children, parent, areas)
    np.testing.assert_allclose(shifted, [[0.4, 0.7], [1.0, 0.7]])


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda: refine.heterogeneity(np.zeros((3, 3)), "cross"),
            ValueError,
            "`kind` must be one of 'range', 'diagonal'",
        ),
        (lambda: refine.heterogeneity(np.zeros(3)), ValueError, r"`scores` must be \(..., H, W\); got 3"),
        (lambda: refine.heterogeneity(np.full((3, 3), np.nan)), ValueError, "`scores` must be finite; got NaN"),
        (lambda: refine.heterogeneity(np.zeros((3, 3), int)), TypeError, "floating-point numbers"),
        (
            lambda: refine.boundary_segments(np.zeros((3, 3)), np.zeros((2, 3), int), 0.1),
            ValueError,
            r"`segments` must give every pixel \(3 x 3\) one label; got 2 x 3",
        ),
        (lambda: refine.boundary_segments(np.zeros((1, 1)), np.zeros((1, 1)), 0.1), TypeError, "integer labels"),
        (
            lambda: refine.boundary_segments(np.zeros((1, 1)), np.array([[-1]]), 0.1),
            ValueError,
            "from 0 on",
        ),
        (lambda: refine.boundary_segments(np.zeros((1, 1)), np.array([[0]]), -0.1), ValueError, "`threshold` must be"),
        (lambda: refine.mixing(np.zeros((1, 1)), temperature=0), ValueError, "`temperature` must be greater than 0"),
        (
            lambda: refine.merge(np.zeros((1, 2)), np.zeros((2, 1)), np.zeros(1)),
            ValueError,
            "the shape of `coarse_scores`",
        ),
        (lambda: refine.merge(np.zeros(2), np.zeros(2), np.full(2, 1.5)), ValueError, r"`alpha` must lie in \[0, 1\]"),
    ],
)
def test_bad_input(call: object, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()  # type: ignore[operator]
