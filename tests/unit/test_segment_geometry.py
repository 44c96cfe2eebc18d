from __future__ import annotations

import numpy as np
import pytest

from usu import segment

LABELS = np.array(
    [
        [0, 0, 0, 1, 1],
        [0, 0, 0, 1, 1],
        [0, 0, 0, 2, 2],
        [3, 3, 2, 2, 2],
    ]
)
STEPS = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0)]


def pixel_pairs(labels: np.ndarray) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Every ordered pair of 8-neighbours, one by one."""
    height, width = labels.shape
    return [
        ((i, j), (i + di, j + dj))
        for i in range(height)
        for j in range(width)
        for di, dj in STEPS
        if 0 <= i + di < height and 0 <= j + dj < width
    ]


@pytest.mark.parametrize("labels", [LABELS, np.random.default_rng(3).integers(0, 4, (7, 6)), np.array([[0], [1], [1]])])
def test_geometry_equals_the_definitions_pixel_by_pixel(labels: np.ndarray) -> None:
    pairs = pixel_pairs(labels)
    expected = sorted({(labels[x], labels[y]) for x, y in pairs if labels[x] != labels[y]})
    assert [tuple(row) for row in segment.adjacency(labels)] == expected

    edge = np.zeros(labels.shape, dtype=bool)
    for x, y in pairs:
        edge[x] |= labels[x] != labels[y]
    assert np.array_equal(segment.boundary(labels), edge)
    assert np.array_equal(segment.interior(labels), ~edge)


def test_diagonal_touch_is_adjacent() -> None:
    checker = np.array([[0, 1], [2, 3]])
    assert [0, 3] in segment.adjacency(checker).tolist()
    assert [1, 2] in segment.adjacency(checker).tolist()


def test_one_segment_has_no_boundary() -> None:
    labels = np.zeros((3, 4), dtype=np.int64)
    assert not segment.boundary(labels).any()
    assert segment.adjacency(labels).shape == (0, 2)


def test_relabel_keeps_order_and_closes_gaps_also_for_huge_labels() -> None:
    labels = np.array([[10**12, 5, -7], [5, 0, 10**12]])
    assert segment.relabel(labels).tolist() == [[2, 1, -1], [1, 0, 2]]
    assert segment.relabel(np.array([[4, -1, 9]])).tolist() == [[0, -1, 1]]
    assert segment.relabel(np.array([[3, 8]], dtype=np.uint8)).dtype == np.int64


def test_connected_splits_pieces_and_keeps_the_outside() -> None:
    labels = np.array([[0, 1, 0], [1, 1, 1], [-1, -1, 0]])
    assert segment.connected(labels).tolist() == [[0, 1, 2], [1, 1, 1], [-1, -1, 3]]


def test_merge_joins_the_smallest_to_its_longest_border() -> None:
    labels = np.array(
        [
            [0, 0, 0, 1, 1, 1],
            [0, 0, 0, 2, 1, 1],
            [0, 0, 0, 1, 1, 1],
        ]
    )
    # the lone pixel 2 has three neighbours in 0 and five in 1
    assert segment.merge_to(labels, 2).tolist() == [[0, 0, 0, 1, 1, 1]] * 3


def test_merge_joins_pieces_without_neighbours_only_when_nothing_else_is_left() -> None:
    labels = np.array([[0, -1, 1, 2, 2, -1, 3, 3, 3]])
    assert segment.merge_to(labels, 3).tolist() == [[0, -1, 1, 1, 1, -1, 2, 2, 2]]
    assert segment.merge_to(labels, 2).tolist() == [[0, -1, 0, 0, 0, -1, 1, 1, 1]]
    assert segment.merge_to(labels, 1).tolist() == [[0, -1, 0, 0, 0, -1, 0, 0, 0]]
    assert segment.merge_to(labels, 9).tolist() == labels.tolist()


@pytest.mark.parametrize(
    ("labels", "error", "got"),
    [
        ([[0, 1]], TypeError, "list"),
        (np.array([[0.0, 1.0]]), TypeError, "float64"),
        (np.array([[[[0, 1]]]]), ValueError, "shape"),
        (np.zeros((0, 3), dtype=int), ValueError, "shape 0 x 3"),
    ],
)
def test_bad_label_maps(labels: object, error: type[Exception], got: str) -> None:
    for function in (segment.relabel, segment.adjacency, segment.boundary, segment.connected, segment.from_labels):
        with pytest.raises(error, match=f"`labels` .*got .*{got}"):
            function(labels)


def test_refines_wants_one_shape() -> None:
    with pytest.raises(ValueError, match=r"`fine` and `coarse` .*got \(1, 2\) and \(2, 1\)"):
        segment.refines(np.array([[0, 1]]), np.array([[0], [1]]))
