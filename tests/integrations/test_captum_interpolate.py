"""Captum's attributions, made by the installed captum, redistributed instead of interpolated."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
import torch
from skimage import data, transform
from torch import nn

import usu
from tests.integrations.grad_cam_oracle import QUICK
from usu.integrations.captum import interpolate, redistribute_features

captum_attr = pytest.importorskip("captum.attr")
pytestmark = pytest.mark.filterwarnings("ignore:Setting .* hooks on:UserWarning:captum")
#: One segment has one score, and without a base measure nothing else tells pixels apart.
EVEN = replace(usu.PRESETS["cell"], parts=1, base=None, evaluations=4)
TARGETS = [4, 1]


def picture(name: str) -> torch.Tensor:
    pixels = transform.resize(getattr(data, name)(), (48, 60), anti_aliasing=True)
    return torch.tensor(pixels, dtype=torch.float32).permute(2, 0, 1)


@pytest.fixture(scope="module")
def images() -> torch.Tensor:
    return torch.stack([picture("chelsea"), picture("coffee")])


@pytest.fixture(scope="module")
def net() -> nn.Module:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 5, stride=4), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2), nn.Tanh(),
        nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(72, 6),
    ).eval()  # fmt: skip
    with torch.no_grad():
        net[3].bias.zero_()
        net[7].weight.mul_(100)  # Lime's lasso leaves nothing of small effects
    return net


@pytest.fixture(scope="module")
def gradcam(net, images) -> torch.Tensor:
    return captum_attr.LayerGradCam(net, net[3]).attribute(images, target=TARGETS).detach()


def cell_sums(pixels: torch.Tensor, grid: tuple[int, int]) -> torch.Tensor:
    """Masses (B, h, w) of a pixel map, with nearest-exact as the judge of which pixel is whose."""
    count = grid[0] * grid[1]
    labels = torch.arange(count, dtype=torch.float32).reshape(1, 1, *grid)
    where = nn.functional.interpolate(labels, pixels.shape[-2:], mode="nearest-exact").long().flatten()
    return torch.zeros(len(pixels), count).index_add_(1, where, pixels.flatten(1)).reshape(-1, *grid)


def nearest(coarse: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    return nn.functional.interpolate(coarse, size, mode="nearest-exact")


def test_layer_gradcam_keeps_signs_and_masses(net, images, gradcam):
    assert float(gradcam.min()) < 0 < float(gradcam.max()), "captum does not rectify"
    pixels = interpolate(gradcam, images, net, TARGETS, preset=QUICK)
    theirs = captum_attr.LayerAttribution.interpolate(gradcam, images.shape[-2:])
    assert pixels.shape == theirs.shape
    assert (pixels.dtype, pixels.device) == (gradcam.dtype, gradcam.device)
    even = nearest(gradcam, images.shape[-2:])
    assert bool((pixels * even >= 0).all()), "a negative cell has no positive pixel"
    wanted = cell_sums(even, gradcam.shape[-2:])
    assert torch.allclose(cell_sums(pixels, gradcam.shape[-2:]), wanted, atol=1e-5 * float(wanted.abs().max()))
    assert not torch.allclose(pixels, even, atol=0.1 * float(even.abs().max()))


def test_constant_scores_give_nearest_exact(net, images, gradcam):
    pixels = interpolate(gradcam, images, net, TARGETS, preset=EVEN)
    even = nearest(gradcam, images.shape[-2:])
    assert torch.allclose(pixels, even, atol=1e-6 * float(even.abs().max()))


def test_channels_are_added_up(net, images):
    layer = captum_attr.LayerGradientXActivation(net, net[3]).attribute(images, target=TARGETS).detach()
    assert layer.shape[1] == 8
    pixels = interpolate(layer, images, net, TARGETS, preset=EVEN)
    even = nearest(layer.sum(1, keepdim=True), images.shape[-2:])
    assert torch.allclose(pixels, even, atol=1e-6 * float(even.abs().max()))


def test_it_is_the_pipeline(net, images, gradcam):
    """One picture's result does not depend on the batch, and targets belong to their pictures."""
    both = interpolate(gradcam, images, net, torch.tensor(TARGETS), preset=QUICK)
    for index, target in enumerate(TARGETS):
        alone = usu.upsample(gradcam[index, 0], images[index], net, target, preset=QUICK).pixel_map
        assert torch.allclose(both[index, 0], alone, atol=1e-6 * float(alone.abs().max()))
    swapped = interpolate(gradcam, images, net, TARGETS[::-1], preset=QUICK)
    assert not torch.allclose(both, swapped, atol=1e-3 * float(both.abs().max()))


def blocks(rows: int, columns: int) -> torch.Tensor:
    return (torch.arange(48) * rows // 48)[:, None] * columns + torch.arange(60) * columns // 60


def feature_sums(pixels: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return torch.zeros(int(labels.max()) + 1).index_add_(0, labels.flatten(), pixels.flatten())


@pytest.mark.parametrize("method", ["FeatureAblation", "ShapleyValueSampling", "KernelShap", "Lime"])
def test_features_keep_their_values(net, images, method):
    labels = blocks(2, 3)
    image = images[:1]
    if method in ("Lime", "KernelShap"):
        pytest.importorskip("sklearn")
    torch.manual_seed(0)
    settings = {"n_samples": 20} if method != "FeatureAblation" else {}
    with torch.no_grad():
        theirs = getattr(captum_attr, method)(net).attribute(
            image, target=4, feature_mask=labels[None, None], **settings
        )
    values = torch.stack([theirs[0, 0][labels == k][0] for k in range(6)])
    assert float(values.abs().max()) > 1e-4
    pixels = redistribute_features(theirs, labels[None, None], image, net, 4, preset=QUICK)
    assert pixels.shape == (1, 1, 48, 60)
    assert torch.allclose(feature_sums(pixels, labels), values, atol=1e-5 * float(values.abs().max()))
    dense = redistribute_features(theirs, labels[None, None], image, net, 4, preset=QUICK, coarse_is="density")
    assert torch.allclose(feature_sums(dense, labels), values * 480, atol=1e-3 * float(values.abs().max()))
    assert float((dense - theirs[:, :1]).abs().max()) > 0.1 * float(values.abs().max()), "not even inside"


def test_shapley_pixels_add_up_to_the_output(net, images):
    image, labels = images[:1], blocks(2, 2)
    with torch.no_grad():
        theirs = captum_attr.ShapleyValues(net).attribute(image, target=2, feature_mask=labels[None, None])
        change = net(image)[0, 2] - net(torch.zeros_like(image))[0, 2]
    pixels = redistribute_features(theirs, labels[None, None], image, net, 2, preset=QUICK)
    assert float(pixels.sum()) == pytest.approx(float(change), rel=1e-4)
    assert float(theirs.sum()) != pytest.approx(float(change), rel=1)


def test_each_picture_may_have_its_own_features(net, images):
    features = torch.stack([blocks(2, 2), blocks(3, 2) * 1000 + 7])[:, None]
    with torch.no_grad():
        theirs = captum_attr.FeatureAblation(net).attribute(images, target=TARGETS, feature_mask=features)
    values = [torch.stack([a[0][m[0] == k][0] for k in m.unique()]) for a, m in zip(theirs, features, strict=True)]
    # captum ablates a label in all pictures at once, so that a label of the other picture changes nothing
    pixels = redistribute_features(theirs, features, images, net, TARGETS, preset=QUICK)
    for index, labels in enumerate((blocks(2, 2), blocks(3, 2))):
        assert torch.allclose(feature_sums(pixels[index], labels), values[index], atol=1e-5)
        one = slice(index, index + 1)
        alone = redistribute_features(theirs[one], features[one], images[one], net, TARGETS[index], preset=QUICK)
        assert torch.allclose(pixels[one], alone, atol=1e-6), "scored for its own target"


def test_one_value_per_feature_without_pixels(net, images):
    labels = blocks(2, 3)
    values = torch.tensor([[1.0, -2.0, 3.0, 0.0, 5.0, 6.0]])
    pixels = redistribute_features(values, labels[None, None], images[:1], net, 4, preset=QUICK)
    assert torch.allclose(feature_sums(pixels, labels), values[0], atol=1e-5)


def test_without_captum_and_without_gradients(net, images, gradcam, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "captum"]:
        monkeypatch.setitem(sys.modules, name, None)
    before = [(m.training, list(m._forward_hooks), list(m._forward_pre_hooks)) for m in net.modules()]
    state = torch.random.get_rng_state()
    with torch.no_grad():
        one = interpolate(gradcam, images, net, TARGETS, preset=QUICK)
        fast = interpolate(gradcam, images, net, TARGETS, preset="fast")
    assert torch.equal(one, interpolate(gradcam, images, net, TARGETS, preset=QUICK))
    assert fast.shape == one.shape
    assert not torch.allclose(fast, one)
    assert before == [(m.training, list(m._forward_hooks), list(m._forward_pre_hooks)) for m in net.modules()]
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(parameter.grad is None and parameter.requires_grad for parameter in net.parameters())


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"attribution": (torch.ones(1, 1, 2, 2),)}, "`attribution` .* got tuple"),
        ({"attribution": torch.ones(1, 197, 64)}, "`attribution` .* got 1 x 197 x 64"),
        ({"image": torch.zeros(2, 3, 48, 60)}, "`image` .* got 2 x 3"),
        ({"image": torch.zeros(3, 48, 60)}, "`image` .* got 3 x 48"),
    ],
)
def test_mistakes_of_interpolate(net, change, text):
    given = {"attribution": torch.ones(1, 1, 2, 2), "image": torch.zeros(1, 3, 48, 60), "model": net, **change}
    with pytest.raises(ValueError, match=text):
        interpolate(**given)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"attribution": torch.ones(1, 48, 60)}, "`attribution` .* got 1 x 48 x 60"),
        ({"attribution": torch.rand(1, 3, 48, 60)}, "`attribution`"),
        ({"feature_mask": blocks(2, 2)[:10]}, "`feature_mask` must broadcast"),
        ({"feature_mask": torch.stack([blocks(2, 2)] * 2 + [blocks(1, 1)])}, "`feature_mask` must be the same"),
        ({"target": [1, 2]}, "`target` .* got 2"),
        ({"attribution": torch.ones(1, 2)}, "`values`"),
    ],
)
def test_mistakes_of_features(net, change, text):
    given = {
        "attribution": torch.ones(1, 3, 48, 60), "feature_mask": blocks(2, 2), "image": torch.zeros(1, 3, 48, 60),
        "model": net, **change,
    }  # fmt: skip
    with pytest.raises(ValueError, match=text):
        redistribute_features(**given)


def test_a_gradient_finds_its_way_back(net, images):
    """LayerGradCam's maps may carry a graph; so does what is made of them, and none of it is the model's."""
    coarse = torch.ones(1, 1, 2, 3, requires_grad=True)
    interpolate(coarse, images[:1], net, 4, preset=QUICK).sum().backward()
    assert torch.allclose(coarse.grad, torch.full((1, 1, 2, 3), 480.0)), "the pixels of each cell"
    assert all(parameter.grad is None for parameter in net.parameters())
