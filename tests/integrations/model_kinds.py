"""Every kind of model that people bring, small and with seeded weights, and what `usu.explain` says of it.

``python -m tests.integrations.model_kinds`` writes docs/model-kinds.md; the test beside it holds the page to that.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from textwrap import shorten
from typing import Any

import torch
from torch import Tensor, nn

import usu
from tests.chosen import chosen
from tests.contracts.source import ROOT
from tests.small_nets import Tower, seeded
from usu.errors import UsuError

PAGE = ROOT / "docs" / "model-kinds.md"
HEAD = """# Which models can be explained

Made by the tests, from small models with seeded weights: `usu.explain(model, image, target)`, and what came of it: the
size of the coarse map and its layer, or the sentence that is answered. A model is a function of pictures; where one
takes or returns something else, the note says what is added, as in the notebook `your-own-model`.

<!-- models -->
| model | note | result |
|---|---|---|
"""
TAIL = "<!-- /models -->\n"
FEW = {"preset": chosen("soft", parts=6), "evaluations": 12}


@dataclass(frozen=True)
class Case:
    """A model, a picture, a target, and the line that has to be added."""

    model: Any
    image: Tensor
    target: Any = 1
    note: str = ""


class Wrapped(nn.Module):
    """A model as a function of pictures: the two lines of the page."""

    def __init__(self, model: nn.Module, call: Callable[[nn.Module, Tensor], Any]) -> None:
        super().__init__()
        self.model, self.call = model, call

    def forward(self, pictures: Tensor) -> Any:
        return self.call(self.model, pictures)


def picture(*size: int) -> Tensor:
    return torch.rand(*(size or (3, 64, 64)), generator=torch.Generator().manual_seed(0))


def conv(channels: int = 3, classes: int = 5) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, 8, 5, stride=4, padding=2), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, classes),
    )  # fmt: skip


def of_torchvision(name: str) -> Case:
    from torchvision import models

    if name == "r3d_18":
        return Case(models.video.r3d_18(num_classes=5), picture(3, 8, 32, 32), note="a video, channels first")
    if name == "swin3d":
        net = models.video.SwinTransformer3d([2, 4, 4], 8, [2, 2], [2, 2], [2, 4, 4], num_classes=5)
        return Case(net, picture(3, 8, 32, 32), note="a video, channels first")
    if name == "resnet":
        return Case(models.resnet18(weights=None, num_classes=5), picture())
    if name == "vgg":
        net = models.VGG(models.vgg.make_layers([8, "M", 16, "M", 16, "M"]), num_classes=5, init_weights=False)
        net.classifier = nn.Linear(16 * 49, 5)
        return Case(net, picture())
    if name == "vit":
        small = {"num_layers": 2, "num_heads": 2, "hidden_dim": 16, "mlp_dim": 32, "num_classes": 5}
        return Case(models.VisionTransformer(image_size=64, patch_size=8, **small), picture())
    if name == "swin":
        return Case(models.SwinTransformer([4, 4], 8, [2, 2], [2, 2], [4, 4], num_classes=5), picture())
    setting = [models.convnext.CNBlockConfig(8, 16, 1), models.convnext.CNBlockConfig(16, None, 1)]
    return Case(models.ConvNeXt(setting, num_classes=5), picture())


_DAVIT = {"depths": (1, 1, 1, 1), "embed_dims": (12, 24, 48, 96), "num_heads": (3, 6, 12, 24)}


def of_timm(name: str) -> Case:
    import timm

    vit = {"img_size": 64, "depth": 2, "embed_dim": 48, "num_heads": 3}
    known: dict[str, tuple[str, dict[str, Any], int]] = {
        "ViT": ("vit_tiny_patch16_224", {**vit, "patch_size": 8}, 64),
        "DINOv3": ("vit_small_patch16_dinov3", vit, 64),
        "SigLIP": ("vit_base_patch16_siglip_224", vit, 64),
        "MobileViT": ("mobilevit_xxs", {}, 64),
        "EfficientFormer": ("efficientformer_l1", {}, 224),
        "MaxViT": ("maxvit_rmlp_pico_rw_256", {"img_size": 64}, 64),
        "DaViT": ("davit_tiny", _DAVIT, 64),
    }
    given, settings, size = known[name]
    return Case(timm.create_model(given, pretrained=False, num_classes=5, **settings), picture(3, size, size))


def of_transformers(name: str) -> Case:
    import transformers as library

    small = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    vit = {**small, "image_size": 64, "patch_size": 8, "num_labels": 5}
    stages = {"embed_dim": 8, "depths": [1, 1], "num_heads": [2, 2], "window_size": 4}
    if name == "ViT":
        return Case(library.ViTForImageClassification(library.ViTConfig(**vit)), picture())
    if name == "Swinv2":
        config = library.Swinv2Config(image_size=64, patch_size=4, num_labels=5, **stages)
        return Case(library.Swinv2ForImageClassification(config), picture())
    if name == "DINOv2":
        return Case(library.Dinov2ForImageClassification(library.Dinov2Config(**vit)), picture())
    if name == "CLIP":
        tower = {**small, "image_size": 64, "patch_size": 8}
        config = library.CLIPConfig(
            text_config={**small, "vocab_size": 99, "eos_token_id": 98, "bos_token_id": 97}, vision_config=tower,
            projection_dim=8,
        )  # fmt: skip
        words = torch.tensor([[97, 5, 6, 98], [97, 7, 8, 98]])
        wrapped = Wrapped(
            library.CLIPModel(config), lambda clip, x: clip(input_ids=words, pixel_values=x).logits_per_image
        )
        return Case(wrapped, picture(), note="a wrapper holds the texts, which are the classes")
    if name == "DETR":
        backbone = library.ResNetConfig(
            embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", out_features=["stage2"]
        )
        config = library.DetrConfig(
            use_timm_backbone=False, use_pretrained_backbone=False, backbone=None, backbone_config=backbone, d_model=16,
            encoder_layers=1, decoder_layers=1, encoder_ffn_dim=16, decoder_ffn_dim=16, encoder_attention_heads=2,
            decoder_attention_heads=2, num_queries=4, num_labels=3,
        )  # fmt: skip
        return Case(
            library.DetrForObjectDetection(config), picture(), lambda output: output.logits[:, 0, 1],
            "a callable target: one box, one class",
        )  # fmt: skip
    if name == "YOLOS":
        config = library.YolosConfig(**{**vit, "image_size": [64, 64]}, num_detection_tokens=4)
        return Case(
            library.YolosForObjectDetection(config), picture(), lambda output: output.logits[:, 0, 1],
            "a callable target: one box, one class",
        )  # fmt: skip
    if name == "Segformer":
        config = library.SegformerConfig(
            num_encoder_blocks=2, depths=[1, 1], sr_ratios=[2, 1], hidden_sizes=[8, 16], patch_sizes=[7, 3],
            strides=[4, 2], num_attention_heads=[1, 2], mlp_ratios=[2, 2], decoder_hidden_size=16, num_labels=5,
        )  # fmt: skip
        return Case(
            library.SegformerForSemanticSegmentation(config), picture(),
            lambda output: output.logits[:, 1].mean((1, 2)), "a callable target: the class over the picture",
        )  # fmt: skip
    config = library.ViltConfig(**{**small, "image_size": 64, "patch_size": 8}, vocab_size=99, num_labels=5)
    words = torch.tensor([[5, 6, 7]])
    wrapped = Wrapped(
        library.ViltForQuestionAnswering(config),
        lambda vilt, x: vilt(input_ids=words.expand(len(x), -1), pixel_values=x).logits,
    )
    return Case(wrapped, picture(), note="a wrapper holds the question")


class Segmenter(nn.Module):
    """One value per class and pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Conv2d(3, 8, 4, stride=4), nn.Conv2d(8, 5, 1)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.interpolate(self.head(self.body(x).relu()), x.shape[-2:])


class Boxes(nn.Module):
    """A list of dictionaries, as torchvision's detectors return."""

    def __init__(self) -> None:
        super().__init__()
        self.net = conv(classes=3)

    def forward(self, x: Tensor) -> list[dict[str, Tensor]]:
        return [{"scores": row.sigmoid()} for row in self.net(x)]


class Named(nn.Module):
    """A model of a dictionary of inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.net = conv()

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"logits": self.net(inputs["image"])}


class Beats(nn.Module):
    """A transformer over windows of a signal, read at its class token."""

    def __init__(self) -> None:
        super().__init__()
        self.patch, self.head = nn.Conv1d(2, 16, 8, stride=8), nn.Linear(16, 3)
        self.token = nn.Parameter(torch.ones(1, 1, 16))
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patch(x).mT
        return self.head(self.body(torch.cat([self.token.expand(len(x), -1, -1), tokens], 1))[:, 0])


def plain(name: str) -> Case:
    if name == "sigmoid multi-label":
        return Case(conv(), picture(), note="a class is a label; the probability shown is a softmax's")
    if name == "regression":
        return Case(conv(classes=1), picture(), 0)
    if name == "segmentation":
        return Case(Segmenter(), picture(), lambda output: output[:, 1].mean((1, 2)), "a callable target")
    if name == "detection":
        return Case(
            Boxes(), picture(), lambda output: torch.stack([one["scores"].max() for one in output]), "a callable target"
        )
    if name in ("1 channel", "11 channels"):
        channels = int(name.split()[0])
        return Case(conv(channels), picture(channels, 64, 64))
    if name == "spectrogram 128 x 501":
        return Case(conv(1), picture(1, 128, 501))
    if name in ("float16", "bfloat16"):
        kind = getattr(torch, name)
        return Case(conv().to(kind), picture().to(kind))
    if name == "torch.compile":
        return Case(torch.compile(seeded(Tower), backend="eager"), picture(3, 32, 32))
    if name == "DataParallel":
        return Case(nn.DataParallel(conv()), picture())
    if name == "TorchScript":
        return Case(torch.jit.trace(conv().eval(), picture()[None]), picture())
    if name == "dictionary input":
        wrapped = Wrapped(Named(), lambda net, x: net({"image": x}))
        return Case(wrapped, picture(), note="a wrapper makes the dictionary")
    if name == "1-D signal":
        net = nn.Sequential(nn.Conv1d(1, 4, 5, stride=4), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten())
        return Case(net, picture(1, 256))
    if name == "1-D transformer":
        return Case(seeded(Beats), picture(2, 200))
    net3 = nn.Sequential(nn.Conv3d(1, 4, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten())
    return Case(net3, picture(1, 1, 16, 16, 16))


GROUPS: dict[str, tuple[Callable[[str], Case], tuple[str, ...]]] = {
    "torchvision": (of_torchvision, ("resnet", "vgg", "vit", "swin", "convnext", "r3d_18", "swin3d")),
    "timm": (of_timm, ("ViT", "DINOv3", "SigLIP", "MobileViT", "EfficientFormer", "MaxViT", "DaViT")),
    "transformers": (of_transformers, ("ViT", "Swinv2", "DINOv2", "CLIP", "DETR", "YOLOS", "Segformer", "ViLT")),
    "torch": (
        plain,
        (
            "sigmoid multi-label", "regression", "segmentation", "detection", "1 channel", "11 channels",
            "spectrogram 128 x 501", "float16", "bfloat16", "torch.compile", "DataParallel", "TorchScript",
            "dictionary input", "1-D signal", "1-D transformer", "3-D volume",
        ),
    ),
}  # fmt: skip
KINDS = [(group, name) for group, (_, names) in GROUPS.items() for name in names]


def row(group: str, name: str) -> str:
    """The line of the page, as it is today. What fails in any other way than with a sentence of ours, fails here."""
    with torch.random.fork_rng(), warnings.catch_warnings():
        torch.manual_seed(0)
        warnings.simplefilter("ignore")
        case = GROUPS[group][0](name)
        if isinstance(case.model, nn.Module) and not isinstance(case.model, torch.jit.ScriptModule):
            _spread(case.model).eval()
        try:
            found = usu.explain(case.model, case.image, case.target, **FEW)
            assert found.pixel_map.shape == case.image.shape[-found.coarse.ndim :]
            assert found.mass_error < 1e-6
            result = f"{' x '.join(map(str, found.coarse.shape))} at `{found.source.layer}`"
        except (UsuError, ValueError, TypeError) as error:
            if not str(error).startswith("`"):  # not one of our sentences
                raise
            result = f"no: {shorten(str(error).split('. ')[0], 200, placeholder=' …')}"
    return f"| {group}: {name} | {case.note} | {result} |"


def _spread(model: nn.Module) -> nn.Module:
    """Random everywhere: several of these networks start with a head of zeros, through which no gradient comes."""
    with torch.no_grad():
        for weights in model.parameters():
            weights.add_(0.05 * torch.randn(weights.shape).to(weights))
    return model


def main() -> None:
    """Write the page."""
    PAGE.write_text(HEAD + "\n".join(row(*kind) for kind in KINDS) + f"\n{TAIL}", encoding="utf-8")


if __name__ == "__main__":
    main()
