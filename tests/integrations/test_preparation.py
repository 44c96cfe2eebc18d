"""How pictures are prepared, learnt from what other libraries hand out: `usu.explain(model, picture)`, nothing else."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from PIL import Image
from skimage.data import chelsea

import usu
from tests.chosen import chosen
from usu.models import Preparation, load
from usu.models.libraries import known, preparation

pytestmark = pytest.mark.filterwarnings("ignore::usu.errors.UsuWarning")
FEW = {"preset": chosen("soft", parts=6), "evaluations": 12}


def test_torchvision(torchvision):
    weights = torchvision.models.ResNet18_Weights.IMAGENET1K_V1
    theirs = weights.transforms()(Image.fromarray(chelsea()))
    for given in (weights, weights.transforms()):
        assert preparation(given) == Preparation()
        assert float((preparation(given)(chelsea())[0] - theirs).abs().max()) < 0.02
    net = torchvision.models.resnet18(weights=None).eval()
    with pytest.raises(ValueError, match=r"model \(ResNet\) does not; got None. Pass torchvision's weights"):
        usu.explain(net, chelsea())
    steps = torchvision.transforms.Compose([torchvision.transforms.Resize((64, 64)), torchvision.transforms.ToTensor()])
    found = usu.explain(net, chelsea(), 3, prepare=steps, **FEW)
    assert found.pixel_map.shape == (64, 64)
    assert found.overlay().size == chelsea().shape[1::-1]


def test_timm(timm):
    net = timm.create_model("mobilenetv3_small_050", pretrained=False).eval()
    about = known(net)
    config = timm.data.resolve_model_data_config(net)
    theirs = timm.data.create_transform(**config)(Image.fromarray(chelsea()))
    assert float((about.prepare(chelsea())[0] - theirs).abs().max()) < 0.02
    assert known(net, config).prepare == about.prepare
    assert about.classes[282].startswith("tiger cat")
    assert usu.explain(net, chelsea(), "tiger cat", **FEW).label.startswith("tiger cat")


@pytest.fixture
def vit(transformers):
    config = transformers.ViTConfig(
        image_size=32, patch_size=8, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        id2label={0: "cat", 1: "dog", 2: "eel"}, label2id={"cat": 0, "dog": 1, "eel": 2},
    )  # fmt: skip
    torch.manual_seed(0)
    return transformers.ViTForImageClassification(config).eval()


@pytest.mark.parametrize("kind", ["ViTImageProcessor", "CLIPImageProcessor"])
def test_a_processor_of_transformers(transformers, vit, kind):
    size = {"height": 32, "width": 32} if kind.startswith("ViT") else {"shortest_edge": 32}
    more = {} if kind.startswith("ViT") else {"crop_size": {"height": 32, "width": 32}}
    processor = getattr(transformers, kind)(size=size, **more)
    ours = preparation(processor)(chelsea())[0]
    theirs = processor(Image.fromarray(chelsea()), return_tensors="pt")["pixel_values"][0]
    assert ours.shape == theirs.shape
    assert float((ours - theirs).abs().mean()) < 0.02
    found = usu.explain(vit, chelsea(), "dog", prepare=processor, **FEW)
    assert (found.label, found.pixel_map.shape) == ("dog", (32, 32))
    assert 0 < found.probability < 1


def test_a_pipeline_of_transformers(transformers, vit):
    processor = transformers.ViTImageProcessor(size={"height": 32, "width": 32})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pipe = transformers.pipeline("image-classification", model=vit, image_processor=processor)
        best = pipe(Image.fromarray(chelsea()))[0]
    found = usu.explain(pipe, chelsea(), **FEW)
    assert found.label == best["label"]
    assert found.probability == pytest.approx(best["score"], abs=0.01)
    assert np.array_equal(usu.explain(vit, chelsea(), prepare=processor, **FEW).pixel_map, found.pixel_map)
    image = preparation(processor)(chelsea())[0]
    assert usu.upsample(found.coarse, image, pipe, 1, **FEW).pixel_map.shape == (32, 32)


def test_the_embedded_model_knows_itself():
    pytest.importorskip("efficientnet_lite_pytorch")
    loaded = load()
    about = known(loaded.model)
    assert about.prepare == loaded.prepare
    assert about.classes == loaded.classes
