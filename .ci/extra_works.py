"""Something real with one extra, in an environment that has the core and that extra only; see .ci/extras."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import torch
from torch import nn

import usu

PACKAGES = {
    "bench": "pyarrow", "demo": "efficientnet_lite_pytorch", "plot": "matplotlib", "onnx": "onnxruntime",
    "higra": "higra", "pytorch-grad-cam": "pytorch_grad_cam", "captum": "captum", "torchcam": "torchcam",
    "timm": "timm", "transformers": "transformers", "quantus": "quantus",
}  # fmt: skip
#: What an extra may bring along of another.
ALSO = {
    "bench": {"plot"}, "demo": {"plot"}, "pytorch-grad-cam": {"plot"}, "captum": {"plot"}, "torchcam": {"plot"},
    "quantus": {"plot"},
}  # fmt: skip


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)
    ).eval()


def declare_operators() -> None:
    """torchvision built for another torch cannot register its operators; only their names are needed."""
    global LIBRARY
    LIBRARY = torch.library.Library("torchvision", "DEF")
    LIBRARY.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    LIBRARY.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


def bench() -> None:
    table = usu.evaluate(["nearest", "bilinear"], torch.rand(2, 3, 32, 32), network(), ["mass-error"])
    assert table.to_pandas().shape[0] == 4
    with tempfile.TemporaryDirectory() as folder:
        assert all(path.is_file() for path in table.save(folder))


def demo() -> None:
    from skimage.data import chelsea

    from usu.models import load

    loaded = load()
    image, _ = loaded.prepare(chelsea())
    found = usu.explain(loaded.model, image, layer=loaded.layer, classes=loaded.classes, evaluations=20)
    assert found.label in ("Egyptian cat", "tabby", "tiger cat"), found.label


def plot() -> None:
    found = usu.explain(network(), torch.rand(3, 32, 32), 0, evaluations=8)
    with tempfile.TemporaryDirectory() as folder:
        assert (found.save(Path(folder) / "map") / "panel.png").is_file()


def onnx() -> None:
    import onnxruntime

    assert onnxruntime.get_available_providers()
    try:
        usu.forward.from_onnx("nowhere.onnx")
    except FileNotFoundError:
        return
    raise AssertionError("a missing file must be refused")


def higra() -> None:
    from skimage.data import coffee

    labels = usu.segment.Watershed()(coffee()[:64, :64] / 255.0, 20)
    assert len(np.unique(labels)) > 5


def pytorch_grad_cam() -> None:
    declare_operators()
    from pytorch_grad_cam import GradCAM

    from usu.integrations.pytorch_grad_cam import wrap

    net = network()
    maps = wrap(GradCAM(model=net, target_layers=[net[0]]), evaluations=8)(torch.rand(1, 3, 32, 32), [0])
    assert maps.shape == (1, 32, 32)


def captum() -> None:
    from captum.attr import LayerGradCam

    from usu.integrations.captum import interpolate

    net, image = network(), torch.rand(1, 3, 32, 32)
    coarse = LayerGradCam(net, net[0]).attribute(image, target=0)
    found = interpolate(coarse, image, net, 0, evaluations=8)
    assert found.shape[-2:] == (32, 32)


def torchcam() -> None:
    from torchcam.methods import GradCAM

    from usu.integrations.torchcam import wrap

    net, image = network(), torch.rand(1, 3, 32, 32)
    with wrap(GradCAM(net, target_layer=net[0]), evaluations=8) as extractor:
        (found,) = extractor(0, net(image))
    assert found.shape[-2:] == (32, 32)


def timm() -> None:
    declare_operators()
    import timm

    net = timm.create_model("resnet18", num_classes=5).eval()
    found = usu.explain(net, torch.rand(3, 64, 64), 0, evaluations=4)
    assert found.pixel_map.shape == (64, 64)


def transformers() -> None:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16, image_size=32, patch_size=8
    )
    net = ViTForImageClassification(config).eval()
    found = usu.explain(net, torch.rand(3, 32, 32), 0, source="attention_rollout", evaluations=4)
    assert found.coarse.shape == (4, 4)


def quantus() -> None:
    import quantus

    from usu.integrations.quantus import explain_func

    pictures = torch.rand(1, 3, 32, 32).numpy()
    sparseness = quantus.Sparseness(disable_warnings=True)
    (value,) = sparseness(network(), pictures, np.array([0]), explain_func=explain_func(evaluations=8), device="cpu")
    assert 0 <= value <= 1


if __name__ == "__main__":
    name = sys.argv[1]
    there = {extra for extra, package in PACKAGES.items() if importlib.util.find_spec(package)}
    assert name in there, f"{name} is not installed"
    others = there - {name} - ALSO.get(name, set())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        globals()[name.replace("-", "_")]()
    print(f"{name}: works{f' (also there: {sorted(others)})' if others else ''}")
