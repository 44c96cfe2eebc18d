from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import usu
from tests.chosen import refining
from usu import refine, segment
from usu.operator.cells import interval_of

unit = st.floats(0, 1)
shapes = hnp.array_shapes(min_dims=2, max_dims=3, max_side=7)
fields = hnp.arrays(np.float64, shapes, elements=unit)
KINDS = ("range", "diagonal")


def pair(data: st.DataObject, field: np.ndarray) -> np.ndarray:
    return data.draw(hnp.arrays(np.float64, field.shape, elements=unit))


@given(fields, st.data(), st.floats(-10, 10))
def test_the_diagonal_map_is_linear(a: np.ndarray, data: st.DataObject, r: float) -> None:
    b = pair(data, a)
    h = lambda scores: refine.heterogeneity(scores, "diagonal")  # noqa: E731
    np.testing.assert_allclose(h(a + b), h(a) + h(b), rtol=0, atol=1e-13)
    np.testing.assert_allclose(h(r * a), r * h(a), rtol=0, atol=1e-13)


@given(fields, st.floats(-10, 10), st.floats(-10, 10))
def test_the_range_map_scales_and_ignores_shifts(a: np.ndarray, r: float, shift: float) -> None:
    h = refine.heterogeneity(a)
    assert (h >= 0).all()
    np.testing.assert_allclose(refine.heterogeneity(r * a + shift), abs(r) * h, rtol=0, atol=1e-13)


@given(
    hnp.arrays(np.int64, hnp.array_shapes(min_dims=2, max_dims=2, max_side=9), elements=st.integers(0, 2)), st.data()
)
def test_zero_in_the_interior_of_every_segment(labels: np.ndarray, data: st.DataObject) -> None:
    scores = data.draw(hnp.arrays(np.float64, 3, elements=unit))[labels]
    for kind in KINDS:
        assert (refine.heterogeneity(scores, kind)[segment.interior(labels)] == 0).all()


@given(fields, unit, unit, st.sampled_from(KINDS), st.integers(0, 2**16))
def test_the_boundary_set_is_monotone_in_the_threshold(
    scores: np.ndarray, one: float, other: float, kind: str, seed: int
) -> None:
    labels = np.random.default_rng(seed).integers(0, 6, scores.shape[-2:])
    h = refine.heterogeneity(scores, kind)  # type: ignore[type-var]
    low, high = sorted((one, other))
    wide, narrow = (refine.boundary_segments(h, labels, threshold) for threshold in (low, high))
    assert set(narrow) <= set(wide)
    assert np.array_equal(wide, np.unique(wide))
    by_hand = [p for p in np.unique(labels) if np.abs(h)[..., labels == p].max() > low]
    assert wide.tolist() == by_hand


@given(fields, st.data(), st.floats(0, 1))
def test_the_comparator_is_symmetric_and_ends_with_itself(a: np.ndarray, data: st.DataObject, tolerance: float) -> None:
    b = pair(data, a)
    one, other = torch.from_numpy(a), torch.from_numpy(b)
    assert refine.changed(one, other, tolerance) == refine.changed(other, one, tolerance)
    assert not refine.changed(one, one, tolerance)
    distances = np.sqrt(((a - b) ** 2).mean((-2, -1)))
    if not np.isclose(distances.max(), tolerance):
        assert refine.changed(one, other, tolerance) == bool(distances.max() > tolerance)


@given(st.floats(0, 0.5), st.floats(0.01, 0.2), st.floats(-2, 2))
def test_mixing_lies_between_zero_and_one_and_is_even(center: float, temperature: float, h: float) -> None:
    alpha = refine.mixing(np.array([h, -h]), center, temperature)
    # the sigmoid leaves (0, 1) in float64 only 36 temperatures away
    assert (alpha > 0).all()
    assert (alpha < 1).all() or abs(h) - center < -36 * temperature
    assert alpha[0] == alpha[1]


@given(st.floats(0.01, 0.2), st.floats(-15, 600), st.floats(1e-3, 50))
def test_mixing_is_strictly_decreasing(temperature: float, away: float, step: float) -> None:
    center = 15 * temperature  # so that |H| >= 0, and the sigmoid is not yet rounded to 1
    less, more = refine.mixing(center + temperature * np.array([away, away + step]), center, temperature)
    assert more < less


@given(st.floats(0.05, 1), st.floats(1e-3, 0.2), st.floats(1e-9, 1))
def test_mixing_at_its_center_and_five_temperatures_away(center: float, temperature: float, beyond: float) -> None:
    assert refine.mixing(np.array([center]), center, temperature)[0] == 0.5
    assert refine.mixing(np.array([center + 5 * temperature + beyond]), center, temperature)[0] < 0.01
    low = center - 5 * temperature - beyond
    if low >= 0:
        assert refine.mixing(np.array([low]), center, temperature)[0] > 0.99


def test_the_preset_keeps_coarse_values_where_scores_are_flat() -> None:
    assert refine.mixing(np.zeros(1))[0] > 0.99


@given(fields, st.data())
def test_merge_is_convex_bounded_and_the_identity_on_equals(coarse: np.ndarray, data: st.DataObject) -> None:
    fine, alpha = pair(data, coarse), pair(data, coarse)
    merged = refine.merge(coarse, fine, alpha)
    np.testing.assert_allclose(merged, alpha * coarse + (1 - alpha) * fine, rtol=0, atol=1e-15)
    assert (merged >= np.minimum(coarse, fine)).all()
    assert (merged <= np.maximum(coarse, fine)).all()
    assert np.array_equal(refine.merge(coarse, coarse, alpha), coarse)
    np.testing.assert_allclose(refine.merge(coarse, fine, np.ones_like(alpha)), coarse, rtol=0, atol=1e-15)
    assert np.array_equal(refine.merge(coarse, fine, np.zeros_like(alpha)), fine)


@given(
    hnp.arrays(np.float64, hnp.array_shapes(min_dims=1, max_dims=2, max_side=6), elements=st.floats(-3, 3)),
    st.integers(0, 2**16),
)
def test_recentred_children_average_to_their_parent(children: np.ndarray, seed: int) -> None:
    rng = np.random.default_rng(seed)
    parent, areas = rng.random(children.shape[:-1]), rng.integers(1, 50, children.shape[-1])

    def recentred(children: np.ndarray, parent: np.ndarray) -> np.ndarray:
        return refine.recentre(*(torch.from_numpy(np.asarray(one)) for one in (children, parent, areas))).numpy()

    shifted = recentred(children, parent)
    assert ((shifted >= 0) & (shifted <= 1)).all()
    order = np.argsort(children, axis=-1, kind="stable")
    assert (np.diff(np.take_along_axis(shifted, order, -1)) >= 0).all()
    small = 0.1 * children / max(1.0, np.abs(children).max())  # too little spread to be clipped
    middle = 0.3 + 0.4 * parent
    mean = (recentred(small, middle) * areas).sum(-1) / areas.sum()
    np.testing.assert_allclose(mean, middle, rtol=0, atol=1e-12)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**16),
    targets=st.integers(1, 3),
    depth=st.integers(0, 4),
    parts=st.integers(2, 5),
    cost=st.integers(1, 3),
    spare=st.none() | st.integers(0, 60),
    kind=st.sampled_from(KINDS),
    reach=st.sampled_from(("pixel", "segment")),
    segmenter=st.sampled_from([segment.Tiles(), segment.Slic()]),
)
def test_the_whole_recursion(
    seed: int,
    targets: int,
    depth: int,
    parts: int,
    cost: int,
    spare: int | None,
    kind: str,
    reach: str,
    segmenter: segment.Segmenter,
) -> None:
    """Random effects, any settings: scores in [0, 1], budget kept, levels nest, mass conserved at every depth."""
    rng = np.random.default_rng(seed)
    height, width = rng.integers(4, 20, 2)
    picture = rng.random((height, width, 3))
    first = segmenter(picture, int(rng.integers(1, 10)))
    allowed = None if spare is None else cost * (int(first.max()) + 1) + spare
    bill = 0

    def score(labels: np.ndarray, which: np.ndarray) -> torch.Tensor:
        nonlocal bill
        bill += cost * len(which)
        return torch.from_numpy(rng.normal(0, 10 ** rng.uniform(-3, 3), (targets, len(which))))

    def split(labels: np.ndarray, which: np.ndarray, limit: int | None) -> np.ndarray:
        return segment.split(labels, which, picture, segmenter, parts, limit=limit)

    result = refine.refine(
        score,
        split,
        first,
        refining(depth=depth, heterogeneity=kind, reach=reach, tolerance=0),
        lambda: None if allowed is None else (allowed - bill) // cost,
    )
    assert allowed is None or bill <= allowed
    assert len(result.fields) <= depth + 1
    assert all(segment.refines(fine, coarse) for coarse, fine in pairwise(result.segments))
    coarse = rng.normal(0, 1, (targets, int(rng.integers(1, 4)), int(rng.integers(1, 4))))
    rows, columns = (
        interval_of(pixels, cells, torch.device("cpu")).numpy()
        for pixels, cells in zip((height, width), coarse.shape[1:], strict=True)
    )
    cells = rows[:, None] * coarse.shape[2] + columns
    sizes = np.bincount(cells.ravel())
    for field in result.fields:
        assert field.shape == (targets, height, width)
        assert bool(((field >= 0) & (field <= 1)).all())
        pixel_map = usu.redistribute(coarse, field)
        mass = coarse.reshape(targets, -1) * sizes
        sums = np.stack([np.bincount(cells.ravel(), one.ravel()) for one in pixel_map])
        np.testing.assert_allclose(sums, mass, rtol=1e-12, atol=0)
        scale = np.abs(mass).sum(1)
        assert (np.abs(pixel_map.sum((1, 2)) - mass.sum(1)) <= 1e-12 * scale).all()


@pytest.mark.parametrize("kind", KINDS)
def test_the_law_of_the_recursion_can_fail(kind: str) -> None:
    """A merge of attributions instead of scores loses mass: the check above would see it."""
    rng = np.random.default_rng(0)
    fields = rng.random((2, 12, 12)) * np.array([0.15, 1])[:, None, None]  # H is about the center of the mixing
    alpha = refine.mixing(refine.heterogeneity(fields[0], kind))  # type: ignore[type-var]
    coarse = rng.random((3, 3))
    merged = refine.merge(*(usu.redistribute(coarse, field) for field in fields), alpha)
    sums = merged.reshape(3, 4, 3, 4).sum((1, 3))
    assert np.abs(sums / (16 * coarse) - 1).max() > 1e-3
