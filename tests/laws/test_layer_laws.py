"""What the budgets promise, with a base measure from the layers of a network and maps that have empty cells."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import Tensor

import usu
from tests.problems import grid_labels
from tests.small_nets import Tower, counted, seeded
from usu import segment
from usu.forward import engine
from usu.operator.interpolate import follow_picture, layered
from usu.sources.finer import finer_maps

value = st.one_of(st.just(0.0), st.floats(-10, 10).map(lambda v: round(v, 3)))
signs = st.sampled_from([lambda v: v, np.abs, lambda v: -np.abs(v)])
grids = st.tuples(st.integers(1, 4), st.integers(1, 4))
sizes = st.tuples(st.integers(16, 33), st.integers(16, 33))
seeds = st.integers(0, 2**16)
unit = st.floats(0, 1).map(lambda v: round(v, 3))


@st.composite
def coarse_maps(draw: st.DrawFn) -> np.ndarray:
    """At least one cell with mass, and often some without."""
    coarse = draw(signs)(draw(hnp.arrays(np.float64, draw(grids), elements=value)))
    coarse[0, 0] = coarse[0, 0] or 1.0
    return coarse


def summed(pixel_map: np.ndarray, grid: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """The sum and the number of each cell's pixels, by counting."""
    labels = grid_labels(grid, pixel_map.shape).ravel()
    sums = np.bincount(labels, pixel_map.ravel().astype(np.float64), grid[0] * grid[1])
    return sums.reshape(grid), np.bincount(labels, minlength=grid[0] * grid[1]).reshape(grid)


def picture_of(size: tuple[int, int], seed: int) -> Tensor:
    return torch.rand(3, *size, generator=torch.Generator().manual_seed(seed))


def upsampled(coarse: np.ndarray, size: tuple[int, int], seed: int, preset: str) -> usu.Upsampled[np.ndarray]:
    chosen = usu.PRESETS[preset]
    if chosen.scoring == "sampled":
        chosen = replace(chosen, parts=9, evaluations=12, segmenter=segment.Tiles())
    net = seeded(Tower, seed)
    with counted(net) as seen:
        result = usu.upsample(coarse, picture_of(size, seed), net, 1, preset=chosen)
    assert sum(seen) == result.evaluations == (12 if chosen.scoring == "sampled" else 1)
    return result


@settings(max_examples=60)
@given(coarse_maps(), sizes, seeds, st.sampled_from([np.float32, np.float64]))
def test_cell_keeps_every_cells_mass(coarse, size, seed, dtype):
    coarse = coarse.astype(dtype)
    result = upsampled(coarse, size, seed, "cell")
    assert result.pixel_map.dtype == dtype
    sums, counts = summed(result.pixel_map, coarse.shape)
    wanted = coarse.astype(np.float64) * counts
    scale = np.where(wanted != 0, np.abs(wanted), np.abs(wanted).mean())
    assert (np.abs(sums - wanted) / scale).max() < (1e-12 if dtype == np.float64 else 1e-6)
    assert result.mass_error < (1e-12 if dtype == np.float64 else 1e-6)
    # no sign but the cell's own; an empty one has a trace that is positive
    of_pixel = coarse.ravel()[grid_labels(coarse.shape, size)]
    assert (result.pixel_map[of_pixel > 0] >= 0).all()
    assert (result.pixel_map[of_pixel < 0] <= 0).all()
    empty = result.pixel_map[of_pixel == 0]
    assert ((empty >= 0) & (empty <= 1e-12 * np.abs(of_pixel).max())).all()
    assert empty.any() or not empty.size


@settings(max_examples=60)
@given(coarse_maps(), sizes, seeds, st.sampled_from(["soft", "fast"]))
def test_soft_and_fast_keep_the_total_of_each_sign(coarse, size, seed, preset):
    result = upsampled(coarse, size, seed, preset)
    _, counts = summed(result.pixel_map, coarse.shape)
    mass, chosen = coarse * counts, usu.PRESETS[preset]
    both = np.abs(mass).sum()
    assert abs(result.pixel_map.sum() - mass.sum()) < 1e-12 * both
    if (coarse >= 0).all() or (coarse <= 0).all():
        assert abs(np.abs(result.pixel_map).sum() - both) < 1e-12 * both, "the other sign came in"
    net = seeded(Tower, seed)
    heard = finer_maps(engine(net, 1), net, picture_of(size, seed), coarse.size).maps
    base = layered(torch.from_numpy(usu.interpolate(coarse, size, "bilinear")), [level[0] for level in heard])
    together = np.zeros(size)
    for part in (np.maximum(coarse, 0), np.minimum(coarse, 0)):
        own = usu.redistribute(
            part, result.scores, temperature=chosen.temperature_of(coarse.size), budget=chosen.budget, base=base.numpy()
        )
        assert abs(own.sum() - (part * counts).sum()) < 1e-12 * both
        together += own
    assert np.abs(together - result.pixel_map).max() < 1e-9 * both


@settings(max_examples=40)
@given(coarse_maps(), sizes, seeds, st.floats(0.25, 4), st.sampled_from(["cell", "soft", "fast"]))
def test_the_map_scales_with_the_coarse_map(coarse, size, seed, factor, preset):
    first, second = (upsampled(k * coarse, size, seed, preset).pixel_map for k in (1, factor))
    np.testing.assert_allclose(second, factor * first, rtol=1e-9, atol=1e-12 * np.abs(first).max())


@settings(max_examples=60)
@given(hnp.arrays(np.float64, hnp.array_shapes(min_dims=3, max_dims=3, min_side=2, max_side=12), elements=unit), seeds)
def test_scores_that_follow_the_picture_are_scores(scores, seed):
    picture = picture_of(scores.shape[1:], seed).permute(1, 2, 0).double().numpy()
    found = follow_picture(torch.from_numpy(scores), picture).numpy()
    assert found.shape == scores.shape
    assert ((found >= 0) & (found <= 1)).all()
    for field, one in zip(scores, found, strict=True):
        alone = follow_picture(torch.from_numpy(field)[None], picture)[0].numpy()
        np.testing.assert_allclose(one, alone, rtol=0, atol=1e-6)
        if np.ptp(field) == 0:
            assert np.array_equal(one, field)


@settings(max_examples=60)
@given(
    hnp.arrays(np.float64, (6, 9), elements=st.floats(-5, 5)),
    st.lists(hnp.arrays(np.float64, (3, 4), elements=st.floats(-5, 5)), max_size=2),
)
def test_the_coarse_map_alone_decides_the_sign_of_the_base(smooth, finer):
    base = layered(torch.from_numpy(smooth), [torch.from_numpy(level) for level in finer])
    assert base.isfinite().all()
    assert torch.equal(base > 0, torch.from_numpy(smooth >= 0))
    assert torch.equal(base < 0, torch.from_numpy(smooth < 0))
