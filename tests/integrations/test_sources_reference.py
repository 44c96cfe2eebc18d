"""Our HiResCAM and LayerCAM against the pytorch-grad-cam package, before its scaling."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from skimage.data import chelsea, coffee

import usu
from usu import models


def raw_map(package, method, model, layer, images, targets) -> np.ndarray:
    """What the package computes before it rectifies, resizes and scales."""
    from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget

    goals = [ClassifierOutputTarget(target) for target in targets]
    with getattr(package, method)(model=model, target_layers=[layer]) as cam:
        cam(input_tensor=images, targets=goals)
        listener = cam.activations_and_grads
        activations, gradients = (part[0].numpy() for part in (listener.activations, listener.gradients))
        return cam.get_cam_image(images, layer, goals, activations, gradients, False)


def check_equal(package, method, model, name, images, targets):
    theirs = raw_map(package, method, model, model.get_submodule(name), images, targets)
    scale = float(np.abs(theirs).max())
    assert scale > 1e-4
    function = getattr(usu, method.lower())
    for layer in (name, None):
        ours = function(model, images, targets, layer=layer, relu=False)
        assert ours.layer == name
        np.testing.assert_allclose(ours.values.numpy(), theirs, atol=1e-5 * scale)
        rectified = function(model, images, targets, layer=layer)
        np.testing.assert_allclose(rectified.values.numpy(), theirs.clip(0), atol=1e-5 * scale)


@pytest.fixture(scope="module")
def resnet(torchvision):
    torch.manual_seed(0)
    return torchvision.models.resnet18(weights=None).eval()


@pytest.mark.parametrize("method", ["HiResCAM", "LayerCAM"])
def test_embedded_network(pytorch_grad_cam, method):
    pytest.importorskip("efficientnet_lite_pytorch")
    loaded = models.load()
    images = torch.stack([loaded.prepare(picture)[0] for picture in (chelsea(), coffee())])
    check_equal(pytorch_grad_cam, method, loaded.model, "_bn1", images, [285, 504])


@pytest.mark.parametrize("method", ["HiResCAM", "LayerCAM"])
def test_resnet18(pytorch_grad_cam, resnet, method):
    torch.manual_seed(1)
    check_equal(pytorch_grad_cam, method, resnet, "layer4", torch.randn(2, 3, 96, 96), [3, 700])


@pytest.mark.parametrize("method", ["HiResCAM", "LayerCAM"])
def test_an_earlier_layer(pytorch_grad_cam, resnet, method):
    torch.manual_seed(2)
    images = torch.randn(1, 3, 96, 96)
    theirs = raw_map(pytorch_grad_cam, method, resnet, resnet.layer2, images, [5])
    ours = getattr(usu, method.lower())(resnet, images, 5, layer="layer2", relu=False).values
    assert ours.shape == (1, 12, 12)
    np.testing.assert_allclose(ours.numpy(), theirs, atol=1e-5 * np.abs(theirs).max())
