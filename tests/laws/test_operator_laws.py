"""What the paper says about the operator, over random shapes, signs, partitions and temperatures."""

from __future__ import annotations

from dataclasses import replace

import hypothesis
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import usu
from tests.problems import Problem, problems
from usu.operator.potentials import log_odds, power, tensor

MONOTONE = {
    "tensor": tensor(0.1),
    "power": power(2),
    "log_odds": log_odds(1),
    "custom": lambda s: 1 + s**3,
}
BUDGETS = {
    "cell": "cell",
    "iwmr area max": usu.SoftIWMR(),
    "iwmr mass max": usu.SoftIWMR(prior="mass"),
    "iwmr area logmeanexp": usu.SoftIWMR(importance="logmeanexp"),
    "iwmr mass logmeanexp": usu.SoftIWMR(prior="mass", importance="logmeanexp"),
    "hybrid": usu.Hybrid(0.3),
}


def usu_map(p: Problem, **settings: object) -> np.ndarray:
    settings = {"temperature": p.temperature, **settings}
    return usu.redistribute(p.coarse, p.scores, cells=p.cells, **settings)


def worst(difference: np.ndarray, scale: np.ndarray | float) -> float:
    """Largest error relative to its own scale; zero where both vanish."""
    scale = np.broadcast_to(np.abs(scale), difference.shape)
    return float(np.max(np.abs(difference) / np.where(scale > 0, scale, 1)))


@given(problems(), st.sampled_from(sorted(MONOTONE)))
def test_d1_every_cell_keeps_its_mass(p: Problem, potential: str) -> None:
    assert worst(p.sums(usu_map(p, potential=MONOTONE[potential])) - p.masses, p.masses) <= 1e-12
    assert worst(p.sums(usu_map(p)) - p.masses, p.masses) <= 1e-12


@given(problems(dtypes=("float32",)))
def test_d1_in_single_precision(p: Problem) -> None:
    assert worst(p.sums(usu_map(p)) - p.masses, p.masses) <= 1e-6


@given(problems(), st.floats(1, 20), st.integers(0, 2**32 - 1))
def test_d1_survives_base_and_ceiling(p: Problem, gain: float, seed: int) -> None:
    base = np.maximum(np.random.default_rng(seed).normal(size=p.scores.shape), 0)  # half of it zero, whole cells too
    for settings in ({"base": base}, {"max_gain": gain}, {"base": base, "max_gain": gain}):
        result = usu_map(p, **settings)
        assert worst(p.sums(result) - p.masses, p.masses) <= 1e-12
        if "max_gain" in settings:
            density = p.values[p.labels]
            assert (np.abs(result) <= np.abs(density) * gain * (1 + 1e-9)).all()


@given(problems(), st.sampled_from(sorted(MONOTONE)), st.sampled_from(sorted(BUDGETS)))
def test_d2_a_higher_score_never_gets_less(p: Problem, potential: str, budget: str) -> None:
    result = usu_map(p, potential=MONOTONE[potential], budget=BUDGETS[budget]).reshape(-1)
    scores, labels = p.scores.reshape(-1), p.labels.reshape(-1)
    for k in np.unique(labels):
        inside = labels == k
        order = np.argsort(scores[inside], kind="stable")
        steps = np.diff(result[inside][order])
        assert (steps >= -1e-12 * (np.abs(result[inside]).max() + 1e-300)).all()


@given(problems(signs=("negative", "signed")))
def test_signed_literal_is_the_printed_formula(p: Problem) -> None:
    logits = (p.scores - 0.5) / p.temperature
    for k in np.unique(p.labels):
        inside = p.labels == k
        share = np.exp(logits[inside] - logits[inside].max())
        expected = p.masses[k] * share / share.sum()
        np.testing.assert_allclose(usu_map(p, signed="literal")[inside], expected, rtol=1e-9, atol=1e-300)


@given(problems(signs=("positive",), kinds=("continuous",), temperatures=(0.05, 10)), st.floats(-0.2, 0.2))
def test_d3_and_shift_invariance(p: Problem, shift: float) -> None:
    """Only differences of scores count, and a difference has the same effect everywhere."""
    low = Problem(p.coarse, 0.25 + 0.5 * p.scores, p.labels, p.on_grid, p.temperature)
    moved = Problem(p.coarse, low.scores + shift, p.labels, p.on_grid, p.temperature)
    result = usu_map(low)
    np.testing.assert_allclose(usu_map(moved), result, rtol=1e-9)
    flat, scores, labels = result.reshape(-1), low.scores.reshape(-1), p.labels.reshape(-1)
    for k in np.unique(labels):
        x, y = np.flatnonzero(labels == k)[[0, -1]]
        expected = np.exp((scores[x] - scores[y]) / p.temperature)
        assert flat[x] / flat[y] == pytest.approx(expected, rel=1e-9)


def conditioning(potential: object, at: float, gap: float) -> float:
    """φ(s + Δ) / φ(s), read off the operator."""
    low, high = usu.redistribute(np.ones((1, 1)), np.array([[at, at + gap]]), potential=potential)[0]
    return float(high / low)


@given(st.floats(0.001, 0.6), st.floats(0.05, 0.3))
def test_d3_fails_for_power_and_log_odds(at: float, gap: float) -> None:
    for potential in (power(2), log_odds(1)):
        ratios = [conditioning(potential, s, gap) for s in (at, 0.5 * (at + 1 - gap), 1 - gap - 1e-3)]
        assert max(ratios) / min(ratios) > 1 + 1e-3
    assert conditioning(tensor(0.3), at, gap) == pytest.approx(np.exp(gap / 0.3), rel=1e-9)


def test_the_papers_example_of_a_power_potential() -> None:
    assert conditioning(power(2), 0.8, 0.1) == pytest.approx(1.27, abs=0.005)
    assert conditioning(power(2), 0.1, 0.1) == pytest.approx(4.0)


@given(problems(), st.integers(0, 2**32 - 1))
def test_d4_nothing_outside_matters(p: Problem, seed: int) -> None:
    rng = np.random.default_rng(seed)
    k = rng.choice(np.unique(p.labels))
    inside = p.labels == k
    scores = np.where(inside, p.scores, rng.random(p.scores.shape))
    coarse = np.where(np.arange(p.values.size) == k, p.values, rng.normal(size=p.values.size)).reshape(p.coarse.shape)
    other = Problem(coarse, scores, p.labels, p.on_grid, p.temperature)
    np.testing.assert_allclose(usu_map(p)[inside], usu_map(other)[inside], rtol=1e-12, atol=1e-300)


@given(problems(), st.sampled_from(sorted(BUDGETS)))
def test_total_mass_is_kept_by_every_budget(p: Problem, budget: str) -> None:
    scale = np.abs(p.masses).sum()
    result = usu_map(p, budget=BUDGETS[budget])
    assert worst(np.array([result.sum() - p.masses.sum()]), scale) <= 1e-12
    soft = usu_map(p, budget=usu.SoftPrior())
    assert worst(np.array([soft.sum() - p.masses.sum()]), scale) <= 1e-12


@given(problems(), st.sampled_from(sorted(BUDGETS)))
def test_d1g_cells_hold_their_budgets_and_flows_sum_to_zero(p: Problem, budget: str) -> None:
    budgets = usu.cell_budgets(p.coarse, p.scores, cells=p.cells, budget=BUDGETS[budget])
    result = usu_map(p, budget=BUDGETS[budget])
    scale = np.abs(p.masses).sum()
    assert worst(p.sums(result) - budgets, scale) <= 1e-12
    assert worst(np.array([(budgets - p.masses).sum()]), scale) <= 1e-12


@given(problems(signs=("positive",)))
def test_iwmr_weights_are_a_partition_of_unity(p: Problem) -> None:
    for prior in ("area", "mass"):
        budgets = usu.cell_budgets(p.coarse, p.scores, cells=p.cells, budget=usu.SoftIWMR(prior=prior))
        weights = budgets / p.masses.sum()
        assert (weights >= 0).all()
        assert weights.sum() == pytest.approx(1, rel=1e-12)


@given(problems(signs=("positive",)), st.integers(0, 2**32 - 1))
def test_d4_semi_local_iwmr_shares_do_not_see_outside(p: Problem, seed: int) -> None:
    rng = np.random.default_rng(seed)
    k = rng.choice(np.unique(p.labels))
    inside = p.labels == k
    changed = Problem(
        p.coarse, np.where(inside, p.scores, rng.random(p.scores.shape)), p.labels, p.on_grid, p.temperature
    )
    before, after = (usu_map(q, budget=usu.SoftIWMR(temperature=1))[inside] for q in (p, changed))
    np.testing.assert_allclose(before / before.sum(), after / after.sum(), rtol=1e-9, atol=1e-300)


@given(problems(kinds=("constant",)))
def test_equal_importances_leave_masses_alone_for_the_mass_prior_only(p: Problem) -> None:
    budgets = usu.cell_budgets(p.coarse, p.scores, cells=p.cells, budget=usu.SoftIWMR(prior="mass"))
    assert worst(budgets - p.masses, np.abs(p.masses).sum()) <= 1e-12
    np.testing.assert_allclose(usu_map(p, budget=usu.SoftIWMR(prior="mass")), usu_map(p), rtol=1e-9, atol=1e-12)


@given(problems(signs=("positive",), kinds=("constant",)))
def test_equal_importances_even_masses_out_for_the_area_prior(p: Problem) -> None:
    """The paper says IWMR then reduces to USU; as printed it gives every cell the mean density instead."""
    budgets = usu.cell_budgets(p.coarse, p.scores, cells=p.cells, budget=usu.SoftIWMR(prior="area"))
    mean_density = p.masses.sum() / p.sizes.sum()
    np.testing.assert_allclose(budgets, mean_density * p.sizes, rtol=1e-12)


@given(problems(signs=("positive",), on_grid=True), st.integers(0, 2**32 - 1))
def test_the_area_prior_sees_only_the_total(p: Problem, seed: int) -> None:
    other = np.random.default_rng(seed).random(p.coarse.shape)
    other *= p.masses.sum() / (other.reshape(-1) * p.sizes).sum()
    q = Problem(other, p.scores, p.labels, True, p.temperature)
    np.testing.assert_allclose(usu_map(p, budget="iwmr"), usu_map(q, budget="iwmr"), rtol=1e-9, atol=1e-300)


@given(problems(signs=("positive",), temperatures=(0.05, 2)))
def test_logmeanexp_with_one_temperature_is_one_global_softmax(p: Problem) -> None:
    budget = usu.SoftIWMR(temperature=p.temperature, importance="logmeanexp")
    share = np.exp((p.scores - p.scores.max()) / p.temperature)
    np.testing.assert_allclose(usu_map(p, budget=budget), p.masses.sum() * share / share.sum(), rtol=1e-9)


@given(problems())
def test_hybrid_ends_are_cell_and_iwmr(p: Problem) -> None:
    scale = np.abs(p.masses).sum() + 1e-300
    for gamma, end in ((0.0, "cell"), (1.0, "iwmr")):
        assert np.abs(usu_map(p, budget=usu.Hybrid(gamma)) - usu_map(p, budget=end)).max() <= 1e-12 * scale


@given(problems(), st.floats(-1e3, 1e3).filter(lambda c: abs(c) > 1e-3))
def test_linear_in_mass(p: Problem, factor: float) -> None:
    scaled = Problem(p.coarse * abs(factor), p.scores, p.labels, p.on_grid, p.temperature)
    np.testing.assert_allclose(usu_map(scaled), abs(factor) * usu_map(p), rtol=1e-12, atol=1e-300)
    literal = Problem(p.coarse * factor, p.scores, p.labels, p.on_grid, p.temperature)
    np.testing.assert_allclose(
        usu_map(literal, signed="literal"), factor * usu_map(p, signed="literal"), rtol=1e-12, atol=1e-300
    )


@given(problems(signs=("signed", "negative")))
def test_flip_is_antisymmetric(p: Problem) -> None:
    """Explaining "against" with turned scores mirrors explaining "for"."""
    mirrored = Problem(-p.coarse, 1 - p.scores, p.labels, p.on_grid, p.temperature)
    np.testing.assert_allclose(usu_map(mirrored), -usu_map(p), rtol=1e-6, atol=1e-300)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=8), st.floats(0, 1), st.floats(0.02, 10))
def test_independence_of_irrelevant_alternatives(rest: list[float], extra: float, temperature: float) -> None:
    """The ratio of two pixels does not change when others join the cell."""
    few = usu.redistribute(np.ones((1, 1)), np.array([rest]), temperature=temperature)[0]
    more = usu.redistribute(np.ones((1, 1)), np.array([[*rest, extra]]), temperature=temperature)[0]
    assert few[0] * more[1] == pytest.approx(few[1] * more[0], rel=1e-9)


def test_d4_alone_does_not_give_iia() -> None:
    """Sharing by exp(s / (0.1 + spread of the cell)) is local, conserving and monotone, and its ratios do change."""

    def share(scores: np.ndarray) -> np.ndarray:
        weight = np.exp(scores / (0.1 + scores.std()))
        return weight / weight.sum()

    few, more = share(np.array([0.2, 0.8])), share(np.array([0.2, 0.8, 0.8]))
    assert few.sum() == pytest.approx(1)
    assert (np.diff(more) >= 0).all()
    assert abs(few[1] / few[0] - more[1] / more[0]) > 0.1


@given(problems(kinds=("constant",)))
def test_constant_scores_are_nearest_neighbour(p: Problem) -> None:
    np.testing.assert_allclose(usu_map(p), p.values[p.labels], rtol=1e-12)


@given(problems(signs=("positive",)))
def test_a_hot_potential_approaches_nearest_neighbour_and_a_cold_one_the_top_score(p: Problem) -> None:
    np.testing.assert_allclose(usu_map(p, temperature=1e6), p.values[p.labels], rtol=1e-5)
    cold = usu_map(p, temperature=1e-6)
    for k in np.unique(p.labels):
        inside = p.labels == k
        near_top = p.scores[inside] > p.scores[inside].max() - 1e-3
        assert cold[inside][near_top].sum() == pytest.approx(p.masses[k], rel=1e-9)


@given(problems(signs=("positive", "rectified")))
def test_applying_it_twice_is_applying_it_with_the_last_scores(p: Problem) -> None:
    once = usu_map(p)
    again = Problem(
        (p.sums(once) / np.maximum(p.sizes, 1)).reshape(p.coarse.shape),
        1 - p.scores,
        p.labels,
        p.on_grid,
        p.temperature,
    )
    direct = Problem(p.coarse, 1 - p.scores, p.labels, p.on_grid, p.temperature)
    np.testing.assert_allclose(usu_map(again), usu_map(direct), rtol=1e-9, atol=1e-300)


@given(problems(signs=("positive",), temperatures=(0.05, 10)), st.floats(1, 30))
def test_the_ceiling_is_water_filling(p: Problem, gain: float) -> None:
    """Against the definition: shares are min(c · φ, gain / n) with c such that they add up, found by bisection."""
    result = usu_map(p, max_gain=gain)
    for k in np.unique(p.labels):
        inside = p.labels == k
        phi = np.exp((p.scores[inside] - p.scores[inside].max()) / p.temperature)
        n = phi.size
        low, high = 0.0, 1 / phi.min()
        for _ in range(200):
            c = (low + high) / 2
            low, high = (c, high) if np.minimum(c * phi, gain / n).sum() < 1 else (low, c)
        expected = p.masses[k] * np.minimum(high * phi, gain / n)
        np.testing.assert_allclose(result[inside], expected, rtol=1e-6)


def twin(p: Problem, base: np.ndarray, gain: float, flip: bool) -> np.ndarray:
    """The definition cell by cell in 80 bits: the scores' differences over the temperature, then water-filling."""
    result = np.zeros(p.scores.shape, dtype=np.longdouble)
    for k in np.unique(p.labels):
        inside = p.labels == k
        scores, prior = p.scores[inside].astype(np.longdouble), base[inside].astype(np.longdouble)
        mass = p.values[k].astype(np.longdouble) * scores.size
        if mass < 0 and flip:
            scores = -scores
        ceiling = np.longdouble(gain) / scores.size
        share, left = np.zeros_like(scores), np.longdouble(1)
        for there in (prior > 0, prior == 0):  # where there is no base only what the others cannot hold
            weigh = np.where(prior[there] > 0, prior[there], 1)
            own, free = np.zeros(int(there.sum()), dtype=np.longdouble), np.ones(int(there.sum()), dtype=bool)
            while free.any() and left > 0:
                logs = (scores[there] - scores[there][free].max()) / np.longdouble(p.temperature) + np.log(weigh)
                phi = np.where(free, np.exp(np.minimum(logs - logs[free].max(), 0)), 0)
                trial = left * phi / phi.sum()
                over = free & (trial > ceiling)
                if not over.any():
                    own[free] = trial[free]
                    left = np.longdouble(0)
                    break
                own[over] = ceiling
                left -= ceiling * int(over.sum())
                free &= ~over
            share[there] = own
        result[inside] = mass * share
    return result


@hypothesis.settings(max_examples=150)
@given(
    p=problems(temperatures=(1e-300, 1e300), dtypes=("float64", "float32"), kinds=("continuous", "segments", "binary")),
    size=st.floats(-25, 25),
    gain=st.sampled_from([np.inf, 1.0, 1.5, 4.0]),
    zeros=st.sampled_from([0.0, 0.5, 0.95, None]),
    flip=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_extremes_against_the_definition_in_80_bits(
    p: Problem, size: float, gain: float, zeros: float | None, flip: bool, seed: int
) -> None:
    """Any temperature, mass, sign, ceiling and base with zeros, relative to the cell's mass."""
    assert_as_defined(p, size, gain, zeros, flip, seed)


def assert_as_defined(p: Problem, size: float, gain: float, zeros: float | None, flip: bool, seed: int) -> None:
    """The map of ``p``, its mass times 10^size, is that of `twin`.

    Under a ceiling, logits are rounded relative to the highest score of the cell: eps / temperature of each other.
    """
    p = replace(p, coarse=(p.coarse * 10**size).astype(p.coarse.dtype))
    rng = np.random.default_rng(seed)
    kept = rng.random(p.scores.shape) >= (zeros or 0)
    base = np.where(kept, 1 if zeros is None else rng.random(p.scores.shape), 0).astype(p.scores.dtype)
    given_base = {} if zeros is None else {"base": base}
    limit = {} if gain == np.inf else {"max_gain": gain}
    found = usu_map(p, signed="flip" if flip else "literal", **given_base, **limit)
    assert np.isfinite(found).all()
    eps = float(np.finfo(p.scores.dtype).eps)
    tolerance = 200 * eps * (1 if gain == np.inf else 1 + 1 / p.temperature)
    assert worst(found - twin(p, base, gain, flip), p.masses[p.labels]) <= tolerance
    exact = 1e-12 if p.scores.dtype == np.float64 else 1e-6
    assert worst(p.sums(found) - p.masses, p.masses) <= exact


@given(problems(signs=("positive",), kinds=("constant",)), st.integers(0, 2**32 - 1))
def test_a_base_with_constant_scores_is_mass_correction(p: Problem, seed: int) -> None:
    base = np.random.default_rng(seed).random(p.scores.shape) + 0.01
    expected = base * (p.masses / np.maximum(p.sums(base), 1e-300))[p.labels]
    np.testing.assert_allclose(usu_map(p, base=base), expected, rtol=1e-9)


@given(problems(signs=("positive", "rectified"), kinds=("constant",)))
def test_soft_prior_with_exponent_one_and_no_floor_gives_the_prior_back(p: Problem) -> None:
    result = usu_map(p, budget=usu.SoftPrior(exponent=1, floor=0))
    np.testing.assert_allclose(result, p.values[p.labels], rtol=1e-9, atol=1e-12)


@given(problems(signs=("positive",), temperatures=(0.05, 2)))
def test_soft_prior_with_exponent_zero_is_the_scores_alone(p: Problem) -> None:
    share = np.exp((p.scores - p.scores.max()) / p.temperature)
    result = usu_map(p, budget=usu.SoftPrior(exponent=0))
    np.testing.assert_allclose(result, p.masses.sum() * share / share.sum(), rtol=1e-9)


@given(
    problems(signs=("positive", "rectified"), temperatures=(0.05, 2)),
    st.floats(0, 2),
    st.floats(0.01, 0.5),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_soft_prior_is_its_formula(p: Problem, exponent: float, floor: float, given_base: bool, seed: int) -> None:
    """Ã = M_total · p^exponent · φ / Σ p^exponent · φ with p = b + floor · max b; b is the base, or the map itself."""
    prior = np.random.default_rng(seed).random(p.scores.shape) if given_base else p.values[p.labels]
    settings = {"base": prior} if given_base else {}
    result = usu_map(p, budget=usu.SoftPrior(exponent, floor), **settings)
    lifted = prior + floor * prior.max()
    if lifted.max() == 0:
        assert not result.any()
        return
    weight = lifted**exponent * np.exp((p.scores - p.scores.max()) / p.temperature)
    np.testing.assert_allclose(result, p.masses.sum() * weight / weight.sum(), rtol=1e-9)
