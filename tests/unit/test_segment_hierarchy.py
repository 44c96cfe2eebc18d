from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from skimage import data
from skimage.transform import resize

from usu import segment


@pytest.fixture(scope="module")
def picture() -> np.ndarray:
    return resize(data.coffee() / 255.0, (80, 100), anti_aliasing=True)


def test_split_cuts_the_chosen_and_keeps_the_others(picture: np.ndarray) -> None:
    labels = segment.Slic()(picture, 12)
    which = [7, 2]
    finer = segment.split(labels, which, picture, segment.Slic(), 4)
    assert segment.refines(finer, labels)
    parent = segment.parents(finer, labels)
    assert np.bincount(parent)[which].tolist() == [4, 4]
    for p in set(range(12)) - set(which):
        assert np.array_equal(finer == p, labels == p)
    assert set(finer[labels == 7]) == {7, 12, 13, 14}  # first come, first numbered
    assert set(finer[labels == 2]) == {2, 15, 16, 17}


@pytest.mark.parametrize(
    ("limit", "children"), [(0, []), (1, []), (2, [2]), (3, [3]), (5, [4]), (7, [4, 3]), (99, [4, 4, 4])]
)
def test_limit_serves_the_first_ones_first(picture: np.ndarray, limit: int, children: list[int]) -> None:
    labels = segment.Tiles()(picture, 9)
    which = [5, 0, 8]
    finer = segment.split(labels, which, picture, segment.Tiles(), 4, limit=limit)
    families = np.bincount(segment.parents(finer, labels))
    assert families[which].tolist() == children + [1] * (3 - len(children))


def test_a_single_pixel_stays_whole_and_costs_nothing() -> None:
    labels = np.array([[0, 1, 1, 1]])
    finer = segment.split(labels, [0, 1], np.zeros((1, 4, 3)), segment.Slic(), 2, limit=2)
    assert np.bincount(segment.parents(finer, labels)).tolist() == [1, 2]


def test_a_segmenter_that_gives_too_much_is_held_to_the_number(picture: np.ndarray) -> None:
    def eager(crop: np.ndarray, parts: int, *, region: np.ndarray | None = None) -> np.ndarray:
        return segment.Tiles()(crop, 10 * parts, region=region)

    labels = segment.Tiles()(picture, 4)
    finer = segment.split(labels, [0, 1], picture, eager, 3, limit=5)
    assert np.bincount(segment.parents(finer, labels)).tolist() == [3, 2, 1, 1]


def test_the_segmenter_sees_the_bounding_box_only() -> None:
    picture = np.random.default_rng(0).random((9, 9, 3))
    labels = np.zeros((9, 9), dtype=np.int64)
    labels[2:5, 3:7] = 1
    labels[2, 3] = 0
    seen = []

    def spy(crop: np.ndarray, parts: int, *, region: np.ndarray | None = None) -> np.ndarray:
        assert region is not None
        seen.append((crop, region))
        return np.where(region, 0, -1)

    assert np.array_equal(segment.split(labels, [1], picture, spy, 4), labels)
    assert np.array_equal(seen[0][0], picture[2:5, 3:7])
    assert np.array_equal(seen[0][1], labels[2:5, 3:7] == 1)


def test_splitting_again_and_again_keeps_nesting(picture: np.ndarray) -> None:
    first = segment.Slic()(picture, 6)
    second = segment.split(first, [0, 3], picture, segment.Slic(), 3)
    third = segment.split(second, [1, 6], picture, segment.Watershed(), 2)
    assert [int(level.max()) + 1 for level in (first, second, third)] == [6, 10, 12]
    for coarse, fine in ((first, second), (second, third)):
        assert np.array_equal(segment.parents(fine, coarse)[fine], coarse)


@pytest.mark.parametrize(
    ("change", "error", "names"),
    [
        ({"which": [2]}, ValueError, r"`which` .*0 to 1; got \[2\]"),
        ({"which": [-1]}, ValueError, "`which` .*got -1"),
        ({"which": [0, 0]}, ValueError, r"`which` .*got \[0, 0\]"),
        ({"which": np.array([0.0])}, TypeError, "`which` .*got .*float64"),
        ({"labels": np.array([[0, 0, 2]])}, ValueError, "`labels` .*got 0 to 2, 2 different"),
        ({"picture": np.zeros((2, 3, 3))}, ValueError, r"`picture` .*\(1, 3\); got \(2, 3\)"),
        ({"limit": -1}, ValueError, "`limit` .*got -1"),
    ],
)
def test_bad_splits(change: dict[str, Any], error: type[Exception], names: str) -> None:
    arguments = {"labels": np.array([[0, 0, 1]]), "which": [0], "picture": np.zeros((1, 3, 3)), **change}
    with pytest.raises(error, match=names):
        segment.split(**arguments, segmenter=segment.Tiles(), parts=2)


def test_a_segmenter_that_labels_the_outside_is_told_so() -> None:
    def careless(crop: np.ndarray, parts: int, *, region: np.ndarray | None = None) -> np.ndarray:
        return np.zeros(crop.shape[:2], dtype=int)

    with pytest.raises(ValueError, match=r"`segmenter` .*got .* 3 of 2"):
        segment.split(np.array([[0, 1, 0]]), [0], np.zeros((1, 3, 3)), careless, 2)


def test_nothing_to_split_changes_nothing() -> None:
    labels = np.array([[0, 0, 1]])
    assert segment.split(labels, [], np.zeros((1, 3, 3)), segment.Tiles(), 2).tolist() == labels.tolist()
