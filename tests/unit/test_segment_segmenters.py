from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from skimage import data
from skimage.transform import resize

from tests.problems import grid_labels
from usu import segment
from usu.errors import MissingExtraError
from usu.segment.segmenter import smoothed

SEGMENTERS = [
    segment.Slic(),
    segment.Felzenszwalb(),
    segment.Tiles(),
    segment.Watershed(),
    segment.Watershed("dynamics"),
]
SHAPES = [(1, 1), (1, 2), (2, 2), (1, 50), (40, 1), (17, 401), (23, 31)]


def ids(value: object) -> str:
    return repr(value)


@cache
def photograph(height: int = 96, width: int = 128) -> np.ndarray:
    picture = resize(data.chelsea() / 255.0, (height, width))
    picture.flags.writeable = False
    return picture


def pictures(shape: tuple[int, int]) -> dict[str, np.ndarray]:
    ramp = np.linspace(0, 1, shape[0] * shape[1]).reshape(*shape, 1).repeat(3, axis=2)
    return {
        "constant": np.full((*shape, 3), 0.5),
        "noise": np.random.default_rng(0).random((*shape, 3)),
        "ramp": ramp,
        "photograph": photograph(*shape),
    }


def assert_answers(labels: np.ndarray, parts: int, region: np.ndarray) -> None:
    assert labels.dtype == np.int64
    assert labels.shape == region.shape
    assert np.array_equal(labels >= 0, region)
    assert np.all(labels[~region] == -1)
    inside = np.unique(labels[region])
    assert np.array_equal(inside, np.arange(len(inside)))
    assert 1 <= len(inside) <= parts


def assert_connected(labels: np.ndarray) -> None:
    assert segment.connected(labels).max() == labels.max()


@pytest.mark.parametrize("segmenter", SEGMENTERS, ids=ids)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_and_picture_gives_a_connected_partition(
    segmenter: segment.Segmenter, shape: tuple[int, int]
) -> None:
    for picture in pictures(shape).values():
        for parts in (1, 2, 4, 30):
            labels = segmenter(picture, parts)
            assert_answers(labels, parts, np.ones(shape, dtype=bool))
            assert_connected(labels)


@pytest.mark.parametrize("segmenter", SEGMENTERS, ids=ids)
def test_regions_of_odd_forms(segmenter: segment.Segmenter) -> None:
    picture = photograph(24, 30)
    rows, columns = np.mgrid[:24, :30]
    ring = np.abs(np.hypot(rows - 12, columns - 15) - 8) < 1.5
    diagonal = rows == columns
    two = (rows < 6) | (rows > 18)
    one = (rows == 3) & (columns == 4)
    for region in (ring, diagonal, two, one, np.ones_like(ring)):
        for parts in (2, 5):
            labels = segmenter(picture, parts, region=region)
            assert_answers(labels, parts, region)
            assert_connected(labels)
    dust = np.random.default_rng(1).random((24, 30)) < 0.2  # more pieces than parts: the number wins
    assert_answers(segmenter(picture, 3, region=dust), 3, dust)


@pytest.mark.parametrize("segmenter", SEGMENTERS, ids=ids)
def test_the_same_picture_gives_the_same_segments(segmenter: segment.Segmenter) -> None:
    picture = photograph()
    np.random.seed(0)
    first = segmenter(picture, 20)
    np.random.seed(1)
    state = np.random.get_state()[1].copy()
    assert np.array_equal(segmenter(picture, 20), first)
    assert np.array_equal(np.random.get_state()[1], state)


@pytest.mark.parametrize("segmenter", SEGMENTERS, ids=ids)
def test_the_picture_is_not_changed(segmenter: segment.Segmenter) -> None:
    picture = photograph().copy()
    before = picture.copy()
    segmenter(picture, 20, region=np.ones(picture.shape[:2], dtype=bool))
    assert np.array_equal(picture, before)


@pytest.mark.parametrize("segmenter", SEGMENTERS, ids=ids)
@pytest.mark.parametrize("parts", [5, 50, 150])
def test_about_as_many_as_asked_for_on_a_photograph(segmenter: segment.Segmenter, parts: int) -> None:
    assert segmenter(photograph(), parts).max() + 1 >= 0.75 * parts


@pytest.mark.parametrize("segmenter", [s for s in SEGMENTERS if not isinstance(s, segment.Tiles)], ids=ids)
def test_two_colours_are_told_apart(segmenter: segment.Segmenter) -> None:
    picture = np.zeros((20, 30, 3))
    picture[:, 11:] = (1, 0.5, 0)
    labels = segmenter(picture, 2)
    assert labels.max() == 1
    assert np.array_equal(labels == labels[0, 0], picture[..., 0] == 0)


@pytest.mark.parametrize("segmenter", [segment.Felzenszwalb(), segment.Slic(), segment.Watershed()], ids=ids)
def test_colours_outside_a_region_do_not_matter(segmenter: segment.Segmenter) -> None:
    picture = photograph(40, 40)
    region = np.zeros((40, 40), dtype=bool)
    region[8:30, 5:33] = True
    other = np.where(region[..., None], picture, 1 - picture)
    assert np.array_equal(segmenter(picture, 6, region=region), segmenter(other, 6, region=region))


def test_few_parts_of_a_photograph() -> None:
    for parts in (2, 3, 4):  # with so few, seeds on a lattice can all end up in one segment
        assert segment.Slic()(photograph(224, 224), parts).max() + 1 == parts


def test_slic_always_cuts_what_can_be_cut() -> None:
    rng = np.random.default_rng(5)
    for _ in range(60):
        height, width = rng.integers(1, 9, 2)
        region = segment.connected(rng.integers(0, 2, (height, width))) == 0
        labels = segment.Slic()(rng.random((height, width, 3)), 4, region=region)
        assert labels.max() >= min(1, region.sum() - 1)


def test_compactness_makes_segments_compact() -> None:
    picture = photograph()
    ragged, compact = (segment.boundary(segment.Slic(compactness=c)(picture, 40)).sum() for c in (1, 100))
    assert compact < 0.8 * ragged


def test_tiles_are_even() -> None:
    sizes = np.bincount(segment.Tiles()(np.zeros((21, 50, 3)), 10).ravel())
    assert len(sizes) == 10
    assert sizes.max() <= 1.3 * sizes.min()
    assert segment.Tiles()(np.zeros((17, 401, 3)), 50).max() + 1 == 50


@pytest.mark.parametrize(("size", "parts", "grid"), [((10, 15), 6, (2, 3)), ((7, 5), 4, (2, 2)), ((9, 4), 2, (2, 1))])
def test_tiles_are_the_cells_of_a_grid(size: tuple[int, int], parts: int, grid: tuple[int, int]) -> None:
    """By the same rule as those of a coarse map, so that a side that does not divide is cut at the same place."""
    np.testing.assert_array_equal(segment.Tiles()(np.zeros((*size, 3)), parts), grid_labels(grid, size))


def test_smoothing_a_region_mixes_in_nothing_from_outside() -> None:
    """One colour stays that colour up to the region's border, whatever lies beyond."""
    region = np.random.default_rng(0).random((12, 15)) < 0.6
    colour = np.where(region[..., None], [0.2, 0.5, 0.9], 7.0)
    np.testing.assert_allclose(smoothed(colour, region, 1.5)[region], colour[region], rtol=1e-12)


def test_watershed_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "higra", None)
    with pytest.raises(MissingExtraError, match=r"usu-xai\[higra\]"):
        segment.Watershed()(photograph(), 4)


@pytest.mark.parametrize("segmenter", [*SEGMENTERS, segment.from_labels(np.zeros((8, 9), dtype=int))], ids=ids)
def test_every_segmenter_is_a_segmenter(segmenter: object) -> None:
    assert isinstance(segmenter, segment.Segmenter)


@pytest.mark.parametrize(
    ("change", "error", "names"),
    [
        ({"picture": np.zeros((4, 40))}, ValueError, r"`picture` .*got shape \(4, 40\). .*grey"),
        ({"picture": np.zeros((4, 4, 4))}, ValueError, r"`picture` .*got shape \(4, 4, 4\). .*alpha"),
        ({"picture": np.zeros((0, 4, 3))}, ValueError, r"`picture` .*got shape \(0, 4, 3\)"),
        ({"picture": np.zeros((4, 4, 3), dtype=np.uint8)}, TypeError, "`picture` .*got uint8. .*255"),
        ({"picture": np.full((4, 4, 3), 2.0)}, ValueError, "`picture` .*got values from 2 to 2"),
        ({"picture": np.full((4, 4, 3), np.nan)}, ValueError, "`picture` .*got NaN"),
        ({"picture": [[0.0]]}, TypeError, "`picture` .*got list"),
        ({"parts": 0}, ValueError, "`parts` .*got 0"),
        ({"parts": 2.5}, TypeError, "`parts` .*got 2.5"),
        ({"region": np.ones((3, 4), dtype=bool)}, ValueError, r"`region` .*got bool \(3, 4\)"),
        ({"region": np.ones((4, 4))}, ValueError, "`region` .*got float64"),
        ({"region": np.zeros((4, 4), dtype=bool)}, ValueError, "`region` .*got none"),
    ],
)
def test_bad_questions(change: dict[str, object], error: type[Exception], names: str) -> None:
    question: dict[str, Any] = {"picture": np.zeros((4, 4, 3)), "parts": 2, "region": None, **change}
    for segmenter in SEGMENTERS:
        with pytest.raises(error, match=names):
            segmenter(question["picture"], question["parts"], region=question["region"])


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_a_picture_in_fewer_bits_is_the_same_picture(dtype: type[np.floating]) -> None:
    picture = photograph(24, 30).astype(dtype)
    for segmenter in SEGMENTERS:
        assert np.array_equal(segmenter(picture, 6), segmenter(picture.astype(np.float64), 6))


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: segment.Slic(compactness=0), "`compactness` must be greater than 0; got 0"),
        (lambda: segment.Slic(smoothing=-1), "`smoothing` .*got -1"),
        (lambda: segment.Slic(iterations=0), "`iterations` .*got 0"),
        (lambda: segment.Felzenszwalb(smoothing=-1), "`smoothing` .*got -1"),
        (lambda: segment.Felzenszwalb(tries=0), "`tries` .*got 0"),
        (lambda: segment.Watershed("depth"), "`by` .*got 'depth'"),  # type: ignore[arg-type]
    ],
)
def test_bad_settings(make: Callable[[], object], names: str) -> None:
    with pytest.raises(ValueError, match=names):
        make()
