"""Tokens of hidden patches are left out: as if masked in every attention, and the model is as it was found."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional

import usu
from tests.chosen import chosen
from tests.integrations.test_vit import MODELS, hf, randomised, timm_vit
from usu import fills
from usu.errors import UsuError
from usu.forward import engine
from usu.forward.calls import logits_of
from usu.sources import token_drop

PLAIN = [name for name in MODELS if "swin" not in name]


def masked_by_hand(name, model, picture, shown, prefix, monkeypatch):
    """Logits of one picture (1, C, H, W) whose hidden tokens get no weight anywhere, by each library's own door."""
    there = torch.cat([torch.ones(prefix, dtype=torch.bool), shown.flatten()])
    handles = []

    def attention(query, key, value, *args, scale=None, **kwargs):
        scores = query @ key.transpose(-2, -1) * (scale or 1 / math.sqrt(query.shape[-1]))
        return scores.masked_fill(~there, -math.inf).softmax(-1) @ value

    def hide(_, args, given):
        return args, {**given, "key_padding_mask": ~there[None]}

    def cut(_, args, out):
        return (out[0][:, there], *out[1:]) if isinstance(out, tuple) else out[:, there]

    blocks = model.encoder.layers if "torchvision" in name else None
    if blocks is None:
        body = model if "timm" in name else getattr(model, model.base_model_prefix)
        body = getattr(body, "encoder", body)
        blocks = next(getattr(body, own) for own in ("blocks", "layers", "layer") if hasattr(body, own))
    with monkeypatch.context() as patch:
        patch.setattr(functional, "scaled_dot_product_attention", attention)
        if "torchvision" in name:
            handles += [b.self_attention.register_forward_pre_hook(hide, with_kwargs=True) for b in blocks]
        handles.append(blocks[-1].register_forward_hook(cut))
        with torch.no_grad():
            found = logits_of(model(picture))
    for handle in handles:
        handle.remove()
    return found


def hooks(model):
    return [(len(m._forward_hooks), len(m._forward_pre_hooks), m.training) for m in model.modules()]


@pytest.mark.parametrize("name", PLAIN)
def test_leaving_tokens_out_is_masking_them_in_attention(libraries, name, monkeypatch):
    library, make, _, size, prefix, grid = MODELS[name]
    model = randomised(make(libraries[library]))
    model.train()
    dice = torch.Generator().manual_seed(1)
    picture = torch.randn(3, *size, generator=dice)
    before = hooks(model)
    dropping = token_drop(model, picture)
    assert hooks(model) == before
    model.eval()
    shown = torch.rand(6, *grid, generator=dice) < torch.tensor([0.2, 0.5, 0.5, 0.55, 0.8, 2.0])[:, None, None]
    shown[:, 0, 0] = True
    there = functional.interpolate(shown[:, None].float(), size)
    with torch.no_grad():
        found = dropping(torch.cat([picture.expand(6, -1, -1, -1), there], 1))
        whole = logits_of(model(picture[None]))
    assert (found[-1] - whole[0]).abs().max() < 1e-5
    assert not torch.allclose(found[0], whole[0], atol=1e-3), "hiding changes something"
    for row, keep in zip(found, shown, strict=True):
        expected = masked_by_hand(name, model, picture[None], keep, prefix, monkeypatch)
        assert (row - expected[0]).abs().max() < 1e-5
    with torch.no_grad():
        nothing = dropping(torch.cat([picture, torch.zeros(1, *size)])[None])
    assert (nothing - whole).abs().max() < 1e-5, "of a picture without any patch all tokens stay"


def test_a_patch_shown_in_part_stays(timm):
    model = randomised(timm_vit(timm))
    picture, there = torch.randn(3, 32, 32), torch.zeros(1, 32, 32)
    there[:, 7:9, 3] = 1  # one pixel of each of two patches
    dropping, whole = token_drop(model, picture), torch.zeros(1, 32, 32)
    whole[:, :16, :8] = 1
    with torch.no_grad():
        few, two = (dropping(torch.cat([picture, mask])[None]) for mask in (there, whole))
    assert torch.equal(few, two)


def test_scores_and_maps_of_the_pipeline_are_those_of_dropping(timm):
    model = randomised(timm_vit(timm))
    picture = torch.randn(3, 32, 32, generator=torch.Generator().manual_seed(2))
    tiles = torch.arange(16).reshape(4, 4).repeat_interleave(8, 0).repeat_interleave(8, 1)
    before = hooks(model)
    asked = engine(token_drop(model, picture), 1)
    effects = usu.score.delete(asked, picture, tiles, fill=fills.Drop())
    assert effects.evaluations == 17
    with torch.no_grad():
        full = model(picture[None])[0, 1]
        for patch in (0, 5):
            there = (tiles != patch).float()
            alone = token_drop(model, picture)(torch.cat([picture, there[None]])[None])[0, 1]
            assert float(effects.values[0, patch]) == pytest.approx(float(full - alone), abs=1e-5)
    few = chosen("soft", parts=16, segmenter=usu.segment.Tiles())
    made = {
        fill: usu.explain(model, picture, 1, preset=replace(few, fill=fill), evaluations=40)
        for fill in (fills.Drop(), "mean")
    }
    assert hooks(model) == before
    assert made[fills.Drop()].evaluations == 40
    assert made[fills.Drop()].provenance["engine"] == "torch"
    assert not torch.allclose(*(torch.as_tensor(one.scores) for one in made.values()))


def test_nothing_is_left_behind_when_the_model_raises(timm):
    model = randomised(timm_vit(timm))
    picture = torch.randn(3, 32, 32)
    dropping = token_drop(model, picture)
    model.train()
    before = hooks(model)
    head = model.head
    model.head = None
    with pytest.raises(TypeError):
        dropping(torch.cat([picture, torch.eye(4).repeat_interleave(8, 0).repeat_interleave(8, 1)[None]])[None])
    model.head = head
    assert hooks(model) == before
    with pytest.raises(UsuError):
        token_drop(nn.Sequential(model, nn.Identity(), _Broken()), picture)
    assert hooks(model) == before


class _Broken(nn.Module):
    """Fails where something is hidden."""

    def forward(self, x):
        if not torch.is_grad_enabled():
            raise RuntimeError("only once")
        return x


@pytest.mark.parametrize(("pool", "passes"), [("token", 1), ("avg", 1)])
def test_rows_with_nearly_as_many_tokens_go_together(timm, pool, passes):
    model = randomised(timm_vit(timm, global_pool=pool))
    picture, there = torch.randn(3, 32, 32), torch.zeros(2, 1, 32, 32)
    there[:, :, :16], there[1, :, 16:24, :8] = 1, 1
    dropping, seen = token_drop(model, picture), []
    model.register_forward_hook(lambda *_: seen.append(1))
    with torch.no_grad():
        dropping(torch.cat([picture.expand(2, -1, -1, -1), there], 1))
    assert len(seen) == passes


def test_a_head_that_averages_norms_of_patches(transformers, monkeypatch):
    """There is no token that such a mean does not see: rows with other numbers of tokens go apart."""
    model = randomised(hf(transformers, "Dinov2"))
    dice = torch.Generator().manual_seed(3)
    picture, shown = torch.randn(3, 32, 32, generator=dice), torch.rand(5, 4, 4, generator=dice) < 0.5
    dropping = token_drop(model, picture)
    with torch.no_grad():
        there = functional.interpolate(shown[:, None].float(), (32, 32))
        found = dropping(torch.cat([picture.expand(5, -1, -1, -1), there], 1))
    for row, keep in zip(found, shown, strict=True):
        expected = masked_by_hand("hf", model, picture[None], keep, 1, monkeypatch)
        assert (row - expected[0]).abs().max() < 1e-5


@pytest.mark.parametrize(("name", "works"), [
    ("vit_small_patch16_dinov3", False), ("beit_base_patch16_224", False), ("vit_base_patch16_siglip_224", True),
])  # fmt: skip
def test_positions_inside_blocks_are_refused_and_a_head_that_attends_is_not(timm, name, works):
    """Rotary positions and biases of positions belong to places in the row of tokens."""
    model = randomised(
        timm.create_model(name, pretrained=False, img_size=64, depth=2, embed_dim=48, num_heads=3, num_classes=5)
    )
    if works:
        assert isinstance(token_drop(model, torch.randn(3, 64, 64)), nn.Module)
    else:
        with pytest.raises(UsuError, match=r"cannot do without some of its tokens|is not the same as masking"):
            token_drop(model, torch.randn(3, 64, 64))


@pytest.mark.parametrize("name", ["timm swin", "hf swin"])
def test_windows_are_refused_in_one_sentence(libraries, name):
    library, make, _, size, *_ = MODELS[name]
    model = randomised(make(libraries[library]))
    with pytest.raises(UsuError, match=r"^(Tokens are left out of|Leaving out tokens is not the same)"):
        token_drop(model, torch.randn(3, *size))


def test_what_is_no_vision_transformer_is_told_so():
    net = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    picture, drop = torch.rand(3, 16, 16), chosen("soft", parts=4, fill=fills.Drop())
    with pytest.raises(UsuError, match="vision transformers only; the blocks of this Sequential take no tokens"):
        usu.upsample(torch.ones(2, 2), picture, net, 0, preset=drop, evaluations=8)
    with pytest.raises(UsuError, match=r"an nn\.Module only; this is a function"):
        token_drop(lambda x: x, picture)
    with pytest.raises(UsuError, match=r"Drop\(\) needs the model that usu\.sources\.token_drop"):
        usu.score.delete(engine(net, 0), picture, torch.zeros(16, 16).long(), fill=fills.Drop())
    with pytest.raises(ValueError, match="must make a picture here"):
        usu.metrics.deletion(torch.rand(16, 16), picture, net, 0, fill=fills.Drop())
    for change in ({"engine": "onnx"}, {"scoring": "gradient", "evaluations": 9, "fit": "ridge"}):
        with pytest.raises(ValueError, match=r"`(engine|scoring)` must be"):
            replace(drop, **change)


def test_a_model_of_transformers_that_writes_out_its_softmax(transformers, monkeypatch):
    model = randomised(hf(transformers, "ViT"))
    picture = torch.randn(3, 32, 32)
    batch = torch.cat([picture, torch.eye(4).repeat_interleave(8, 0).repeat_interleave(8, 1)[None]])[None]
    with torch.no_grad():
        fused = token_drop(model, picture)(batch)
        model.set_attn_implementation("eager")
        assert (token_drop(model, picture)(batch) - fused).abs().max() < 1e-5
