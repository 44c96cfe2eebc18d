"""Coarse maps from plain arrays (LIME, SHAP, RISE, XRAI, saliency): against naive loops, and through the pipeline."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from skimage.data import chelsea
from skimage.segmentation import slic
from skimage.transform import resize

import usu
from tests.integrations.grad_cam_oracle import QUICK
from usu.integrations.arrays import from_heatmap, from_rise, from_saliency, from_superpixels

PICTURE = resize(chelsea(), (40, 52), anti_aliasing=True)
IMAGE = torch.tensor(PICTURE, dtype=torch.float32).permute(2, 0, 1)


def reddest(batch: torch.Tensor) -> torch.Tensor:
    """A model that looks at the left half only."""
    return batch[:, 0, :, :26].mean((1, 2))[:, None]


def sums(field: np.ndarray, labels: np.ndarray) -> dict[int, float]:
    return {int(k): float(field[labels == k].sum()) for k in np.unique(labels)}


@pytest.fixture(scope="module")
def segments() -> np.ndarray:
    return slic(PICTURE, n_segments=12, start_label=1) * 3  # labels with gaps, none of them 0


def test_lime_weights_become_masses(segments):
    """LIME's local_exp: the largest weights only, in order of size, both signs."""
    known = np.unique(segments).tolist()
    pairs = [(known[3], 0.7), (known[0], -0.4), (known[5], 0.1)]
    coarse, cells = from_superpixels(pairs, segments)
    result = usu.upsample(coarse, IMAGE, reddest, 0, cells=cells, preset=QUICK)
    found = sums(result.pixel_map, segments)
    wanted = {label: dict(pairs).get(label, 0.0) for label in known}
    assert found == pytest.approx(wanted, abs=1e-12)
    inside = result.pixel_map[segments == known[3]]
    assert inside.std() > 0.01 * inside.mean(), "shared by score, not evenly"
    assert from_superpixels(dict(pairs), segments).coarse.tolist() == coarse.tolist()
    assert np.array_equal(np.asarray(known)[cells], segments)


def test_shapley_values_of_several_classes(segments):
    labels = torch.from_numpy(segments // 3 - 1)
    values = torch.linspace(-1, 1, 2 * (int(labels.max()) + 1), dtype=torch.float32).reshape(2, -1)
    coarse, cells = from_superpixels(values, labels)
    assert coarse.dtype == torch.float32
    assert isinstance(cells, torch.Tensor)
    even = torch.full(labels.shape, 0.5)
    pixels = usu.redistribute(coarse, even[None], cells=cells)
    for target in range(2):
        for label in range(values.shape[1]):
            assert float(pixels[target][labels == label].sum()) == pytest.approx(float(values[target, label]), abs=1e-5)


def test_density_is_left_alone(segments):
    labels = segments // 3 - 1
    values = np.arange(labels.max() + 1, dtype=np.float32)
    coarse, cells = from_superpixels(values, labels, coarse_is="density")
    assert coarse.dtype == np.float32
    assert np.array_equal(coarse[cells], values[labels])


@given(st.lists(st.integers(0, 4), min_size=12, max_size=12), st.sampled_from([np.float32, np.float64]))
def test_no_mass_is_lost(flat, dtype):
    labels = np.array(flat).reshape(3, 4)
    values = np.arange(1.0, 6.0, dtype=dtype)
    values[[k for k in range(5) if k not in flat]] = 0
    coarse, cells = from_superpixels(values, labels)
    assert coarse[cells].sum() == pytest.approx(values.sum(), rel=1e-6)
    assert sums(coarse[cells], labels) == pytest.approx({k: float(values[k]) for k in set(flat)}, rel=1e-6)


def test_heatmap_regions_against_a_naive_fill():
    generator = np.random.default_rng(0)
    heatmap = generator.integers(0, 3, (9, 11)) / 7
    coarse, cells = from_heatmap(heatmap)
    assert np.array_equal(coarse[cells], heatmap)
    seen = np.full(heatmap.shape, -1)
    for start in np.ndindex(heatmap.shape):
        if seen[start] >= 0:
            continue
        number, stack = seen.max() + 1, [start]
        while stack:
            y, x = stack.pop()
            if not (0 <= y < 9 and 0 <= x < 11) or seen[y, x] >= 0 or heatmap[y, x] != heatmap[start]:
                continue
            seen[y, x] = number
            stack += [(y + 1, x), (y - 1, x), (y, x + 1), (y, x - 1)]
    assert np.array_equal(cells, seen)
    assert len(coarse) == seen.max() + 1 > 12
    torch_coarse, torch_cells = from_heatmap(torch.from_numpy(heatmap))
    assert torch.equal(torch_coarse[torch_cells], torch.from_numpy(heatmap))


def test_xrai_like_regions_keep_their_mass_through_the_pipeline(segments):
    heatmap = np.round(np.sin(segments.astype(float)), 3)
    coarse, cells = from_heatmap(heatmap)
    result = usu.upsample(coarse, IMAGE, reddest, 0, cells=cells, preset=QUICK)
    assert sums(result.pixel_map, cells) == pytest.approx(sums(heatmap, cells))
    assert not np.allclose(result.pixel_map, heatmap)


@pytest.mark.parametrize("library", [np.asarray, torch.as_tensor])
def test_saliency_means_against_a_loop(library):
    saliency = np.random.default_rng(1).normal(size=(2, 7, 10)).astype(np.float32)
    coarse = from_saliency(library(saliency), (3, 4))
    assert type(coarse) is type(library(saliency))
    wanted = np.zeros((2, 3, 4))
    for b, i, j in np.ndindex(2, 3, 4):
        rows = [y for y in range(7) if int((y + 0.5) * 3 / 7) == i]
        columns = [x for x in range(10) if int((x + 0.5) * 4 / 10) == j]
        wanted[b, i, j] = saliency[b][np.ix_(rows, columns)].mean()
    np.testing.assert_allclose(np.asarray(coarse), wanted, rtol=1e-5)
    back = usu.redistribute(np.asarray(coarse), np.full((2, 7, 10), 0.5))
    assert back.sum() == pytest.approx(saliency.sum(), rel=1e-4)


def test_rise_against_its_formula():
    generator = np.random.default_rng(2)
    grids = (generator.random((50, 3, 4)) < 0.4).astype(np.float64)
    values = generator.random((50, 2))
    coarse = from_rise(grids, values, survival=0.4)
    for t, i, j in np.ndindex(2, 3, 4):
        assert coarse[t, i, j] == pytest.approx(sum(f[t] * g[i, j] for f, g in zip(values, grids, strict=True)) / 20)
    assert from_rise(grids, values[:, 0]).shape == (3, 4)
    np.testing.assert_allclose(from_rise(grids, values), coarse * 0.4 / grids.mean())
    constant = from_rise(grids, np.full(50, 0.3), centred=True)
    np.testing.assert_allclose(constant, 0, atol=1e-12)
    assert from_rise(grids, np.full(50, 0.3)).min() > 0.1, "uncentred, every cell has the mean"


def test_rise_finds_what_the_model_sees():
    """Grids that cover the picture as they are; the model sees the left half."""
    generator = torch.Generator().manual_seed(0)
    grids = (torch.rand(300, 5, 4, generator=generator) < 0.5).float()
    kept = torch.nn.functional.interpolate(grids[:, None], IMAGE.shape[1:], mode="nearest-exact")
    coarse = from_rise(grids, reddest(IMAGE * kept)[:, 0], survival=0.5, centred=True)
    assert float(coarse[:, :2].min()) > float(coarse[:, 2:].abs().max())
    result = usu.upsample(coarse, IMAGE, reddest, 0, preset=QUICK)
    assert result.mass_error < 1e-5


LABELS = np.array([[0, 0, 1], [0, 2, 2]])


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: from_superpixels([1.0, 2.0], LABELS), TypeError, "pairs"),
        (lambda: from_superpixels({285: [(0, 0.5)]}, LABELS), TypeError, "local_exp"),
        (lambda: from_superpixels([(5, 1.0)], LABELS), ValueError, "`values` .* label 5"),
        (lambda: from_superpixels([(0, np.nan)], LABELS), ValueError, "`values` must be finite"),
        (lambda: from_superpixels(np.ones(3), LABELS + 1), ValueError, "labels from 1 to 3"),
        (lambda: from_superpixels(np.ones(3), LABELS - 1), ValueError, "labels from -1 to 1"),
        (lambda: from_superpixels(np.ones(5), LABELS), ValueError, "`values` .* label 3"),
        (lambda: from_superpixels(np.ones(3), LABELS.astype(float)), TypeError, "`labels`"),
        (lambda: from_superpixels(np.ones(3), LABELS[0]), ValueError, "`labels`"),
        (lambda: from_superpixels(np.ones(3), LABELS, coarse_is="sum"), ValueError, "coarse_is"),
        (lambda: from_heatmap(np.ones((2, 2, 3))), ValueError, "`heatmap`"),
        (lambda: from_heatmap(np.full((2, 2), np.inf)), ValueError, "finite"),
        (lambda: from_saliency(np.ones((2, 2)), (3, 1)), ValueError, "`grid`"),
        (lambda: from_saliency(np.ones(2), (1, 1)), ValueError, "`saliency`"),
        (lambda: from_rise(np.ones((2, 2)), np.ones(2)), ValueError, "`grids`"),
        (lambda: from_rise(np.ones((2, 2, 2)), np.ones(3)), ValueError, "`values` .* 2 grids"),
        (lambda: from_rise(np.zeros((2, 2, 2)), np.ones(2)), ValueError, "survival"),
        (lambda: from_rise(np.ones((2, 2, 2)), np.ones(2), survival=2.0), ValueError, "survival"),
        (lambda: from_rise(np.full((2, 2, 2), 255.0), np.ones(2)), ValueError, "`grids` must lie in"),
    ],
)
def test_mistakes_are_named(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_a_superpixel_without_pixels_may_have_a_density():
    coarse, _ = from_superpixels(np.ones(5), LABELS, coarse_is="density")
    assert coarse.shape == (3,)
