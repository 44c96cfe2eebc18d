"""Our Grad-CAM against the pytorch-grad-cam package, before its scaling."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from skimage.data import chelsea, coffee

from usu import models
from usu.sources import gradcam


def raw_map(package, model, layer, images, targets) -> np.ndarray:
    """What the package computes before it rectifies, resizes and scales."""
    from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget

    goals = [ClassifierOutputTarget(target) for target in targets]
    with package.GradCAM(model=model, target_layers=[layer]) as cam:
        cam(input_tensor=images, targets=goals)
        listener = cam.activations_and_grads
        activations, gradients = (part[0].numpy() for part in (listener.activations, listener.gradients))
        return cam.get_cam_image(images, layer, goals, activations, gradients)


def check_equal(package, model, module, images, targets, **settings):
    ours = gradcam(model, images, targets, relu=False, **settings)
    theirs = raw_map(package, model, module, images, targets)
    assert np.abs(theirs).max() > 1e-3
    np.testing.assert_allclose(ours.values.numpy(), theirs, atol=1e-5 * np.abs(theirs).max())
    rectified = gradcam(model, images, targets, **settings)
    np.testing.assert_allclose(rectified.values.numpy(), theirs.clip(0), atol=1e-5 * np.abs(theirs).max())


@pytest.mark.parametrize("settings", [{}, {"layer": "_bn1"}])
def test_embedded_network(pytorch_grad_cam, settings):
    pytest.importorskip("efficientnet_lite_pytorch")
    loaded = models.load()
    images = torch.stack([loaded.prepare(picture)[0] for picture in (chelsea(), coffee())])
    check_equal(pytorch_grad_cam, loaded.model, loaded.model._bn1, images, [285, 504], **settings)


def test_resnet18(pytorch_grad_cam, torchvision):
    torch.manual_seed(0)
    model = torchvision.models.resnet18(weights=None).eval()
    images = torch.randn(2, 3, 96, 96)
    check_equal(pytorch_grad_cam, model, model.layer4, images, [3, 700])
    assert gradcam(model, images).layer == "layer4"
