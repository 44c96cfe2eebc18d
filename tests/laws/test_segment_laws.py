from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from usu import segment

label_maps = hnp.arrays(np.int64, hnp.array_shapes(min_dims=2, max_dims=2, max_side=7), elements=st.integers(0, 5))


@given(label_maps)
def test_refinement_is_reflexive(labels: np.ndarray) -> None:
    assert segment.refines(labels, labels)


@given(label_maps, st.data())
def test_refinement_is_transitive_and_seen_when_it_is_there(fine: np.ndarray, data: st.DataObject) -> None:
    maps = st.lists(st.integers(0, 3), min_size=6, max_size=6).map(np.array)
    middle = data.draw(maps)[fine]
    coarse = np.append(data.draw(maps), [0])[middle]
    assert segment.refines(fine, middle)
    assert segment.refines(middle, coarse)
    assert segment.refines(fine, coarse)


@given(label_maps, st.data())
def test_refinement_equals_its_definition(a: np.ndarray, data: st.DataObject) -> None:
    b = data.draw(hnp.arrays(np.int64, a.shape, elements=st.integers(0, 2)))
    contained = all(len(np.unique(b[a == p])) == 1 for p in np.unique(a))
    assert segment.refines(a, b) == contained


@given(label_maps)
def test_refinement_both_ways_means_the_same_segments(labels: np.ndarray) -> None:
    renamed = np.array([3, 0, 5, 1, 4, 2])[labels]
    assert segment.refines(renamed, labels)
    assert segment.refines(labels, renamed)


@given(label_maps)
def test_adjacency_is_symmetric_and_irreflexive(labels: np.ndarray) -> None:
    pairs = {tuple(row) for row in segment.adjacency(labels).tolist()}
    assert pairs == {(q, p) for p, q in pairs}
    assert all(p != q for p, q in pairs)


@given(label_maps)
def test_boundary_and_interior_partition_every_segment(labels: np.ndarray) -> None:
    edge, inside = segment.boundary(labels), segment.interior(labels)
    assert np.array_equal(edge ^ inside, np.ones_like(edge))
    assert edge.any() == (len(segment.adjacency(labels)) > 0)


@given(label_maps)
def test_relabel_changes_names_only(labels: np.ndarray) -> None:
    once = segment.relabel(labels)
    assert np.array_equal(np.unique(once), np.arange(len(np.unique(labels))))
    assert segment.refines(once, labels)
    assert segment.refines(labels, once)
    assert np.array_equal(segment.relabel(once), once)


@given(label_maps, st.integers(1, 8))
def test_merging_coarsens_to_the_number(labels: np.ndarray, most: int) -> None:
    merged = segment.merge_to(labels, most)
    assert segment.refines(labels, merged)
    assert merged.max() + 1 == min(most, len(np.unique(labels)))


@settings(max_examples=40)
@given(
    st.integers(0, 2**16),
    st.sampled_from([segment.Slic(), segment.Felzenszwalb(), segment.Tiles(), segment.Watershed()]),
    st.integers(1, 5),
    st.integers(0, 20),
)
def test_every_split_nests_and_stays_within_its_limit(
    seed: int, segmenter: segment.Segmenter, parts: int, limit: int
) -> None:
    rng = np.random.default_rng(seed)
    height, width = rng.integers(1, 14, 2)
    picture = rng.random((height, width, 3)).round(1)
    labels = segment.relabel(rng.integers(0, 4, (height, width)))
    for _ in range(2):
        coarse, count = labels, int(labels.max()) + 1
        which = rng.permutation(count)[: rng.integers(0, count + 1)]
        labels = segment.split(coarse, which, picture, segmenter, parts, limit=limit)
        assert np.array_equal(np.unique(labels), np.arange(labels.max() + 1))
        assert segment.refines(labels, coarse)
        families = np.bincount(segment.parents(labels, coarse))
        assert families.max() <= max(1, parts)
        assert families[families > 1].sum() <= limit
        assert np.all(families[np.setdiff1d(np.arange(count), which)] == 1)


BUILT_IN = [
    segment.Slic(),
    segment.Slic(smoothing=1.0),
    segment.Felzenszwalb(),
    segment.Tiles(),
    segment.Watershed(),
    segment.from_labels(np.zeros((12, 12), dtype=int), inner=segment.Slic(smoothing=0.7)),
]


@settings(max_examples=30)
@given(st.integers(0, 2**16), st.sampled_from(BUILT_IN), st.integers(2, 6))
def test_what_lies_outside_a_region_does_not_matter(seed: int, segmenter: segment.Segmenter, parts: int) -> None:
    """Neither its colours, nor how much of it is shown."""
    rng = np.random.default_rng(seed)
    picture, other = rng.random((2, 12, 12, 3))
    region = np.zeros((12, 12), dtype=bool)
    top, left = rng.integers(0, 5, 2)
    box = slice(top, top + rng.integers(4, 8)), slice(left, left + rng.integers(4, 8))
    region[box] = rng.random(region[box].shape) < 0.9
    labels = segmenter(picture, parts, region=region)
    assert np.array_equal(segmenter(np.where(region[..., None], picture, other), parts, region=region), labels)
    cropped = segmenter(picture[box], parts, region=region[box])
    assert np.array_equal(cropped, labels[box])
