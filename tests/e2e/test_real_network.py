"""The real network on real photographs: the class is right, the mass is kept, the map lies on the object."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from PIL import Image
from skimage import data

import usu
from usu.models import Loaded, load, place

pytest.importorskip("efficientnet_lite_pytorch", reason="the extra demo is not installed")

CATS = {"tiger cat", "tabby", "tabby cat", "Egyptian cat"}
CUPS = {"espresso", "cup", "coffee mug"}
#: (rows, columns) from the cat's eyes to its muzzle and around the cup, in pixels of the photograph.
FACE = (slice(75, 270), slice(95, 325))
CUP = (slice(20, 250), slice(170, 410))


@pytest.fixture(scope="module")
def network() -> Loaded:
    return load()


def explained(network: Loaded, pixels: np.ndarray, **more: object) -> usu.Explanation:
    return usu.explain(network, pixels, evaluations=60, **more)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def cat(network: Loaded) -> usu.Explanation:
    return explained(network, data.chelsea())


@pytest.fixture(scope="module")
def coffee(network: Loaded) -> usu.Explanation:
    return explained(network, data.coffee())


def is_one_of(label: str, names: set[str]) -> bool:
    return any(part.strip() in names for part in label.split(","))


def test_it_sees_a_cat_and_a_cup(cat, coffee):
    assert is_one_of(cat.label, CATS), cat.label
    assert is_one_of(coffee.label, CUPS), coffee.label


@pytest.mark.parametrize("name", ["cat", "coffee"])
def test_what_was_promised_holds(name, request):
    explanation: usu.Explanation = request.getfixturevalue(name)
    assert explanation.coarse.shape == (7, 7)
    assert explanation.coarse.max() > 0
    assert explanation.pixel_map.shape == (224, 224)
    assert explanation.pixel_map.min() >= 0
    assert explanation.pixel_map.sum() == pytest.approx(32 * 32 * explanation.coarse.sum(), rel=1e-12)
    assert explanation.upsampled.mass_error < 1e-12
    assert explanation.upsampled.evaluations == 60
    assert explanation.upsampled.segments[0].max() in range(10, 20)  # as many as 60 evaluations can tell apart


@pytest.mark.parametrize(("name", "box"), [("cat", FACE), ("coffee", CUP)])
def test_the_mass_lies_on_the_object(name, box, request):
    explanation: usu.Explanation = request.getfixturevalue(name)
    assert explanation.geometry is not None
    placed = place(explanation.pixel_map, explanation.geometry)
    seen = np.isfinite(placed)
    inside = np.zeros_like(seen)
    inside[box] = True
    mass = np.nansum(placed[inside]) / np.nansum(placed)
    area = (inside & seen).sum() / seen.sum()
    assert area < 0.7
    assert mass > area + 0.1


def test_cells_keep_their_mass_on_a_real_map(network, cat):
    image, _ = network.prepare(data.chelsea())
    (target,) = cat.source.targets
    result = usu.upsample(cat.coarse, image, network.model, target, evaluations=60)
    sums = result.pixel_map.reshape(7, 32, 7, 32).sum((1, 3))
    np.testing.assert_allclose(sums, 32 * 32 * cat.coarse, rtol=1e-12, atol=1e-12 * 32 * 32 * cat.coarse.mean())
    assert (cat.coarse == 0).any()
    assert (result.pixel_map > 0).all(), "pixels of an empty cell have an order"
    # crisp: neighbouring pixels of one cell differ, where nearest neighbour has one value
    heavy = np.unravel_index(cat.coarse.argmax(), (7, 7))
    cell = result.pixel_map.reshape(7, 32, 7, 32)[heavy[0], :, heavy[1]]
    assert cell.max() > 1.5 * cell.min()


@pytest.mark.parametrize(("name", "pixels"), [("cat", data.chelsea), ("coffee", data.coffee)])
def test_what_the_map_points_at_says_more_than_the_rest(name, pixels, request, network):
    explanation: usu.Explanation = request.getfixturevalue(name)
    image, _ = network.prepare(pixels())
    (target,) = explanation.source.targets
    order = explanation.pixel_map.ravel().argsort()
    third = int(0.3 * order.size)
    keep = np.zeros((2, order.size), dtype=bool)
    keep[0, order[-third:]] = keep[1, order[:third]] = True
    shown = usu.forward.fills.apply(image, usu.forward.fills.Blur()(image), torch.from_numpy(keep.reshape(2, 224, 224)))
    with torch.no_grad():
        best, worst = network.model(shown)[:, target].tolist()
    assert best > worst + 2


def test_everything_is_written(cat, tmp_path):
    folder = cat.save(tmp_path / "cat")
    assert json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["label"] == cat.label
    with Image.open(folder / "overlay.png") as overlay:
        assert overlay.size == (451, 300)
    with np.load(folder / "maps.npz") as maps:
        assert np.array_equal(maps["pixel_map"], cat.pixel_map)


def test_the_network_is_as_it_was(network, cat):
    assert not any(module.training for module in network.model.modules())
    assert all(p.grad is None and p.requires_grad for p in network.model.parameters())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in network.model.modules())
