from __future__ import annotations

import numpy as np
import pytest

from usu import segment


def blob(rows: slice, columns: slice, shape: tuple[int, int] = (6, 8)) -> np.ndarray:
    region = np.zeros(shape, dtype=bool)
    region[rows, columns] = True
    return region


def test_labels_come_back_whatever_the_number_of_parts() -> None:
    labels = np.array([[3, 3, 9], [9, 3, 3]])
    given = segment.from_labels(labels)
    for parts in (1, 50):
        assert given(np.zeros((2, 3, 3)), parts).tolist() == [[0, 0, 1], [1, 0, 0]]


def test_what_is_handed_out_does_not_lead_back_to_what_is_kept() -> None:
    labels = np.array([[0, 1]])
    given = segment.from_labels(labels)
    labels[0, 0] = 1
    given(np.zeros((1, 2, 3)), 1)[:] = 7
    assert given.labels.tolist() == [[0, 1]]
    with pytest.raises(ValueError, match="read-only"):
        given.labels[0, 0] = 5


def test_the_smaller_region_wins_and_gaps_become_connected_segments() -> None:
    whole_left, square, dot = (
        blob(slice(0, 6), slice(0, 3)),
        blob(slice(1, 4), slice(1, 7)),
        blob(slice(2, 3), slice(2, 3)),
    )
    for order in ([whole_left, square, dot], [dot, whole_left, square], [square, dot, whole_left]):
        labels = segment.from_masks(np.stack(order)).labels
        assert segment.refines(labels, labels)
        assert len({int(v) for v in labels[dot]}) == 1
        assert labels[2, 2] not in (labels[1, 1], labels[0, 0])
        # 18 pixels either way: the earlier of the two wins where they overlap
        first = next(region for region in order if region is not dot)
        assert labels[1, 1] == labels[first & ~dot][0]
        bare = ~(whole_left | square)
        assert len(np.unique(labels[bare])) == 1
        assert not np.isin(labels[~bare], labels[bare]).any()


def test_two_gaps_are_two_segments() -> None:
    middle = blob(slice(0, 6), slice(3, 5))
    labels = segment.from_masks([middle]).labels
    assert len(np.unique(labels)) == 3
    assert labels[0, 0] != labels[0, 7]


def test_hidden_and_empty_regions_vanish_and_none_at_all_is_one_segment() -> None:
    square = blob(slice(1, 3), slice(1, 3))
    empty = np.zeros_like(square)
    labels = segment.from_masks([square, square, empty]).labels
    assert labels.max() == 1
    assert segment.from_masks(np.zeros((0, 3, 4), dtype=bool)).labels.tolist() == np.zeros((3, 4)).tolist()


def test_inside_a_region_the_inner_segmenter_cuts_on() -> None:
    given = segment.from_labels(np.array([[0, 0, 0, 0, 1]]), inner=segment.Tiles())
    picture = np.zeros((1, 5, 3))
    finer = segment.split(given(picture, 2), [0], picture, given, 2)
    assert finer.tolist() == [[0, 0, 2, 2, 1]]
    assert isinstance(segment.from_labels(np.array([[0]])).inner, segment.Slic)


@pytest.mark.parametrize(
    ("regions", "error"),
    [
        (np.ones(4, dtype=bool), ValueError),
        (np.ones((2, 4, 4)), TypeError),
        (np.ones((2, 0, 4), dtype=bool), ValueError),
    ],
)
def test_bad_regions(regions: np.ndarray, error: type[Exception]) -> None:
    with pytest.raises(error, match="`regions`"):
        segment.from_masks(regions)


def test_bad_labels() -> None:
    with pytest.raises(ValueError, match=r"`labels` .*got -1"):
        segment.from_labels(np.array([[0, -1]]))
    with pytest.raises(ValueError, match=r"`labels` .*\(4, 4\); got \(1, 2\)"):
        segment.from_labels(np.array([[0, 1]]))(np.zeros((4, 4, 3)), 2)
