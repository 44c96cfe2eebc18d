"""Twins are found, are twins for bilinear and not for USU; shapes have the area they say."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from experiments.synthetic.identical import KINDS, OVERLAP, TOLERANCE, Polygon, Twins, light, search

import usu

SIZE, GRID = 64, 4


@pytest.fixture(scope="module")
def found() -> list[Twins]:
    return search(size=SIZE, grid=GRID, candidates=240)


@pytest.mark.parametrize("kind", KINDS)
def test_a_shape_has_the_area_of_its_circle_and_turns(kind: str) -> None:
    shape = Polygon(kind, 60.0, 66.0, 30.0, 0.4)
    drawn = shape.drawn(128)
    assert drawn.sum() == pytest.approx(np.pi * 30**2, rel=0.01)
    rows, columns = np.nonzero(drawn)
    assert (rows.mean() + 0.5, columns.mean() + 0.5) == pytest.approx((60, 66), abs=0.3)
    turned = Polygon(kind, 60.0, 66.0, 30.0, 0.4 + np.pi).drawn(128)
    # half a turn moves a triangle and nothing else
    assert ((turned ^ drawn).mean() > 0.01) == (kind == "triangle")
    assert not Polygon(kind, 2.0, 2.0, 5.0, 0.0).drawn(16)[11:].any()


def test_the_search_finds_one_object_of_each_kind(found) -> None:
    (twins,) = found
    assert {polygon.kind for polygon in twins.polygons} == set(KINDS)
    for polygon, truth in zip(twins.polygons, twins.truths, strict=True):
        np.testing.assert_array_equal(polygon.drawn(SIZE), truth)
        # whole, not cut off by the border
        assert truth.sum() == pytest.approx(np.pi * polygon.radius**2, rel=0.15)
    records = twins.records(3)
    assert [record["kind"] for record in records] == [polygon.kind for polygon in twins.polygons]
    assert {record["group"] for record in records} == {3}
    assert records[0]["bilinear_gap"] == twins.bilinear_gap


def test_bilinear_cannot_tell_them_apart_and_usu_can(found) -> None:
    (twins,) = found
    gaps, moved, shared = [], [], []
    for i, j in ((0, 1), (0, 2), (1, 2)):
        gaps.append(np.abs(twins.bilinear[i] - twins.bilinear[j]).max() / twins.bilinear.max())
        moved.append(np.abs(twins.usu[i] - twins.usu[j]).sum() / (2 * twins.usu[i].sum()))
        shared.append((twins.truths[i] & twins.truths[j]).sum() / (twins.truths[i] | twins.truths[j]).sum())
    assert twins.bilinear_gap == pytest.approx(max(gaps))
    assert twins.bilinear_gap <= TOLERANCE
    assert twins.usu_gap == pytest.approx(min(moved), rel=1e-2)
    assert twins.usu_gap > 0.1
    assert twins.overlap == pytest.approx(max(shared))
    assert twins.overlap <= OVERLAP


def test_the_coarse_map_sums_the_truth_and_usu_keeps_it(found) -> None:
    (twins,) = found
    for truth, coarse, pixel_map in zip(twins.truths, twins.coarse, twins.usu, strict=True):
        assert coarse.sum() * (SIZE // GRID) ** 2 == truth.sum()
        assert usu.metrics.mass_error(pixel_map, coarse) < 1e-9


def test_the_model_is_additive() -> None:
    picture = torch.rand(1, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    left, right = picture.clone(), picture.clone()
    left[..., 2:], right[..., :2] = 0, 0
    torch.testing.assert_close(light(left) + light(right), light(picture))


def test_a_search_that_cannot_succeed_comes_back_empty() -> None:
    assert search(size=32, grid=4, candidates=12, tolerance=1e-9, overlap=0.0) == []
