"""The layer chosen where a model has more than the features of a picture: words, detection tokens, a map as output."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from usu.sources import gradcam

SMALL = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}


class ZeroShot(nn.Module):
    """CLIP with fixed captions: the picture is its only input."""

    def __init__(self, transformers, words: int, captions: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        text = {"vocab_size": 50, "max_position_embeddings": 32, "bos_token_id": 1, "eos_token_id": 2, **SMALL}
        vision = {"image_size": 32, "patch_size": 8, **SMALL}
        self.clip = transformers.CLIPModel(
            transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=8)
        ).eval()
        self.register_buffer("input_ids", torch.randint(3, 50, (captions, words)))

    def forward(self, x):
        return self.clip(input_ids=self.input_ids, pixel_values=x).logits_per_image


@pytest.mark.parametrize("words", [5, 7, 8, 9, 16, 17, 20])
def test_the_words_of_clip_are_no_picture(transformers, words):
    images = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    model = ZeroShot(transformers, words, captions=2)
    for batch in (1, 2, 3):  # also as many pictures as captions
        found = gradcam(model, images[:batch], 0, finer=True)
        assert found.layer.endswith("vision_model.encoder.layers.1.layer_norm1")
        assert found.values.shape == (batch, 4, 4)
        assert found.evaluations == batch
        assert found.finer == ()
    alone = gradcam(model, images[:1], 0).values
    torch.testing.assert_close(found.values[:1], alone)


@pytest.mark.parametrize("detections", [3, 6, 24, 100])
def test_the_detection_tokens_of_yolos_trail_the_patches(transformers, detections):
    torch.manual_seed(0)
    model = transformers.YolosForObjectDetection(
        transformers.YolosConfig(
            **SMALL, image_size=[32, 48], patch_size=8, num_detection_tokens=detections, num_labels=4
        )
    ).eval()
    images = torch.randn(1, 3, 32, 48)
    target = lambda output: output.logits[:, :, 1].amax(1)  # noqa: E731
    found = gradcam(model, images, target, relu=False)
    assert found.layer.endswith("layer.1.layernorm_before")
    assert f"4 x 6 tokens after 1 and before {detections} without a place" in found.reason
    kept = []
    model.get_submodule(found.layer).register_forward_hook(lambda _m, _i, output: kept.append(output))
    score = target(model(images.requires_grad_())).sum()
    tokens, slope = kept[0], torch.autograd.grad(score, kept[0])[0]
    expected = (tokens[0, 1:25] @ slope[0, 1:25].mean(0)).reshape(1, 4, 6).detach()
    torch.testing.assert_close(found.values, expected)


def test_the_logits_of_segformer_are_not_explained_by_themselves(transformers):
    torch.manual_seed(0)
    settings = {"depths": [1] * 4, "hidden_sizes": [8, 16, 24, 32], "num_attention_heads": [1, 2, 2, 2]}
    model = transformers.SegformerForSemanticSegmentation(
        transformers.SegformerConfig(**settings, decoder_hidden_size=16, num_labels=3)
    ).eval()
    images = torch.randn(1, 3, 64, 64)
    for target in (
        lambda output: output.logits[:, 1].mean((1, 2)),
        lambda output: nn.functional.interpolate(output.logits, scale_factor=4)[:, 1, 8:40, 8:40].sum((1, 2)),
    ):
        found = gradcam(model, images, target, finer=True)
        assert found.layer == "decode_head.linear_projections.3", "the deepest stage, before it is laid over the others"
        assert found.values.shape == (1, 2, 2)
        assert "not decode_head.classifier, decode_head, which the target reads" in found.reason
        assert "nor decode_head.linear_fuse, decode_head.batch_norm, from which only pointwise" in found.reason


@pytest.mark.parametrize("queries", [16, 17, 20])
def test_object_queries_are_passed_over(transformers, queries):
    """Also as many as there are patches, of the same width."""
    torch.manual_seed(0)
    backbone = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 8, 16, 16], depths=[1] * 4, layer_type="basic", out_features=["stage4"]
    )
    model = transformers.DetrForObjectDetection(
        transformers.DetrConfig(
            use_timm_backbone=False, use_pretrained_backbone=False, backbone=None, backbone_config=backbone, d_model=16,
            encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2,
            encoder_ffn_dim=16, decoder_ffn_dim=16, num_queries=queries, num_labels=3,
        )
    ).eval()  # fmt: skip
    found = gradcam(model, torch.randn(1, 3, 128, 128), lambda output: output.logits[:, :, 1].amax(1))
    assert ".encoder." in found.layer
    assert found.values.shape == (1, 4, 4)
