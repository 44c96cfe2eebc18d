"""The seven methods of the paper, on the networks they are used on: constant scores give the library's own raw maps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from skimage.data import chelsea, coffee

from tests.integrations.grad_cam_oracle import CLOSE, EVEN, QUICK, assert_close, cell_sums, nearest, overheard
from usu import models
from usu.integrations import _layered
from usu.integrations.pytorch_grad_cam import coarse_maps, wrap

SEVEN = ("GradCAM", "HiResCAM", "GradCAMPlusPlus", "XGradCAM", "FullGrad", "ShapleyCAM", "FinerCAM")
#: The library itself fails here; a twin of its formula is in the last tests.
FAILS = {("ShapleyCAM", "vit")}


def tokens(side: int) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda output: output[:, 1:].reshape(len(output), side, side, -1).movedim(-1, 1)


@pytest.fixture(scope="session")
def networks(torchvision) -> Callable[[str], tuple[Any, list[Any], Any, torch.Tensor]]:
    """By name: model, target layers, reshape_transform, two pictures. Each is built once."""
    built: dict[str, Any] = {}

    def seeded(model: Any) -> Any:
        """Biases and statistics of fresh models are zeros and ones, which would leave FullGrad without terms."""
        for module in model.modules():
            if isinstance(getattr(module, "bias", None), torch.Tensor):
                torch.nn.init.normal_(module.bias, std=0.1)
            if isinstance(module, torch.nn.BatchNorm2d):
                torch.nn.init.normal_(module.running_mean, std=0.1)
        return model.eval()

    def build(name: str) -> Any:
        torch.manual_seed(0)
        pictures = torch.randn(2, 3, 64, 64)
        if name == "vgg16":
            model = seeded(torchvision.models.vgg16(weights=None))
            return model, [model.features[-2]], None, pictures
        if name == "resnet50":
            model = seeded(torchvision.models.resnet50(weights=None))
            return model, [model.layer3[-1]], None, pictures
        if name == "vit":
            model = seeded(torchvision.models.VisionTransformer(64, 16, 12, 12, 768, 3072))
            torch.nn.init.normal_(model.heads.head.weight, std=0.02)  # zeros would leave no gradient
            return model, [model.encoder.layers[-1].ln_1], tokens(4), pictures
        pytest.importorskip("efficientnet_lite_pytorch")
        loaded = models.load()
        pictures = torch.stack([loaded.prepare(p)[0][:, 48:144, 48:144] for p in (chelsea(), coffee())])
        return loaded.model, [loaded.model._bn1], None, pictures

    return lambda name: built[name] if name in built else built.setdefault(name, build(name))


def made(package: Any, method: str, network: tuple[Any, ...]) -> Any:
    model, layers, reshape, _ = network
    if method == "FullGrad":
        return package.FullGrad(model, [], reshape_transform=None)
    return getattr(package, method)(model, layers, reshape_transform=reshape)


def combined(method: str, maps: list[np.ndarray], size: tuple[int, int]) -> np.ndarray:
    spread = [nearest(m, size) for m in maps]
    return np.sum(spread, axis=0) if method == "FullGrad" else np.mean(spread, axis=0)


@pytest.mark.parametrize("name", ["vgg16", "resnet50", "vit", "embedded"])
@pytest.mark.parametrize("method", SEVEN)
def test_constant_scores_give_the_raw_map(pytorch_grad_cam, networks, method, name):
    network = networks(name)
    images = network[3]
    size = tuple(images.shape[-2:])
    with wrap(made(pytorch_grad_cam, method, network), scale="mass", preset=EVEN) as cam:
        raw = coarse_maps(cam.cam, images) if (method, name) in FAILS else overheard(cam.cam, images)
        ours = cam(images)
        assert len(raw) == (len(cam.cam.bias_data) + 1 if method == "FullGrad" else 1)
    assert ours.dtype == np.float32
    assert_close(ours, combined(method, raw, size))
    assert cam.last.mass_error <= CLOSE
    assert cam.last.evaluations == 2 * EVEN.evaluations


@pytest.mark.parametrize(
    ("method", "name"), [("GradCAM", "resnet50"), ("FullGrad", "vgg16"), ("FullGrad", "embedded"), ("FinerCAM", "vit")]
)
def test_every_cell_of_every_layer_keeps_its_mass(pytorch_grad_cam, networks, monkeypatch, method, name):
    network = networks(name)
    images = network[3][:1]
    cam = wrap(made(pytorch_grad_cam, method, network), scale="mass", preset=QUICK)
    raw = overheard(cam.cam, images)
    results = []
    spread = _layered.spread

    def spy(*args: Any, **settings: Any) -> torch.Tensor:
        results.append(spread(*args, **settings))
        return results[-1]

    monkeypatch.setattr(_layered, "spread", spy)
    ours = cam(images)
    parts = [r.numpy() for r in results] if method == "FullGrad" else [ours]
    assert not np.allclose(ours, combined(method, raw, ours.shape[1:])), "the scores must move something"
    for part, map_ in zip(parts, raw, strict=True):
        h, w = map_.shape[1:]
        sizes = cell_sums(np.ones_like(ours), (h, w))
        assert_close(cell_sums(part, (h, w)), map_ * sizes)
    assert_close(ours, np.sum(parts, axis=0))
    assert cam.last.mass_error <= CLOSE


def test_the_real_vit_b_16(pytorch_grad_cam, torchvision):
    torch.manual_seed(0)
    model = torchvision.models.vit_b_16(weights=None).eval()
    torch.nn.init.normal_(model.heads.head.weight, std=0.02)
    images = torch.randn(1, 3, 224, 224)
    cam = wrap(pytorch_grad_cam.GradCAM(model, [model.encoder.layers[-1].ln_1], tokens(14)), scale="mass", preset=EVEN)
    (raw,) = overheard(cam.cam, images)
    assert raw.shape == (1, 14, 14)
    assert_close(cam(images), nearest(raw, (224, 224)))


def shapley(model: Any, layer: Any, reshape: Any, images: torch.Tensor, classes: list[int]) -> np.ndarray:
    """ShapleyCAM from its paper: weights are the mean over places of g - H a / 2, of the tokens as they are."""
    heard = []
    handle = layer.register_forward_hook(lambda module, args, output: heard.append(output))
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        logits = model(images.clone().requires_grad_())
    handle.remove()
    (a,) = heard
    value = logits[range(len(images)), classes].sum()
    (g,) = torch.autograd.grad(value, a, create_graph=True)
    (product,) = torch.autograd.grad(g, a, grad_outputs=a)
    weights = reshape(g - product / 2).mean((2, 3), keepdim=True)
    return (weights * reshape(a)).sum(1).detach().numpy()


def test_shapleycam_on_a_transformer(pytorch_grad_cam, networks):
    model, _, reshape, images = networks("vit")
    layers = [model.encoder.layers[-2].ln_1, model.encoder.layers[-1].ln_1]
    theirs = pytorch_grad_cam.ShapleyCAM(model, layers[1:], reshape)
    with pytest.raises(RuntimeError, match="derivative for"):
        theirs(images, None)
    theirs.activations_and_grads.gradients = []  # on these, its own release() would fail, too
    theirs.activations_and_grads.release()
    with wrap(pytorch_grad_cam.ShapleyCAM(model, layers, reshape), scale="mass", preset=EVEN) as cam:
        ours = coarse_maps(cam.cam, images, [3, 700])
        for layer, mine in zip(layers, ours, strict=True):
            assert_close(mine, shapley(model, layer, reshape, images, [3, 700]), 1e-4)
        assert_close(cam(images, [3, 700]), np.mean([nearest(m, (64, 64)) for m in ours], axis=0))


def test_fullgrad_of_a_transformer_ignores_the_reshaping_of_tokens(pytorch_grad_cam, networks):
    model, _, reshape, images = networks("vit")
    plain, given = (pytorch_grad_cam.FullGrad(model, [], transform) for transform in (None, reshape))
    for a, b in zip(coarse_maps(plain, images), coarse_maps(given, images), strict=True):
        assert np.array_equal(a, b)
    assert len(plain.bias_data) == 1, "of a transformer the library sees only the patch embedding"
