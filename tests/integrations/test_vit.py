"""Vision transformers of timm, transformers and torchvision: their token grids, and their attention as a source."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

import usu
from usu.sources.attention import RecordedAttention, rolled_out

VIT = {"patch_size": 8, "embed_dim": 48, "depth": 2, "num_heads": 3, "num_classes": 5}


def randomised(model: nn.Module) -> nn.Module:
    """Random everywhere: several of these networks start with a head of zeros, through which no gradient comes."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    return model.eval()


def timm_vit(timm, size=(32, 32), **settings):
    from timm.models.vision_transformer import VisionTransformer

    return VisionTransformer(img_size=size, **{**VIT, **settings})


def timm_deit(timm):
    from timm.models.deit import VisionTransformerDistilled

    return VisionTransformerDistilled(img_size=32, **VIT)


def timm_swin(timm, size=(64, 64)):
    from timm.models.swin_transformer import SwinTransformer

    return SwinTransformer(
        img_size=size, patch_size=4, embed_dim=12, depths=(2, 2), num_heads=(2, 2), window_size=4, num_classes=5
    )


def hf(transformers, kind, size=32, **settings):
    config = getattr(transformers, f"{kind}Config")(
        image_size=size, patch_size=8, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32, num_labels=5, **settings,
    )  # fmt: skip
    return getattr(transformers, f"{kind}ForImageClassification")(config)


def hf_swin(transformers):
    config = transformers.SwinConfig(
        image_size=64, patch_size=4, embed_dim=12, depths=[1, 1], num_heads=[2, 2], window_size=4, num_labels=5
    )
    return transformers.SwinForImageClassification(config)


def tv_vit(torchvision, size=32):
    return torchvision.models.VisionTransformer(
        image_size=size, patch_size=8, num_layers=2, num_heads=3, hidden_dim=48, mlp_dim=96, num_classes=5
    )


#: library, model, layer, picture, tokens in front, grid
MODELS = {
    "timm vit": ("timm", timm_vit, "blocks.1.norm1", (32, 32), 1, (4, 4)),
    "timm wide": ("timm", partial(timm_vit, size=(24, 64)), "blocks.1.norm1", (24, 64), 1, (3, 8)),
    "timm registers": ("timm", partial(timm_vit, reg_tokens=4), "blocks.1.norm1", (32, 32), 5, (4, 4)),
    "timm mean": ("timm", partial(timm_vit, global_pool="avg"), "blocks.1", (32, 32), 1, (4, 4)),
    "timm deit": ("timm", timm_deit, "blocks.1.norm1", (32, 32), 2, (4, 4)),
    "timm swin": ("timm", timm_swin, "norm", (64, 64), None, (8, 8)),
    "timm swin wide": ("timm", partial(timm_swin, size=(32, 96)), "layers.0", (32, 96), None, (8, 24)),
    "hf vit": ("transformers", partial(hf, kind="ViT"), "vit.layers.1.layernorm_before", (32, 32), 1, (4, 4)),
    "hf wide": (
        "transformers", partial(hf, kind="ViT", size=(24, 64)), "vit.layers.1.layernorm_before", (24, 64), 1, (3, 8),
    ),
    "hf deit": ("transformers", partial(hf, kind="DeiT"), "deit.layers.1.layernorm_before", (32, 32), 2, (4, 4)),
    "hf swin": ("transformers", hf_swin, "swin.layernorm", (64, 64), 0, (8, 8)),
    "torchvision vit": ("torchvision", tv_vit, "encoder.layers.encoder_layer_1.ln_1", (32, 32), 1, (4, 4)),
}  # fmt: skip


class Logits(nn.Module):
    """transformers return an object; pytorch-grad-cam wants the tensor."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.config = model, getattr(model, "config", None)

    def forward(self, x):
        output = self.model(x)
        return output if isinstance(output, torch.Tensor) else output.logits


@pytest.mark.parametrize("name", MODELS)
def test_pytorch_grad_cam_needs_no_reshape_function(libraries, pytorch_grad_cam, name):
    """Its Grad-CAM, through our reshape function, is ours; and it is the one written by hand."""
    from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget

    library, make, layer, size, prefix, grid = MODELS[name]
    model = randomised(make(libraries[library]))
    torch.manual_seed(1)
    images = torch.randn(2, 3, *size)
    to_maps = usu.reshape_transform(model)
    assert to_maps.size == size
    seen = []
    by_hand = (
        (lambda t: t.permute(0, 3, 1, 2))
        if prefix is None
        else (lambda t: t[:, prefix:].reshape(len(t), *grid, -1).permute(0, 3, 1, 2))
    )

    def checked(tokens):
        seen.append(torch.equal(to_maps(tokens), by_hand(tokens)))
        return to_maps(tokens)

    goals = [ClassifierOutputTarget(1), ClassifierOutputTarget(3)]
    target_layers = [model.get_submodule(layer)]
    with pytorch_grad_cam.GradCAM(Logits(model), target_layers, reshape_transform=checked) as cam:
        shown = cam(images, targets=goals)
        heard = cam.activations_and_grads
        activations, gradients = (part[0].numpy() for part in (heard.activations, heard.gradients))
        raw = cam.get_cam_image(images, target_layers[0], goals, activations, gradients)
    assert seen == [True, True], "once for the activation, once for the gradient"
    assert shown.shape == (2, *size)
    assert raw.shape == (2, *grid)
    assert np.abs(raw).max() > 0
    ours = usu.gradcam(model, images, [1, 3], layer=layer, relu=False).values.numpy()
    np.testing.assert_allclose(ours, raw, atol=1e-5 * np.abs(raw).max())


def test_its_own_line_on_the_models_people_use(timm, pytorch_grad_cam):
    for name, layer in (
        ("vit_tiny_patch16_224", "blocks.11.norm1"), ("deit_tiny_distilled_patch16_224", "blocks.11.norm1"),
    ):  # fmt: skip
        torch.manual_seed(0)
        model = randomised(timm.create_model(name, pretrained=False))
        layers = [model.get_submodule(layer)]
        with pytorch_grad_cam.GradCAM(model, layers, reshape_transform=usu.reshape_transform(model)) as cam:
            assert cam(torch.randn(1, 3, 224, 224), targets=None).shape == (1, 224, 224)


#: those with attention over the whole picture, and what is said about the rows
ATTENDING = {
    "timm vit": "the rows of the class token",
    "timm wide": "the rows of the class token",
    "timm registers": "the rows of the class token",
    "timm mean": "the mean of 16 rows",
    "timm deit": "the rows of the 2 tokens in front",
    "hf vit": "the rows of the class token",
    "hf wide": "the rows of the class token",
    "hf deit": "the rows of the class token",
    "torchvision vit": "the rows of the class token",
}


def own_attentions(name, model, images):
    """The matrices by each library's own door."""
    matrices, handles = [], []
    if name.startswith("timm"):
        for block in model.blocks:
            block.attn.fused_attn = False
            handles.append(block.attn.attn_drop.register_forward_hook(lambda _m, i, _o: matrices.append(i[0])))
        model(images)
        for block in model.blocks:
            block.attn.fused_attn = True
    elif name.startswith("hf"):
        model.set_attn_implementation("eager")
        matrices = list(model(images, output_attentions=True).attentions)
        model.set_attn_implementation("sdpa")
    else:
        for block in model.encoder.layers:
            ask = lambda m, i: matrices.append(  # noqa: E731
                nn.MultiheadAttention.forward(m, *i, need_weights=True, average_attn_weights=False)[1]
            )
            handles.append(block.self_attention.register_forward_pre_hook(ask))
        model(images)
    for handle in handles:
        handle.remove()
    return [matrix.detach() for matrix in matrices]


@pytest.mark.parametrize("name", ATTENDING)
def test_attention_is_overheard_as_the_library_tells_it(libraries, name):
    library, make, _, size, prefix, grid = MODELS[name]
    model = randomised(make(libraries[library]))
    torch.manual_seed(1)
    images = torch.randn(2, 3, *size)
    theirs = own_attentions(name, model, images)
    with RecordedAttention() as seen:
        output = model(images)
    ours = seen.matrices
    assert len(ours) == len(theirs) == 2
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.detach(), other, rtol=1e-4, atol=1e-6)
    plain = model(images)
    as_logits = lambda y: y if isinstance(y, torch.Tensor) else y.logits  # noqa: E731
    torch.testing.assert_close(as_logits(output), as_logits(plain), rtol=1e-4, atol=1e-5)

    found = usu.attention_rollout(model, images, 1)
    assert found.reason == f"{ATTENDING[name]}, which the target reads ({grid[0]} x {grid[1]} tokens)"
    assert found.layer == "2 attention layers"
    rows = {"mean": slice(prefix, None), "rows": slice(0, 2 if "2 tokens" in ATTENDING[name] else 1)}
    expected = rolled_out(theirs)[:, rows[ATTENDING[name].split()[1]]].mean(1)[:, prefix:].reshape(2, *grid)
    torch.testing.assert_close(found.values, expected, rtol=1e-4, atol=1e-6)
    assert (found.values > 0).all()
    assert (found.values.sum((1, 2)) < 1 + 1e-6).all()
    relevant = usu.gradient_attention(model, images, 1)
    assert relevant.values.shape == (2, *grid)
    assert relevant.values.max() > 0
    assert not torch.allclose(relevant.values, usu.gradient_attention(model, images, 2).values)


def test_eager_transformers_and_unfused_timm_give_the_same(libraries):
    torch.manual_seed(1)
    images = torch.randn(1, 3, 32, 32)
    model = randomised(hf(libraries["transformers"], "ViT"))
    fused = usu.gradient_attention(model, images, 1).values
    model.set_attn_implementation("eager")
    torch.testing.assert_close(usu.gradient_attention(model, images, 1).values, fused, rtol=1e-4, atol=1e-7)
    assert model.config._attn_implementation == "eager"
    model = randomised(timm_vit(libraries["timm"]))
    fused = usu.gradient_attention(model, images, 1).values
    for block in model.blocks:
        block.attn.fused_attn = False
    torch.testing.assert_close(usu.gradient_attention(model, images, 1).values, fused, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("name", ["timm swin", "hf swin"])
def test_windows_are_refused_with_advice(libraries, name):
    library, make, *_ = MODELS[name]
    model = randomised(make(libraries[library]))
    with pytest.raises(ValueError, match=r"`model` must attend over all patches .* \(windows, .* such as gradcam"):
        usu.attention_rollout(model, torch.randn(1, 3, 64, 64), 1)


@pytest.mark.parametrize("source", ["hirescam", "layercam", "attention_rollout", "gradient_attention"])
def test_a_model_output_is_understood_by_every_source(transformers, source):
    model = randomised(hf(transformers, "ViT"))
    torch.manual_seed(1)
    image = torch.randn(3, 32, 32)
    result = usu.explain(model, image, source=source, evaluations=20)
    assert result.source.targets == (int(model(image[None]).logits.argmax()),)
    assert result.coarse.shape == (4, 4)
    assert result.coarse.max() > 0
    bare = usu.sources.coarse_map(source, model.vit, image[None], lambda output: output.last_hidden_state[:, 0, 0])
    assert bare.values.shape == (1, 4, 4)


def test_a_layer_that_returns_a_model_output(transformers):
    model = randomised(hf_swin(transformers))
    images = torch.randn(1, 3, 64, 64)
    found = usu.gradcam(model, images, 1, layer="swin.encoder", relu=False)
    same = usu.gradcam(model, images, 1, layer="swin.encoder.layers.1", relu=False)
    assert found.values.abs().max() > 0
    torch.testing.assert_close(found.values, same.values)


def test_the_real_vit_b_16(torchvision):
    torch.manual_seed(0)
    model = randomised(torchvision.models.vit_b_16(weights=None))
    images = torch.randn(1, 3, 224, 224)
    assert usu.reshape_transform(model)(torch.zeros(1, 197, 768)).shape == (1, 768, 14, 14)
    found = usu.gradient_attention(model, images, 7)
    assert (found.layer, tuple(found.values.shape)) == ("12 attention layers", (1, 14, 14))
    assert found.values.max() > 0
