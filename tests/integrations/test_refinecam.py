"""The experiment's RefineCAM against pytorch-grad-cam's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from experiments.presets.rivals import RefineCam, _layers

from tests.small_nets import Tower
from usu.bench import Sample
from usu.bench.scene import scene_of


@pytest.mark.usefixtures("torchvision")
def test_it_is_the_librarys():
    from pytorch_grad_cam import RefineCAM
    from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget

    torch.manual_seed(0)
    model = Tower().eval()
    image = torch.rand(3, 32, 32, generator=torch.Generator().manual_seed(1))
    scene = scene_of(Sample("a", image, target=1), model, model, source="gradcam", layer=None, seed=0)
    modules = dict(model.named_modules())
    theirs = RefineCAM(model, [modules[name] for name in _layers(scene)[:2]])
    wanted = theirs(image[None], [ClassifierOutputTarget(1)])[0]
    ours = RefineCam(levels=2)(scene).pixel_map
    ours = (ours - ours.min()) / (ours.max() - ours.min())
    assert np.corrcoef(ours.ravel(), wanted.ravel())[0, 1] > 0.99
