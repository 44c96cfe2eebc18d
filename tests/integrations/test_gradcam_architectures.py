"""The layer found on its own, for networks of every kind, in small sizes with random weights."""

from __future__ import annotations

import pytest
import torch

from usu.sources import gradcam


def randomised(model: torch.nn.Module) -> torch.nn.Module:
    """Random everywhere: several of these networks start with a head of zeros, through which no gradient comes."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    return model.eval()


def by_hand(model, module, images, target, prefix, grid):
    """Grad-CAM on tokens, written out picture by picture."""
    kept = {}
    handle = module.register_forward_hook(lambda _m, _i, output: kept.update(tokens=output))
    images = images.clone().requires_grad_()
    output = model(images)
    handle.remove()
    logits = output if isinstance(output, torch.Tensor) else output.logits
    gradient = torch.autograd.grad(logits[:, target].sum(), kept["tokens"])[0]
    maps = []
    for tokens, slopes in zip(kept["tokens"].detach()[:, prefix:], gradient[:, prefix:], strict=True):
        weights = slopes.mean(0)
        maps.append(torch.stack([(token * weights).sum() for token in tokens]).reshape(grid))
    return torch.stack(maps)


def check_tokens(model, images, layer, prefix, grid, target=1):
    found = gradcam(model, images, target, relu=False)
    assert found.layer == layer, found.reason
    assert found.values.shape == (len(images), *grid)
    expected = by_hand(model, model.get_submodule(layer), images, target, prefix, grid)
    assert expected.abs().max() > 0
    torch.testing.assert_close(found.values, expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))
    assert not any("zero everywhere" in note for note in found.notes)


def test_torchvision_vit(torchvision):
    model = torchvision.models.VisionTransformer(
        image_size=32, patch_size=8, num_layers=2, num_heads=2, hidden_dim=16, mlp_dim=32, num_classes=5
    )
    check_tokens(
        randomised(model), torch.randn(2, 3, 32, 32), "encoder.layers.encoder_layer_1.ln_1", prefix=1, grid=(4, 4)
    )


VIT = {"patch_size": 8, "embed_dim": 16, "depth": 2, "num_heads": 2, "num_classes": 5}


@pytest.mark.parametrize(
    ("settings", "size", "layer", "prefix", "grid"),
    [
        ({}, (32, 32), "blocks.1.norm1", 1, (4, 4)),
        ({"reg_tokens": 4}, (32, 32), "blocks.1.norm1", 5, (4, 4)),
        ({"class_token": False, "global_pool": "avg", "fc_norm": False}, (32, 32), "norm", 0, (4, 4)),
        ({"global_pool": "avg"}, (32, 32), "blocks", 1, (4, 4)),
        ({}, (24, 64), "blocks.1.norm1", 1, (3, 8)),
        ({"qk_norm": True}, (16, 16), "blocks.1.norm1", 1, (2, 2)),
        ({"patch_size": 7}, (30, 30), "blocks.1.norm1", 1, (4, 4)),  # patches that leave a margin
    ],
)
def test_timm_vit(timm, settings, size, layer, prefix, grid):
    torch.manual_seed(0)
    from timm.models.vision_transformer import VisionTransformer

    model = VisionTransformer(**{**VIT, "img_size": size, **settings})
    check_tokens(randomised(model), torch.randn(2, 3, *size), layer, prefix, grid)


def test_timm_distilled_vit(timm):
    from timm.models.deit import VisionTransformerDistilled

    model = VisionTransformerDistilled(img_size=32, **VIT)
    check_tokens(randomised(model), torch.randn(1, 3, 32, 32), "blocks.1.norm1", 2, (4, 4))


def test_timm_swin_is_channels_last(timm):
    from timm.models.swin_transformer import SwinTransformer

    model = SwinTransformer(
        img_size=64, patch_size=4, embed_dim=8, depths=(2, 2), num_heads=(2, 2), window_size=4, num_classes=5
    )
    images = torch.randn(2, 3, 64, 64)
    found = gradcam(randomised(model), images, 1, relu=False)
    assert (found.layer, tuple(found.values.shape)) == ("norm", (2, 8, 8))
    flat = by_hand_channels_last(model, images, 1)
    torch.testing.assert_close(found.values, flat, rtol=1e-4, atol=1e-6)


def by_hand_channels_last(model, images, target):
    kept = {}
    handle = model.norm.register_forward_hook(lambda _m, _i, output: kept.update(out=output))
    logits = model(images.clone().requires_grad_())
    handle.remove()
    gradient = torch.autograd.grad(logits[:, target].sum(), kept["out"])[0]
    return (kept["out"] * gradient.mean((1, 2), keepdim=True)).sum(-1).detach()


@pytest.mark.parametrize(
    ("name", "layer"),
    # the last one has a convolution after the pooling, which has only one place
    [("resnet10t", "layer4"), ("convnext_atto", "stages"), ("mobilenetv3_small_050", "blocks")],
)
def test_timm_convolutional(timm, name, layer):
    found = gradcam(randomised(timm.create_model(name, num_classes=5)), torch.randn(1, 3, 64, 64), 2)
    assert found.layer == layer
    assert found.values.shape == (1, 2, 2)


@pytest.fixture
def vit_settings(transformers):
    return transformers.ViTConfig(
        image_size=32, patch_size=8, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        num_labels=5,
    )  # fmt: skip


def last_norm_before_attention(model: torch.nn.Module) -> str:
    return [name for name, _ in model.named_modules() if name.endswith("layernorm_before")][-1]


def test_transformers_classifier(transformers, vit_settings):
    torch.manual_seed(0)
    model = randomised(transformers.ViTForImageClassification(vit_settings))
    check_tokens(model, torch.randn(2, 3, 32, 32), last_norm_before_attention(model), 1, (4, 4))


def test_transformers_bare_model_with_a_callable(transformers, vit_settings):
    torch.manual_seed(0)
    model = randomised(transformers.ViTModel(vit_settings))
    found = gradcam(model, torch.randn(2, 3, 32, 32), lambda output: output.pooler_output[:, 0])
    assert found.layer == last_norm_before_attention(model)
    assert found.targets is None
    assert found.values.shape == (2, 4, 4)


def test_transformers_swin_tokens_of_a_later_stage(transformers):
    torch.manual_seed(0)
    settings = transformers.SwinConfig(
        image_size=64, patch_size=4, embed_dim=8, depths=[1, 1], num_heads=[2, 2], window_size=4, num_labels=5
    )
    model = randomised(transformers.SwinForImageClassification(settings))
    check_tokens(model, torch.randn(1, 3, 64, 64), "swin.layernorm", 0, (8, 8))


def test_explicit_last_block_of_a_class_token_vit_is_zero_and_says_so(timm):
    from timm.models.vision_transformer import VisionTransformer

    model = randomised(VisionTransformer(img_size=32, **VIT))
    found = gradcam(model, torch.randn(1, 3, 32, 32), 0, layer="blocks.1")
    assert not found.values.any()
    assert "does not depend on this layer" in found.notes[0]
