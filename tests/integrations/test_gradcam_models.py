"""Models of torchvision, timm and transformers by name, with weights from local files: what Grad-CAM is then run on."""

from __future__ import annotations

import json

import pytest
import torch
from PIL import Image
from skimage.data import chelsea

from usu.errors import ModelLoadError
from usu.models import Preparation, load


def test_torchvision_with_local_weights(torchvision, tmp_path):
    source = torchvision.models.squeezenet1_1(weights=None).eval()
    torch.save(source.state_dict(), tmp_path / "w.pth")
    for name in ("squeezenet1_1", "torchvision:squeezenet1_1"):
        loaded = load(name, weights=tmp_path / "w.pth")
        image, geometry = loaded.prepare(chelsea())
        assert torch.equal(loaded.model(image[None]), source(image[None]))
        assert loaded.prepare == Preparation()
        assert geometry.input == (224, 224)
        assert len(loaded.classes) == 1000


@pytest.mark.parametrize("pixels", [chelsea(), chelsea()[:97, :41], chelsea()[:, :300]], ids=["wide", "tall", "square"])
def test_our_preparation_is_torchvisions(torchvision, pixels):
    weights = torchvision.models.ResNet50_Weights.IMAGENET1K_V1
    ours, _ = Preparation()(pixels)
    theirs = weights.transforms()(Image.fromarray(pixels))
    assert float((ours - theirs).abs().max()) < 0.02, "one step of 255 is 0.0175"


def test_unknown_names_and_weights_that_cannot_be_had(torchvision, timm, monkeypatch):
    with pytest.raises(ModelLoadError, match=r"got 'resnet51'. Close are: .*resnet50"):
        load("resnet51")
    with pytest.raises(ModelLoadError, match=r"a model that timm knows; got 'resnet1x'. Close are: .*resnet"):
        load("timm:resnet1x")

    def offline(*_arguments, **_settings):
        raise OSError("no network")

    monkeypatch.setattr(torch.hub, "load_state_dict_from_url", offline)
    monkeypatch.setattr(torchvision.models._api, "load_state_dict_from_url", offline)
    with pytest.raises(ModelLoadError, match=r"could not be downloaded \(no network\). .*--weights FILE"):
        load("resnet18")
    monkeypatch.setattr(timm, "create_model", offline)
    with pytest.raises(ModelLoadError, match=r"timm:resnet18 could not be downloaded \(no network\).*--weights FILE"):
        load("timm:resnet18")


def test_timm_with_its_own_preprocessing(timm, tmp_path):
    source = timm.create_model("mobilenetv3_small_050", pretrained=False).eval()
    torch.save(source.state_dict(), tmp_path / "w.pth")
    loaded = load("timm:mobilenetv3_small_050", weights=tmp_path / "w.pth")
    settings = timm.data.resolve_model_data_config(source)
    image, _ = loaded.prepare(chelsea())
    theirs = timm.data.create_transform(**settings)
    assert float((image - theirs(Image.fromarray(chelsea()))).abs().max()) < 0.02
    assert torch.equal(loaded.model(image[None]), source(image[None]))
    assert len(loaded.classes) == 1000


def test_transformers_folder(transformers, tmp_path):
    config = transformers.ViTConfig(
        image_size=32, patch_size=8, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        id2label={0: "cat", 1: "dog"}, label2id={"cat": 0, "dog": 1},
    )  # fmt: skip
    source = transformers.ViTForImageClassification(config).eval()
    source.save_pretrained(tmp_path)
    settings = {"size": {"height": 32, "width": 32}, "image_mean": [0.5] * 3, "image_std": [0.5] * 3, "resample": 2}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    loaded = load(f"transformers:{tmp_path}")
    image, _ = loaded.prepare(chelsea())
    assert loaded.classes == ("cat", "dog")
    torch.testing.assert_close(loaded.model(image[None]).logits, source(image[None]).logits)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelLoadError, match="does not hold an image classifier"):
        load(f"transformers:{tmp_path}")
