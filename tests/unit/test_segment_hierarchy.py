from __future__ import annotations

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
    labels = segment.Grid()(picture, 9)
    which = [5, 0, 8]
    finer = segment.split(labels, which, picture, segment.Grid(), 4, limit=limit)
    families = np.bincount(segment.parents(finer, labels))
    assert families[which].tolist() == children + [1] * (3 - len(children))


def test_a_single_pixel_stays_whole_and_costs_nothing() -> None:
    labels = np.array([[0, 1, 1, 1]])
    finer = segment.split(labels, [0, 1], np.zeros((1, 4, 3)), segment.Slic(), 2, limit=2)
    assert np.bincount(segment.parents(finer, labels)).tolist() == [1, 2]


def test_a_segmenter_that_gives_too_much_is_held_to_the_number(picture: np.ndarray) -> None:
    def eager(crop: np.ndarray, parts: int, *, region: np.ndarray | None = None) -> np.ndarray:
        return segment.Grid()(crop, 10 * parts, region=region)

    labels = segment.Grid()(picture, 4)
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


def test_hierarchy_grows_and_knows_parents(picture: np.ndarray) -> None:
    hierarchy = segment.Hierarchy((segment.Slic()(picture, 6),))
    hierarchy = hierarchy.split([0, 3], picture, segment.Slic(), 3).split([1, 6], picture, segment.Watershed(), 2)
    assert hierarchy.depth == 2
    assert [int(level.max()) + 1 for level in hierarchy.levels] == [6, 10, 12]
    for d in range(2):
        coarse, fine = hierarchy.levels[d : d + 2]
        assert np.array_equal(hierarchy.parents[d][fine], coarse)


def test_hierarchy_cannot_be_written_to_from_either_side() -> None:
    mine = np.array([[0, 1]])
    hierarchy = segment.Hierarchy((mine,))
    mine[0, 0] = 1
    assert hierarchy.levels[0].tolist() == [[0, 1]]
    with pytest.raises(ValueError, match="read-only"):
        hierarchy.levels[0][0, 0] = 1
    assert mine.flags.writeable


def test_bad_hierarchies() -> None:
    with pytest.raises(
        ValueError, match="must nest; got segment 1 of level 1, which lies in several segments of level 0"
    ):
        segment.Hierarchy((np.array([[0, 0, 1]]), np.array([[0, 1, 1]])))
    with pytest.raises(ValueError, match="must nest"):  # from coarse to fine, not the other way round
        segment.Hierarchy((np.array([[0, 1]]), np.array([[0, 0]])))
    with pytest.raises(ValueError, match=r"must have one shape; got \(1, 2\) and \(2, 1\)"):
        segment.Hierarchy((np.array([[0, 1]]), np.array([[0], [1]])))
    with pytest.raises(ValueError, match="at least one label map; got none"):
        segment.Hierarchy(())
    with pytest.raises(
        ValueError, match="must have labels 0 to P - 1, each of them used; got labels from 0 to 2, 2 different"
    ):
        segment.Hierarchy((np.array([[0, 2]]),))


def test_bad_splits() -> None:
    labels, picture = np.array([[0, 0, 1]]), np.zeros((1, 3, 3))
    for which in ([2], [-1], [0, 0]):
        with pytest.raises(ValueError, match="must name different segments of 0 to 1"):
            segment.split(labels, which, picture, segment.Grid(), 2)
    with pytest.raises(TypeError, match="`which` must be a list of labels; got float64"):
        segment.split(labels, np.array([0.0]), picture, segment.Grid(), 2)
    with pytest.raises(ValueError, match=r"must have the size of `labels` \(1, 3\); got \(2, 3\)"):
        segment.split(labels, [0], np.zeros((2, 3, 3)), segment.Grid(), 2)
    with pytest.raises(ValueError, match="at least 0 inside `region` and -1 outside"):
        segment.split(
            np.array([[0, 1, 0]]), [0], picture, lambda crop, parts, *, region: np.zeros((1, 3), dtype=int), 2
        )
    assert segment.split(labels, [], picture, segment.Grid(), 2).tolist() == labels.tolist()
