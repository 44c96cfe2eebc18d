from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import Tensor

import usu
from tests.chosen import chosen, refining
from usu import segment
from usu.inputs import displayable
from usu.operator.cells import interval_of
from usu.refine import refine

pytestmark = pytest.mark.filterwarnings("ignore::usu.errors.UsuWarning")
value = st.floats(-10, 10).map(lambda v: round(v, 3))
coarse_maps = st.one_of(
    hnp.arrays(np.float64, hnp.array_shapes(min_dims=2, max_dims=2, max_side=5), elements=value),
    hnp.arrays(np.float64, (3, 2), elements=value.map(abs)),
    hnp.arrays(np.float64, (2, 3), elements=value.map(lambda v: -abs(v))),
    st.just(np.zeros((3, 3))),
)
sizes = st.tuples(st.integers(5, 14), st.integers(5, 14))


def picture_of(size: tuple[int, int], seed: int) -> Tensor:
    return torch.rand(3, *size, generator=torch.Generator().manual_seed(seed))


def model_of(size: tuple[int, int], seed: int):
    """A small random model with interactions: the same answer for the same picture, whatever the batch."""
    draw = torch.Generator().manual_seed(seed)
    first = torch.randn(3 * size[0] * size[1], 6, generator=draw, dtype=torch.float64)
    second = torch.randn(6, 3, generator=draw, dtype=torch.float64)

    def model(batch: Tensor) -> Tensor:
        model.seen += len(batch)
        return (batch.double().flatten(1) @ first).tanh() @ second

    model.seen = 0
    return model


def cell_sums(pixel_map: np.ndarray, grid: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Naively: the sum and the number of the pixels whose centre lies in each cell."""
    sums, counts = np.zeros(grid), np.zeros(grid)
    rows, columns = (
        interval_of(n, k, torch.device("cpu")).tolist() for n, k in zip(pixel_map.shape, grid, strict=True)
    )
    for y, i in enumerate(rows):
        for x, j in enumerate(columns):
            sums[i, j] += pixel_map[y, x]
            counts[i, j] += 1
    return sums, counts


def relative(sums: np.ndarray, wanted: np.ndarray) -> float:
    scale = np.where(wanted != 0, np.abs(wanted), np.abs(wanted).mean() or 1)
    return float((np.abs(sums - wanted) / scale).max())


@settings(max_examples=60)
@given(
    coarse_maps, sizes, st.integers(0, 2), st.sampled_from(["cell", "paper"]),
    st.sampled_from([np.float32, np.float64]), st.integers(0, 2**16),
)  # fmt: skip
def test_every_cell_keeps_its_mass(coarse, size, depth, preset, dtype, seed):
    coarse = coarse.astype(dtype)
    image, model = picture_of(size, seed), model_of(size, seed)
    result = usu.upsample(
        coarse, image, model, 0, preset=chosen(preset, depth=depth, parts=9, segmenter=segment.Tiles()), evaluations=40
    )
    assert result.pixel_map.dtype == dtype
    sums, counts = cell_sums(result.pixel_map.astype(np.float64), coarse.shape)
    error = relative(sums, coarse.astype(np.float64) * counts)
    assert error < (1e-12 if dtype == np.float64 else 1e-6)
    assert result.mass_error == pytest.approx(error, rel=1e-6, abs=1e-14)
    assert result.evaluations == model.seen <= 40


@settings(max_examples=40)
@given(coarse_maps, sizes, st.integers(0, 1), st.integers(0, 2**16))
def test_soft_keeps_the_mass_of_each_sign(coarse, size, depth, seed):
    image, model = picture_of(size, seed), model_of(size, seed)
    result = usu.upsample(coarse, image, model, 0, preset=chosen("soft", depth=depth, parts=9), evaluations=20)
    _, counts = cell_sums(result.pixel_map, coarse.shape)
    mass = coarse * counts
    total = np.abs(mass).sum() or 1
    assert abs(result.pixel_map.sum() - mass.sum()) / total < 1e-12
    assert result.mass_error == pytest.approx(abs(result.pixel_map.sum() - mass.sum()) / total, abs=1e-14)
    if (coarse >= 0).all():
        assert (result.pixel_map >= 0).all()
    if (coarse <= 0).all():
        assert (result.pixel_map <= 0).all()


@settings(max_examples=40)
@given(coarse_maps, sizes, st.integers(0, 2**16), st.sampled_from(["cell", "iwmr"]))
def test_mass_is_kept_at_every_depth_of_the_recursion(coarse, size, seed, budget):
    """The fields in between give exact maps too: what refinement changes is only where the mass goes."""
    image, model = picture_of(size, seed), model_of(size, seed)
    picture = displayable(image).numpy()

    def effects(labels: np.ndarray, which: np.ndarray) -> Tensor:
        return usu.score.delete(usu.forward.engine(model, 0), image, labels, which=which, fill=0.0).values[:, which]

    refined = refine(
        effects, lambda labels, which, limit: segment.split(labels, which, picture, segment.Tiles(), 4, limit=limit),
        segment.Tiles()(picture, 6), refining(depth=3, threshold=0.0, tolerance=0.0),
    )  # fmt: skip
    assert len(refined.fields) > 1 or float(refined.fields[0].std()) == 0
    for field, labels in zip(refined.fields, refined.segments, strict=True):
        result = usu.redistribute(coarse, field[0].numpy(), budget=budget)
        sums, counts = cell_sums(result, coarse.shape)
        mass = coarse * counts
        if budget == "cell":
            assert relative(sums, mass) < 1e-12
        assert abs(sums.sum() - mass.sum()) <= 1e-12 * (np.abs(mass).sum() or 1)
        assert labels.shape == size


@settings(max_examples=30)
@given(sizes, st.integers(0, 2**16), st.integers(3, 60), st.sampled_from(["cell", "soft"]), st.sampled_from([0, None]))
def test_exactly_so_many_evaluations(size, seed, evaluations, preset, target):
    coarse = torch.rand(2, 2, generator=torch.Generator().manual_seed(seed)) + 0.1
    model = model_of(size, seed)
    result = usu.upsample(coarse, picture_of(size, seed), model, target, preset=preset, evaluations=evaluations)
    assert model.seen == result.evaluations == evaluations


@settings(max_examples=30)
@given(coarse_maps, sizes, st.integers(0, 2**16), st.integers(2, 40), st.sampled_from([0, 1, 2]))
def test_a_budget_is_never_exceeded_and_a_refusal_costs_nothing(coarse, size, seed, evaluations, depth):
    model = model_of(size, seed)
    for mode in ("delete", "keep", "both"):
        own = usu.Settings(
            scoring="delete", mode=mode, parts=6, depth=depth, segmenter=segment.Tiles(), threshold=0.01, tolerance=0.0
        )
        model.seen = 0
        refused = None
        try:
            result = usu.upsample(coarse, picture_of(size, seed), model, 0, preset=own, evaluations=evaluations)
        except ValueError as error:
            refused = str(error)
        if refused is None:
            assert model.seen == result.evaluations <= evaluations
        else:
            assert "to score each of the" in refused
            assert model.seen == 0


@settings(max_examples=30)
@given(sizes, st.integers(0, 2**16), st.integers(0, 2), st.data())
def test_left_out_segments_cannot_change_the_result(size, seed, depth, data):
    """With every segment evaluated the map is the same to the last bit, except that depth 0 scales by what it needs."""
    coarse = data.draw(hnp.arrays(np.float64, (3, 3), elements=st.sampled_from([0.0, 0.0, 1.0, -2.0])))
    image, model = picture_of(size, seed), model_of(size, seed)
    own = usu.Settings(
        scoring="delete", parts=9, depth=depth, evaluations=None, fill=0.0, segmenter=segment.Tiles(), threshold=0.01
    )
    result = usu.upsample(coarse, image, model, 0, preset=own)
    saved = model.seen
    if not coarse.any():
        assert saved == 0
        assert not result.pixel_map.any()
        return
    with pytest.MonkeyPatch.context() as patch:
        labels_of = result.segments[0]
        needed = usu.score.needed(labels_of, _cells(size), np.abs(coarse).ravel()).numpy()
        everything = lambda labels, cells, masses: torch.ones(int(labels.max()) + 1).bool()  # noqa: E731
        patch.setattr("usu.pipeline.halves.needed", everything)
        every = usu.upsample(coarse, image, model, 0, preset=own)
    assert saved <= model.seen - saved
    if depth:
        assert np.array_equal(result.pixel_map, every.pixel_map)
        return
    effects = usu.score.delete(usu.forward.engine(model, 0), image, labels_of, fill=0.0).values[0].numpy()
    if needed.any() and np.ptp(effects[needed]) > 1e-9:
        low, span = effects[needed].min(), np.ptp(effects[needed])
        field = np.clip((effects - low) / span, 0, 1)[labels_of]
        base = np.abs(usu.interpolate(coarse, size, "bilinear"))
        expected = usu.redistribute(coarse, field, temperature=0.15, base=base, max_gain=6.0)
        np.testing.assert_allclose(result.pixel_map, expected, rtol=1e-12, atol=1e-12)


def _cells(size: tuple[int, int]) -> np.ndarray:
    rows, columns = (interval_of(n, 3, torch.device("cpu")).numpy() for n in size)
    return rows[:, None] * 3 + columns


@settings(max_examples=25)
@given(st.integers(0, 2**16), st.integers(1, 3), st.integers(0, 1), st.sampled_from(["sampled", "delete", "gradient"]))
def test_a_batch_is_its_pictures_and_several_targets_are_one_by_one(seed, batch, depth, scoring):
    size = (8, 10)
    draw = torch.Generator().manual_seed(seed)
    images = torch.rand(batch, 3, *size, generator=draw)
    coarse = torch.randn(batch, 2, 3, 3, generator=draw, dtype=torch.float64)
    targets = torch.randint(0, 3, (batch, 2), generator=draw).tolist()
    model = model_of(size, seed)
    own = usu.Settings(scoring=scoring, parts=9, depth=depth, evaluations=60, segmenter=segment.Tiles())
    together = usu.upsample(coarse, images, model, targets, preset=own)
    for i in range(batch):
        one = usu.upsample(coarse[i], images[i], model, targets[i], preset=own)
        assert torch.equal(together.pixel_map[i], one.pixel_map)
        if depth == 0:  # deeper, the targets together decide what is split
            for t in range(2):
                alone = usu.upsample(coarse[i, t], images[i], model, targets[i][t], preset=own)
                assert torch.allclose(one.pixel_map[t], alone.pixel_map, rtol=0, atol=1e-6)
                assert one.evaluations == alone.evaluations


@settings(max_examples=30)
@given(coarse_maps, sizes, st.floats(0.25, 4), st.integers(0, 2**16))
def test_the_map_scales_with_the_coarse_map(coarse, size, factor, seed):
    image, model = picture_of(size, seed), model_of(size, seed)
    run = lambda values: usu.upsample(values, image, model, 0, preset=chosen(parts=9), evaluations=20).pixel_map  # noqa: E731
    np.testing.assert_allclose(run(factor * coarse), factor * run(coarse), rtol=1e-9, atol=1e-9)


@given(
    st.integers(1, 400), st.integers(1, 200), st.integers(1, 5), st.floats(0.01, 3),
    st.one_of(st.none(), st.floats(0.01, 3)),
)  # fmt: skip
@example(cells=4, parts=60, factor=3, temperature=0.8, sharpest=0.1)
@example(cells=4, parts=60, factor=3, temperature=0.8, sharpest=0.4)
def test_cells_of_many_segments_are_shared_out_more_sharply(cells, parts, factor, temperature, sharpest):
    own = usu.Settings(parts=parts, temperature=temperature, sharpest=sharpest)
    larger = replace(own, parts=parts * factor)
    found = own.temperature_of(cells)
    lowest = temperature if sharpest is None else min(temperature, sharpest)
    side = (parts / cells) ** 0.5  # of a cell, in segments
    assert found == pytest.approx(min(temperature, max(lowest, temperature * 2**0.5 / side)), rel=1e-12)
    # what counts is how many segments a cell holds, and a smaller cell is never shared out more sharply
    assert larger.temperature_of(cells * factor) == pytest.approx(found, rel=1e-12)
    assert own.temperature_of(cells + 1) >= found
    assert own.temperature_of(max(cells, -(-parts // 2))) == temperature


@given(st.integers(1, 400), st.integers(1, 200), st.integers(1, 8))
@example(evaluations=100, parts=60, each=4)
def test_few_evaluations_have_segments_that_they_can_tell_apart(evaluations, parts, each):
    own = usu.Settings(parts=parts, per_segment=each, evaluations=evaluations)
    enough = evaluations >= 2 * parts
    assert own.segments == (parts if enough else min(parts, max(1, evaluations // each)))
    assert replace(own, per_segment=0).segments == replace(own, scoring="delete").segments == parts


def test_a_map_of_few_segments_says_so():
    image, model = picture_of((32, 32), 0), model_of((32, 32), 0)
    run = lambda evaluations: usu.upsample(  # noqa: E731
        np.ones((2, 2)), image, model, 0, preset=chosen("soft", segmenter=segment.Tiles()), evaluations=evaluations
    )
    few, many = run(40), run(120)
    assert [int(one.segments[0].max()) + 1 for one in (few, many)] == [9, 56]
    told = [[note for note in one.provenance["notes"] if "segments" in note] for one in (few, many)]
    assert told == [
        ["40 evaluations are enough for about 10 segments; from 120 on the map is made of 60, and finer."], []
    ]  # fmt: skip
