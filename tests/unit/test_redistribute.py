"""The operator against reference numbers, and at its edges."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import usu
from usu.operator import cells

CASES = ("grid_7_to_28", "grid_not_divisible", "signed", "constant_scores", "cold")
ANSWERS = {
    "cell": {},
    "literal": {"signed": "literal"},
    "iwmr_area": {"budget": usu.SoftIWMR(0.2)},
    "iwmr_mass": {"budget": usu.SoftIWMR(0.2, prior="mass")},
}


@pytest.mark.parametrize("case", CASES)
def test_reference_vectors(vectors: Path, case: str) -> None:
    with np.load(vectors / f"{case}.npz") as stored:
        z = dict(stored)
    answers = dict(ANSWERS, **({"cell_with_base": {"base": z["base"]}} if "base" in z else {}))
    checked = [name for name in answers if name in z]
    assert len(checked) >= 2
    for name in checked:
        settings = {"temperature": float(z["temperature"]), **answers[name]}
        np.testing.assert_allclose(usu.redistribute(z["coarse"], z["scores"], **settings), z[name], atol=1e-10, rtol=0)
        flat = usu.redistribute(z["coarse"].reshape(-1), z["scores"], cells=z["cells"], **settings)
        np.testing.assert_allclose(flat, z[name], atol=1e-10, rtol=0)
        if name.startswith("iwmr"):
            budgets = usu.cell_budgets(z["coarse"], z["scores"], budget=settings["budget"])
            np.testing.assert_allclose(budgets, z[f"{name}_masses"], atol=1e-10, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_dtype_of_coarse_comes_out(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(2, 3, 3, generator=generator).to(dtype)
    scores = torch.rand(2, 10, 11, generator=generator).to(dtype)
    result = usu.redistribute(coarse, scores)
    assert result.dtype == dtype
    exact = usu.redistribute(coarse.double(), scores.double())
    torch.testing.assert_close(result.double(), exact, rtol=16 * torch.finfo(dtype).eps, atol=torch.finfo(dtype).tiny)


def test_numpy_in_numpy_out_torch_in_torch_out() -> None:
    coarse, scores = np.random.default_rng(0).random((2, 2)), np.random.default_rng(1).random((5, 6))
    from_numpy = usu.redistribute(coarse, scores)
    from_torch = usu.redistribute(torch.from_numpy(coarse), torch.from_numpy(scores))
    assert isinstance(from_numpy, np.ndarray)
    assert isinstance(from_torch, torch.Tensor)
    np.testing.assert_array_equal(from_numpy, from_torch.numpy())
    half = usu.redistribute(coarse.astype(np.float16), scores.astype(np.float32))
    assert half.dtype == np.float16


def test_awkward_numpy_arrays() -> None:
    coarse, scores = np.arange(4.0).reshape(2, 2), np.random.default_rng(0).random((4, 4))
    expected = usu.redistribute(coarse[::-1].copy(), scores.T.copy())
    frozen = coarse[::-1]
    frozen.flags.writeable = False
    np.testing.assert_array_equal(usu.redistribute(frozen, scores.T), expected)
    np.testing.assert_array_equal(usu.redistribute(coarse[::-1].astype(">f8"), scores.T), expected)


def test_leading_dimensions_broadcast() -> None:
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(2, 3, 4, 5, generator=generator, dtype=torch.float64) - 0.3
    scores = torch.rand(3, 9, 12, generator=generator, dtype=torch.float64)
    for budget in ("cell", "iwmr", "hybrid", usu.SoftPrior()):
        result = usu.redistribute(coarse, scores, budget=budget)
        assert result.shape == (2, 3, 9, 12)
        for i in range(2):
            for j in range(3):
                one = usu.redistribute(coarse[i, j], scores[j], budget=budget)
                torch.testing.assert_close(result[i, j], one, rtol=1e-12, atol=1e-12)
    assert usu.redistribute(coarse[0, 0], scores).shape == (3, 9, 12)


def test_bands_of_large_maps_join_without_a_trace() -> None:
    """Sizes that are worked on in several bands give what one label map gives."""
    scores = torch.rand(2, 1031, 530, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    coarse = torch.rand(2, 7, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    rows = (2 * torch.arange(1031) + 1) * 7 // (2 * 1031)
    columns = (2 * torch.arange(530) + 1) * 3 // (2 * 530)
    cells = rows[:, None] * 3 + columns
    by_label = usu.redistribute(coarse.flatten(1), scores, cells=cells)
    torch.testing.assert_close(usu.redistribute(coarse, scores), by_label, rtol=1e-12, atol=0)


@pytest.mark.parametrize("shape", [(40,), (6, 7), (4, 5, 6), (2, 3, 4, 5)])
def test_lattices_of_any_dimension(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    cells = rng.choice([0, 2, 5], size=shape).astype(np.int32)  # gaps: labels 1, 3, 4, 6 have no pixel
    coarse, scores = rng.normal(size=7), rng.random(shape)
    result = usu.redistribute(coarse, scores, cells=cells)
    sizes = np.bincount(cells.ravel(), minlength=7)
    np.testing.assert_allclose(np.bincount(cells.ravel(), result.ravel(), 7), coarse * sizes, rtol=1e-12)


def test_masses_and_densities() -> None:
    scores = np.random.default_rng(0).random((6, 6))
    density = usu.redistribute(np.array([[1.0, 2.0]]), scores)
    mass = usu.redistribute(np.array([[18.0, 36.0]]), scores, coarse_is="mass")
    np.testing.assert_allclose(density, mass, rtol=1e-12)


GRADIENTS = {
    "cell": {},
    "literal": {"signed": "literal"},
    "iwmr": {"budget": "iwmr"},
    "iwmr mass logmeanexp": {"budget": usu.SoftIWMR(prior="mass", importance="logmeanexp")},
    "hybrid": {"budget": "hybrid"},
    "soft prior": {"budget": usu.SoftPrior()},
    "ceiling": {"max_gain": 2.0},
    "power": {"potential": usu.potentials.power(2)},
    "log odds": {"potential": usu.potentials.log_odds(0.5)},
    "own potential": {"potential": lambda s: 1 + s**2},
}


#: Four cells of odd shapes, and one without a pixel.
LABELS = torch.arange(20).reshape(4, 5) * 7 % 11 // 3


def derivative_case(seed: int, labelled: bool, settings: dict[str, object]) -> tuple[Callable, tuple[Tensor, ...]]:
    """`usu.redistribute` of a coarse map of both signs, scores and a base, and these three."""
    draw = torch.Generator().manual_seed(seed)
    coarse = torch.rand(*((5,) if labelled else (2, 2)), generator=draw, dtype=torch.float64) - 0.4
    scores = 0.1 + 0.8 * torch.rand(4, 5, generator=draw, dtype=torch.float64)
    base = 0.1 + torch.rand(4, 5, generator=draw, dtype=torch.float64)
    settings = {"cells": LABELS if labelled else None, "temperature": 0.3, **settings}
    return lambda a, s, b: usu.redistribute(a, s, base=b, **settings), (coarse, scores, base)


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
@pytest.mark.parametrize("labelled", [False, True], ids=["grid", "labels"])
@pytest.mark.parametrize("settings", GRADIENTS.values(), ids=GRADIENTS)
def test_derivatives_in_both_directions_and_of_second_order(settings: dict[str, object], labelled: bool) -> None:
    function, given = derivative_case(0, labelled, settings)
    inputs = tuple(one.clone().requires_grad_() for one in given)
    assert torch.autograd.gradcheck(function, inputs, check_forward_ad=True, fast_mode=True)
    assert torch.autograd.gradgradcheck(function, inputs, fast_mode=True)


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
@pytest.mark.parametrize("labelled", [False, True], ids=["grid", "labels"])
@pytest.mark.parametrize("with_base", [False, True])
@pytest.mark.parametrize("settings", GRADIENTS.values(), ids=GRADIENTS)
def test_the_transforms_of_torch_func(settings: dict[str, object], with_base: bool, labelled: bool) -> None:
    based, given = derivative_case(1, labelled, settings)
    cells = LABELS if labelled else None

    def plain(a: Tensor, s: Tensor, b: Tensor) -> Tensor:
        return usu.redistribute(a, s, cells=cells, **{"temperature": 0.3, **settings})

    function = based if with_base else plain
    inputs = tuple(one.clone().requires_grad_() for one in given)
    expected = torch.autograd.functional.jacobian(function, inputs)
    for transform in (torch.func.jacrev, torch.func.jacfwd):
        for one, two in zip(transform(function, (0, 1, 2))(*given), expected, strict=True):
            torch.testing.assert_close(one, two, rtol=1e-9, atol=1e-11)
    stacks = tuple(torch.stack([one, one.flip(-1) * 0.9]) for one in given)
    pairs = [tuple(one[i] for one in stacks) for i in range(2)]
    torch.testing.assert_close(torch.vmap(function)(*stacks), torch.stack([function(*one) for one in pairs]))
    gradient = torch.func.grad(lambda a, s, b: function(a, s, b).pow(3).sum(), (0, 1, 2))
    for i, one in enumerate(pairs):
        for many, single in zip(torch.vmap(gradient)(*stacks), gradient(*one), strict=True):
            torch.testing.assert_close(many[i], single)


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
@pytest.mark.parametrize("labelled", [False, True], ids=["grid", "labels"])
@pytest.mark.parametrize("settings", GRADIENTS.values(), ids=GRADIENTS)
def test_transforms_of_transforms(settings: dict[str, object], labelled: bool) -> None:
    based, (coarse, scores, base) = derivative_case(3, labelled, settings)

    def function(s: Tensor) -> Tensor:
        return based(coarse, s, base)

    def loss(s: Tensor) -> Tensor:
        return function(s).pow(3).sum()

    near = partial(torch.testing.assert_close, rtol=1e-9, atol=1e-11)
    expected = torch.autograd.functional.hessian(loss, scores)
    assert expected.abs().max() > 0.01
    for outer, inner in product((torch.func.jacfwd, torch.func.jacrev), repeat=2):
        near(outer(inner(loss))(scores), expected)
    near(torch.autograd.functional.hessian(loss, scores, vectorize=True), expected)
    slope = torch.autograd.functional.jacobian(function, scores)
    for strategy in ("reverse-mode", "forward-mode"):
        near(torch.autograd.functional.jacobian(function, scores, vectorize=True, strategy=strategy), slope)


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_a_tangent_is_not_lost() -> None:
    (function, given), step = derivative_case(2, False, {}), 1e-6
    direction = tuple(torch.ones_like(one) * torch.arange(one.shape[-1]) for one in given)
    _, tangent = torch.func.jvp(function, given, direction)
    up, down = (function(*(x + e * step * d for x, d in zip(given, direction, strict=True))) for e in (1, -1))
    assert tangent.abs().max() > 0.1
    torch.testing.assert_close(tangent, (up - down) / (2 * step), rtol=1e-6, atol=1e-8)


def test_asking_for_a_gradient_does_not_change_the_numbers() -> None:
    coarse, scores = torch.rand(3, 3), torch.rand(9, 9)
    plain = usu.redistribute(coarse, scores)
    tracked = usu.redistribute(coarse.clone().requires_grad_(), scores)
    assert torch.equal(plain, tracked.detach())
    assert tracked.requires_grad
    assert not plain.requires_grad


def test_inputs_are_left_alone() -> None:
    coarse, scores, base = torch.rand(2, 2) - 0.5, torch.rand(6, 6), torch.rand(6, 6)
    before = [t.clone() for t in (coarse, scores, base)]
    for budget in ("cell", "iwmr", "hybrid", usu.SoftPrior()):
        usu.redistribute(coarse, scores, base=base, budget=budget, max_gain=3)
    assert all(torch.equal(a, b) for a, b in zip(before, (coarse, scores, base), strict=True))


def test_a_base_of_zero_gets_nothing_unless_there_is_nowhere_else() -> None:
    scores = np.array([[1.0, 0.0, 0.5, 0.5]])
    coarse = np.array([[1.0, 1.0]])
    result = usu.redistribute(coarse, scores, base=np.array([[0.0, 1.0, 0.0, 0.0]]))
    np.testing.assert_allclose(result, [[0, 2, 1, 1]], rtol=1e-12)
    spilled = usu.redistribute(coarse, scores, base=np.array([[0.0, 1.0, 0.0, 0.0]]), max_gain=1.5)
    np.testing.assert_allclose(spilled, [[0.5, 1.5, 1, 1]], rtol=1e-12)


def test_a_signed_prior_guides_each_sign() -> None:
    coarse = np.array([[2.0, -2.0]])
    scores = np.full((1, 4), 0.5)
    base = np.array([[3.0, 1.0, -1.0, -3.0]])
    result = usu.redistribute(coarse, scores, base=base, budget=usu.SoftPrior(exponent=1, floor=0))
    np.testing.assert_allclose(result, [[3, 1, -1, -3]], rtol=1e-12)


def test_all_zero_and_all_negative_maps() -> None:
    scores = np.random.default_rng(0).random((6, 6))
    for budget in ("cell", "iwmr", usu.SoftIWMR(prior="mass"), "hybrid", usu.SoftPrior()):
        assert not usu.redistribute(np.zeros((2, 2)), scores, budget=budget).any()
        negative = usu.redistribute(-np.ones((2, 2)), scores, budget=budget)
        assert (negative <= 0).all()
        assert negative.sum() == pytest.approx(-36)


def test_zero_total_of_a_signed_map_is_not_an_accident() -> None:
    """Positive and negative mass are budgeted separately, so a total of zero does not erase a map."""
    result = usu.redistribute(np.array([[1.0, -1.0]]), np.array([[0.9, 0.1, 0.9, 0.1]]), budget="iwmr")
    assert result.sum() == pytest.approx(0, abs=1e-12)
    assert (result[:, ::2] > 0).all()
    assert (result[:, 1::2] < 0).all()


def test_one_pixel() -> None:
    assert usu.redistribute(np.array([[3.0]]), np.array([[0.2]])).tolist() == [[3.0]]


@pytest.mark.parametrize("temperature", [1e-3, 1e-2, 0.1, 1.0, 1e3])
@pytest.mark.parametrize(
    ("grid", "size"), [((1, 1), (64, 64)), ((64, 64), (64, 64)), ((3, 4), (192, 256)), ((64, 64), (200, 130))]
)
def test_d1_from_one_pixel_to_a_whole_picture_per_cell(
    grid: tuple[int, int], size: tuple[int, int], temperature: float
) -> None:
    rng = np.random.default_rng(0)
    coarse, scores = rng.normal(size=grid), rng.random(size)
    rows, columns = ((2 * np.arange(n) + 1) * k // (2 * n) for k, n in zip(grid, size, strict=True))
    cells = (rows[:, None] * grid[1] + columns).ravel()
    for dtype, tolerance in ((np.float32, 1e-6), (np.float64, 1e-12)):
        result = usu.redistribute(coarse.astype(dtype), scores.astype(dtype), temperature=temperature)
        mass = coarse.astype(dtype).astype(np.float64).ravel() * np.bincount(cells)
        sums = np.bincount(cells, result.ravel().astype(np.float64))
        assert (np.abs(sums - mass) <= tolerance * np.abs(mass)).all()


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64", "int16"])
def test_labels_of_any_integer_type(dtype: str) -> None:
    labels, scores, coarse = LABELS.numpy(), np.random.default_rng(0).random((4, 5)), np.arange(5.0)
    expected = usu.redistribute(coarse, scores, cells=labels)
    np.testing.assert_array_equal(usu.redistribute(coarse, scores, cells=labels.astype(dtype)), expected)
    of_torch = usu.redistribute(
        torch.from_numpy(coarse), torch.from_numpy(scores), cells=LABELS.to(getattr(torch, dtype))
    )
    np.testing.assert_array_equal(of_torch.numpy(), expected)


def test_cold_temperatures_keep_the_mass_and_the_zeros_of_a_base() -> None:
    scores = torch.tensor([[0.0, 0.5, 1.0]])
    capped = usu.redistribute(torch.tensor([[-1.0]]), scores, temperature=1e-5, max_gain=2.0)
    assert capped.tolist() == [[-2, -1, 0]]
    based = usu.redistribute(torch.tensor([[1.0]]), scores, temperature=9e-5, base=torch.tensor([[1.0, 1.0, 0.0]]))
    assert based.tolist() == [[0, 3, 0]]
    for temperature in (1e-30, 1e-300):  # one over it is more than float32 can hold
        coldest = usu.redistribute(
            torch.tensor([[1.0]]), scores, temperature=temperature, budget=usu.SoftIWMR(temperature)
        )
        assert coldest.tolist() == [[0, 0, 3]]


def test_large_masses_do_not_overflow_on_the_way() -> None:
    low = torch.zeros(4, 4)
    assert torch.equal(usu.redistribute(torch.tensor([[1e13]]), low, temperature=1 / 60), low + 1e13)
    for size in (1e-200, 1e200):  # the product of two masses is more or less than float64 can hold
        coarse, scores = np.array([[size, 2 * size]]), np.array([[0.2, 0.4, 0.6, 0.8]])
        found = usu.redistribute(coarse, scores, budget=usu.SoftIWMR(prior="mass"))
        np.testing.assert_allclose(
            found / size, usu.redistribute(coarse / size, scores, budget=usu.SoftIWMR(prior="mass"))
        )


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("budget", ["cell", usu.SoftPrior(0.75, 0.0)])
def test_a_few_rows_at_a_time_are_as_good_as_all_at_once(budget, signed, plain, monkeypatch):
    dice = torch.Generator().manual_seed(0)
    coarse = torch.rand(2, 3, 2, generator=dice).double() - 0.4 * signed
    scores, base = torch.rand(2, 2, 23, 17, generator=dice).double()
    base[:, :8] = 0  # a cell without any, and one with some
    made, settings = {}, {} if plain else {"base": base, "max_gain": 5.0}
    for pixels in (1 << 21, 40):
        monkeypatch.setattr(cells, "CACHED_PIXELS", pixels)
        made[pixels] = usu.redistribute(coarse, scores, budget=budget, **settings)
    whole, parts = made.values()
    if plain:  # the densities are higher here, and a sum in parts is another one in its last digits
        assert torch.allclose(whole, parts, rtol=1e-14, atol=0)
    else:
        assert (whole - parts).abs().max() < 1e-15


def test_a_high_score_where_there_is_no_base_costs_the_others_no_digits():
    scores = torch.tensor([[0.5, 0.50012, 0.9, 1.0]])
    base = torch.tensor([[1.0, 3.0, 0.0, 0.0]])
    got = usu.redistribute(torch.ones(1, 1), scores, temperature=1e-4, base=base)
    exact = base.double() * ((scores.double() - 0.5) / 1e-4).exp().where(base > 0, 0)
    assert torch.allclose(got.double(), 4 * exact / exact.sum(), rtol=1e-6)
