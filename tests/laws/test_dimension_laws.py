"""Signals and volumes keep the laws of pictures: D1 to D3, naive twins of what was written for any dimension."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.ndimage import gaussian_filter
from torch import Tensor

import usu
from tests.chosen import chosen
from usu import fills, segment
from usu.forward import engine
from usu.forward.fills import apply
from usu.operator.cells import boxes
from usu.operator.interpolate import _box_mean, guided
from usu.refine.fields import h_map
from usu.score.posterior import kernels
from usu.score.sampled import sampled

pytestmark = pytest.mark.filterwarnings("ignore::usu.errors.UsuWarning")
#: A grid, and the size of a signal, a picture or a volume that it lies over.
shapes = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 7)), min_size=1, max_size=3).map(
    lambda sides: (tuple(n for n, _ in sides), tuple(n + more for n, more in sides))
)
seeds = st.integers(0, 2**31)


def cell_of(place: tuple[int, ...], grid: tuple[int, ...], size: tuple[int, ...]) -> tuple[int, ...]:
    """Naively: in which cell the centre of a pixel lies."""
    return tuple((2 * i + 1) * k // (2 * n) for i, k, n in zip(place, grid, size, strict=True))


def cell_sums(field: np.ndarray, grid: tuple[int, ...]) -> np.ndarray:
    sums = np.zeros(grid)
    for place in np.ndindex(field.shape):
        sums[cell_of(place, grid, field.shape)] += field[place]
    return sums


@given(shapes)
def test_boxes_are_the_cells_of_the_grid(shape) -> None:
    grid, size = shape
    labels = boxes(grid, size).labels()
    for place in np.ndindex(size):
        assert int(labels[place]) == np.ravel_multi_index(cell_of(place, grid, size), grid)


@given(shapes, seeds, st.booleans(), st.floats(0.05, 2.0), st.sampled_from([torch.float32, torch.float64]))
def test_d1_to_d3_of_the_operator(shape, seed, signed, temperature, dtype) -> None:
    grid, size = shape
    draw = torch.Generator().manual_seed(seed)
    coarse = torch.rand(2, *grid, generator=draw, dtype=dtype) - 0.5 * signed
    scores = torch.rand(2, *size, generator=draw, dtype=dtype)
    cells = boxes(grid, size)
    result = usu.redistribute(coarse, scores, cells=cells, temperature=temperature)
    sizes = cell_sums(np.ones(size), grid)
    for a, s, found in zip(coarse.double(), scores.double(), result.double(), strict=True):
        wanted = a.numpy() * sizes
        tolerance = 1e-12 if dtype == torch.float64 else 1e-6
        assert np.abs(cell_sums(found.numpy(), grid) - wanted).max() <= tolerance * np.abs(wanted).max()  # D1
        labels, flat, field = cells.labels().flatten(), s.flatten(), found.flatten()
        x = torch.randint(len(flat), (30,), generator=draw)
        y = torch.randint(len(flat), (30,), generator=draw)
        pairs = (labels[x] == labels[y]) & (field[x] != 0) & (field[y] != 0)
        x, y = x[pairs], y[pairs]
        assert bool(((flat[x] > flat[y]) <= (field[x] >= field[y])).all())  # D2
        up = torch.where(a.flatten()[labels[x]] >= 0, 1.0, -1.0)
        ratio = (field[x] / field[y]).log()
        slack = 1e-9 if dtype == torch.float64 else 1e-3
        assert torch.allclose(ratio, up * (flat[x] - flat[y]) / temperature, atol=slack)  # D3


@given(st.integers(1, 6), st.integers(0, 9), st.integers(1, 4), st.integers(0, 9), seeds)
def test_a_grid_of_boxes_is_the_grid(h, down, w, right, seed) -> None:
    draw = torch.Generator().manual_seed(seed)
    coarse = torch.randn(h, w, generator=draw, dtype=torch.float64)
    scores = torch.rand(h + down, w + right, generator=draw, dtype=torch.float64)
    for options in ({}, {"budget": usu.SoftIWMR()}, {"max_gain": 2.0}):
        plain = usu.redistribute(coarse, scores, **options)
        torch.testing.assert_close(
            usu.redistribute(coarse, scores, cells=boxes(coarse.shape, scores.shape), **options), plain
        )


@given(st.lists(st.integers(1, 6), min_size=1, max_size=3).map(tuple), st.integers(1, 3), seeds)
def test_box_means_are_means_of_windows(size, radius, seed) -> None:
    field = torch.randn(2, *size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    found = _box_mean(field, radius, len(size))
    for place in np.ndindex(size):
        window = (slice(None), *(slice(max(0, i - radius), i + radius + 1) for i in place))
        assert torch.allclose(found[(slice(None), *place)], field[window].flatten(1).mean(1))


@settings(max_examples=25)
@given(st.lists(st.integers(2, 5), min_size=1, max_size=3).map(tuple), st.integers(1, 3), seeds)
def test_the_guided_filter_is_a_ridge_in_every_window(size, channels, seed) -> None:
    draw = torch.Generator().manual_seed(seed)
    guide = torch.rand(channels, *size, generator=draw, dtype=torch.float64)
    field = torch.rand(1, *size, generator=draw, dtype=torch.float64)
    total, count = torch.zeros(size, dtype=torch.float64), torch.zeros(size, dtype=torch.float64)
    for place in np.ndindex(size):
        window = tuple(slice(max(0, i - 1), i + 2) for i in place)
        x = guide[(slice(None), *window)].flatten(1).T
        y = field[0][window].flatten()
        centred, middle = x - x.mean(0), y - y.mean()
        penalty = 1e-3 * len(x) * torch.eye(channels, dtype=torch.float64)
        slope = torch.linalg.solve(centred.T @ centred + penalty, centred.T @ middle)
        fitted = ((x - x.mean(0)) @ slope + y.mean()).reshape(total[window].shape)
        total[window] += fitted
        count[window] += 1
    # every pixel takes the mean of the lines of the windows around it
    assert torch.allclose(guided(field, guide, 1)[0], total / count, atol=1e-9)


@given(shapes, seeds)
def test_linear_interpolation_is_linear_along_each_dimension(shape, seed) -> None:
    grid, size = shape
    coarse = torch.randn(grid, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    wanted = coarse.numpy()
    for axis, (k, n) in enumerate(zip(grid, size, strict=True)):
        places = (np.arange(n) + 0.5) * k / n - 0.5
        wanted = np.apply_along_axis(lambda line, at=places: np.interp(at, np.arange(len(line)), line), axis, wanted)
    np.testing.assert_allclose(usu.interpolate(coarse, size).numpy(), wanted, atol=1e-12)
    nearest = usu.interpolate(coarse, size, "nearest")
    assert all(nearest[place] == coarse[cell_of(place, grid, size)] for place in np.ndindex(size))


@given(st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple), seeds)
def test_heterogeneity_is_the_range_and_the_mixed_derivative(size, seed) -> None:
    field = torch.rand(1, *size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    padded = np.pad(field[0].numpy(), 1, mode="edge")
    spread, mixed = h_map(field, "range")[0], h_map(field, "diagonal")[0]
    for place in np.ndindex(size):
        window = padded[tuple(slice(i, i + 3) for i in place)]
        assert float(spread[place]) == pytest.approx(float(np.ptp(window)))
        corners = [prod(step) * window[tuple(s + 1 for s in step)] for step in product((-1, 1), repeat=len(size))]
        assert abs(float(mixed[place])) == pytest.approx(abs(sum(corners)), abs=1e-12)


@given(st.lists(st.integers(1, 7), min_size=1, max_size=3).map(tuple), st.integers(1, 3), seeds)
def test_fills_know_every_dimension(size, channels, seed) -> None:
    image = torch.randn(channels, *size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    sigma = 0.1 * sorted(size)[-2:][0]
    blurred = [gaussian_filter(c, sigma, mode="nearest", radius=max(1, round(4 * sigma))) for c in image.numpy()]
    np.testing.assert_allclose(fills.Blur(0.1)(image).numpy(), np.stack(blurred), atol=1e-6)
    for channel, (mean, noise) in enumerate(zip(fills.Mean()(image), fills.Noise()(image), strict=True)):
        assert torch.allclose(mean, image[channel].mean())
        assert noise.shape == size
    assert fills.Constant(tuple(range(channels)))(image)[-1].unique().tolist() == [channels - 1]
    keep = torch.zeros(2, *size, dtype=torch.bool)
    keep[1] = True
    shown = apply(image, fills.Mean()(image), keep)
    assert torch.equal(shown[1], image)
    assert torch.equal(shown[0], fills.Mean()(image))


@given(st.sampled_from([(40,), (6, 7), (4, 3, 5)]), st.integers(1, 8), seeds)
def test_effects_of_an_additive_model_are_recovered(size, parts, seed) -> None:
    draw = torch.Generator().manual_seed(seed)
    image = torch.rand(2, *size, generator=draw, dtype=torch.float64)
    weight = torch.randn(2, *size, generator=draw, dtype=torch.float64)
    shown = np.full((*size, 3), 0.5)
    labels = segment.Tiles()(shown, parts)
    asked = engine(lambda batch: (batch * weight).flatten(1).sum(1, keepdim=True), 0)
    found = sampled(asked, image, torch.from_numpy(labels), fill=0, evaluations=6 * parts + 8, strength=0).values[0]
    for p in range(labels.max() + 1):
        assert float(found[p]) == pytest.approx(float((image * weight)[:, labels == p].sum()), abs=1e-6)


def net_of(dims: int, seed: int) -> torch.nn.Module:
    conv = (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d)[dims - 1]
    pool = (torch.nn.AdaptiveAvgPool1d, torch.nn.AdaptiveAvgPool2d, torch.nn.AdaptiveAvgPool3d)[dims - 1]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layers = [conv(2, 4, 3, stride=1, padding=1), torch.nn.ReLU(), conv(4, 4, 3, stride=2, padding=1)]
        return torch.nn.Sequential(
            *layers, torch.nn.ReLU(), pool(1), torch.nn.Flatten(), torch.nn.Linear(4, 3)
        ).double()


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from([(23,), (40,), (5, 6, 7), (9, 4, 6)]),
    st.sampled_from(["paper", "cell", "soft", "fast"]),
    st.booleans(),
    st.integers(0, 100),
)
def test_mass_is_kept_through_the_pipeline(size, preset, several, seed) -> None:
    dims, model = len(size), net_of(len(size), seed)
    image = torch.rand(2, *size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    grid = tuple(-(-n // 3) for n in size)
    maps = torch.rand(2, *grid, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    fewer = {} if preset in ("paper", "fast") else {"evaluations": 24}
    how = chosen(preset, parts=8, **fewer)
    coarse, target = (maps, [0, 2]) if several else (maps[0], 1)
    result = usu.upsample(coarse.numpy(), image, model, target, preset=how)
    pixel_maps = result.pixel_map if several else result.pixel_map[None]
    assert pixel_maps.shape == ((2 if several else 1), *size)
    for field, own in zip(pixel_maps, maps.numpy(), strict=False):
        wanted, sums = own * cell_sums(np.ones(size), grid), cell_sums(field, grid)
        if preset in ("paper", "cell"):
            assert np.abs(sums - wanted).max() <= 1e-11 * wanted.max()
        assert sums.sum() == pytest.approx(wanted.sum(), rel=1e-11)
    assert result.mass_error <= 1e-11
    if preset in ("cell", "soft"):
        assert result.stderr is not None
        assert result.stderr.shape == result.pixel_map.shape
        assert 0 <= result.stability <= 1
    assert {labels.ndim for labels in result.segments} == {dims}


@settings(max_examples=20)
@given(st.lists(st.integers(2, 7), min_size=1, max_size=3).map(tuple), st.integers(1, 9), seeds)
def test_segments_nest_are_connected_and_no_more_than_asked_for(size, parts, seed) -> None:
    picture = np.random.default_rng(seed).random((*size, 3))
    for segmenter in (segment.Slic(), segment.Slic(smoothing=1.0), segment.Tiles()):
        labels = segmenter(picture, parts)
        assert labels.shape == size
        assert labels.min() == 0
        assert labels.max() < parts
        assert segment.connected(labels).max() == labels.max()
        finer = segment.split(labels, [0], picture, segmenter, 3)
        assert segment.refines(finer, labels)


@settings(max_examples=20)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple), seeds)
def test_geometry_equals_the_definitions_in_every_dimension(size, seed) -> None:
    labels = np.random.default_rng(seed).integers(0, 3, size)
    pairs, edge = set(), np.zeros(size, dtype=bool)
    for x, y in product(np.ndindex(size), repeat=2):
        if max(abs(a - b) for a, b in zip(x, y, strict=True)) == 1 and labels[x] != labels[y]:
            pairs.add((int(labels[x]), int(labels[y])))
            edge[x] = True
    assert {tuple(pair) for pair in segment.adjacency(labels).tolist()} == pairs
    np.testing.assert_array_equal(segment.boundary(labels), edge)


def test_colour_counts_alike_for_any_number_of_channels() -> None:
    labels = torch.arange(6)
    grey = torch.linspace(0, 1, 6)[:, None]
    torch.testing.assert_close(kernels(labels, grey), kernels(labels, grey.expand(6, 3)))
    row = kernels(labels[None], grey.expand(6, 3)[None], places=[1.0])
    assert not torch.allclose(row, kernels(labels, grey, places=[1.0]))  # the side of a row is its height


def test_a_gradcam_of_any_dimension_is_its_formula() -> None:
    for dims, size in ((1, (16,)), (3, (6, 8, 4))):
        model = net_of(dims, 0)
        batch = torch.rand(2, 2, *size, dtype=torch.float64)
        found = usu.gradcam(model, batch, [1, 2], relu=False, finer=True)
        activation = model[2](model[1](model[0](batch))).detach().requires_grad_()
        scores: Tensor = model[6](model[5](model[4](model[3](activation))))
        (slope,) = torch.autograd.grad(scores[0, 1] + scores[1, 2], activation)
        weight = slope.mean(tuple(range(2, dims + 2)), keepdim=True)
        torch.testing.assert_close(found.values, (weight * activation).sum(1).detach())
        assert found.finer[0].shape == (2, *size)
