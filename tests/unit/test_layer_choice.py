"""Which layers may be chosen: those that depend on the picture, lie over it, and are not the model's output."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from usu.sources import gradcam
from usu.sources.tracing import trace_tokens

IMAGES = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))


class Words(nn.Module):
    """A small CNN beside a text encoder whose words are fixed; ``asks``: the words look at the picture."""

    def __init__(self, words: int, *, asks: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.deep = nn.Conv2d(3, 8, 8, stride=8), nn.Conv2d(8, 8, 3, padding=1)
        self.embedding, self.norm = nn.Embedding(words, 8), nn.LayerNorm(8)
        self.attention, self.after = nn.MultiheadAttention(8, 2, batch_first=True), nn.LayerNorm(8)
        self.asks = asks

    def forward(self, x: Tensor) -> Tensor:
        features = self.deep(self.conv(x).relu())
        words = self.norm(self.embedding.weight.expand(len(x), -1, -1))
        if self.asks:
            places = features.flatten(2).mT
            words = self.after(words + self.attention(words, places, places)[0])
        return (words @ features.mean((2, 3))[:, :, None])[..., 0]


@pytest.mark.parametrize("asks", [False, True])
@pytest.mark.parametrize("words", [4, 5, 9, 16, 17, 20])
def test_words_are_not_laid_over_the_picture(words, asks):
    for batch in (1, 2):
        found = gradcam(Words(words, asks=asks), IMAGES[:batch], 1)
        assert found.layer == "deep"
        assert found.values.shape == (batch, 4, 4)
        assert found.evaluations == batch


class Patches(nn.Module):
    """Tokens of patches by unfold and a linear map, ``before`` and ``behind`` them tokens without a place."""

    def __init__(self, before: int, behind: int, order: Tensor | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.norm, self.head = nn.Linear(192, 8), nn.LayerNorm(8), nn.Linear(8, 3)
        self.before, self.behind = (nn.Parameter(torch.randn(1, n, 8)) for n in (before, behind))
        self.block = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.order = order

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(nn.functional.unfold(x, 8, stride=8).mT)
        tokens = tokens if self.order is None else tokens[:, self.order]
        parts = (self.before.expand(len(x), -1, -1), tokens, self.behind.expand(len(x), -1, -1))
        return self.head(self.block(self.norm(torch.cat(parts, 1))).mean(1))


@pytest.mark.parametrize(("before", "behind"), [(0, 0), (1, 0), (0, 1), (1, 20), (30, 2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tokens_are_traced_to_their_patches(before, behind, dtype):
    model = Patches(before, behind).to(dtype).eval()
    found = gradcam(model, IMAGES[:, :, :, :24].to(dtype), 1, relu=False)
    assert (found.layer, tuple(found.values.shape)) == ("block", (2, 4, 3))
    kept: list[Tensor] = []
    handle = model.block.register_forward_hook(lambda _m, _i, output: kept.append(output))
    logits = model(IMAGES[:, :, :, :24].to(dtype))
    handle.remove()
    slope = torch.autograd.grad(logits[:, 1].sum(), kept[0])[0][:, before : before + 12]
    places = kept[0].detach()[:, before : before + 12]
    expected = torch.einsum("bc,bnc->bn", slope.mean(1), places).reshape(2, 4, 3)
    torch.testing.assert_close(found.values, expected, rtol=0.05 if dtype == torch.bfloat16 else 1e-5, atol=1e-3)


def test_tokens_in_another_order_are_refused_by_name():
    model = Patches(1, 0, torch.arange(16).flip(0))
    with pytest.raises(ValueError, match=r"`model` must have a layer .* got norm \(2 x 17 x 8\), block"):
        gradcam(model, IMAGES, 1)
    assert gradcam(model, IMAGES, 1, layer="block").values.shape == (2, 4, 4), "whoever names it knows better"


def test_only_the_embedding_is_no_choice():
    class Latents(Words):
        def forward(self, x: Tensor) -> Tensor:
            places = self.conv(x).flatten(2).mT
            return self.after(self.attention(self.embedding.weight.expand(len(x), -1, -1), places, places)[0]).mean(1)

    with pytest.raises(ValueError, match=r"`model` must have a layer .* got attention \(2 x 7 x 8\), after"):
        gradcam(Latents(7), IMAGES, 1)


class UNet(nn.Module):
    def __init__(self, *, upsampled: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.down, self.bottom = nn.Conv2d(3, 8, 3, stride=4, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.up, self.classifier, self.upsampled = nn.Conv2d(11, 8, 3, padding=1), nn.Conv2d(8, 2, 1), upsampled

    def forward(self, x: Tensor) -> Tensor:
        low = self.bottom(self.down(x).relu()).relu()
        if self.upsampled:
            return nn.functional.interpolate(self.classifier(low), x.shape[2:], mode="bilinear").softmax(1)
        high = nn.functional.interpolate(low, x.shape[2:])
        return self.classifier(self.up(torch.cat([x, high], 1)).relu())


@pytest.mark.parametrize("upsampled", [False, True])
def test_the_output_of_a_unet_is_not_chosen(upsampled):
    """Nor what is the output but for pointwise steps, unless the only layer before it is the first."""
    found = gradcam(UNet(upsampled=upsampled), IMAGES, lambda output: output[:, 1, 4:20].mean((1, 2)))
    assert (found.layer, found.values.shape) == ("bottom", (2, 8, 8))
    assert "; not classifier, which the target reads" in found.reason
    assert (", nor up, from which only pointwise steps lead there" in found.reason) == (not upsampled)
    with pytest.raises(ValueError, match=r"`model` must have a layer .* got 0"):
        gradcam(nn.Sequential(nn.Conv2d(3, 2, 3)), IMAGES, lambda output: output[:, 1].mean((1, 2)))


class Deep(nn.Module):
    """Stages, a head of ``steps`` and an output for every pixel."""

    def __init__(self, *steps: nn.Module) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 8, 3, 2, 1)
        self.head, self.classifier = nn.Sequential(*steps), nn.Conv2d(8, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.interpolate(self.classifier(self.head(self.two(self.one(x).relu()).relu())), x.shape[2:])


@pytest.mark.parametrize(
    ("steps", "layer"),
    [
        ((nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8), nn.SiLU(), nn.Dropout()), "two"),
        ((nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 1), nn.GELU()), "two"),
        ((nn.Conv2d(8, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU()), "head.1"),
    ],
)
def test_what_is_the_output_but_for_pointwise_steps_is_passed_over(steps, layer):
    found = gradcam(Deep(*steps).eval(), IMAGES, lambda output: output[:, 1, 4:20].mean((1, 2)))
    assert found.layer == layer


def test_an_output_that_the_target_does_not_read_may_be_chosen():
    class Both(UNet):
        def forward(self, x: Tensor) -> dict[str, Tensor]:
            features = self.bottom(self.down(x))
            return {"logits": features.mean((2, 3)), "features": features}

    assert gradcam(Both(), IMAGES, lambda output: output["logits"][:, 0]).layer == "bottom"


def test_a_backbone_without_a_graph_is_asked_with_a_changed_picture():
    class Cut(Words):
        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                features = self.conv(x)
            pooled = self.deep(features.relu()).mean((2, 3))
            return (self.norm(self.embedding.weight.expand(len(x), -1, -1)) @ pooled[:, :, None])[..., 0]

    found = gradcam(Cut(16), IMAGES, 1, chunk=1)
    assert (found.layer, found.evaluations) == ("deep", 3 + 1), "the second chunk knows its layer"
    assert found.values.any()


@pytest.mark.parametrize(
    ("height", "width", "patch", "margin"), [(2, 3, 4, 0), (4, 4, 2, 1), (1, 5, 3, 2), (20, 20, 1, 0)]
)
def test_the_token_of_every_place(height, width, patch, margin):
    picture = torch.randn(2, 3, height * patch + margin, width * patch, requires_grad=True)
    patches = nn.Conv2d(3, 6, patch, stride=patch)(picture)
    tokens = nn.functional.layer_norm(torch.cat([torch.zeros(2, 2, 6), patches.flatten(2).mT], 1), [6])
    for sources in ([picture], [patches, picture]):
        assert trace_tokens(tokens, sources) == (True, ((height, width), 2, 0))
    assert trace_tokens(tokens.flip(1), [picture]) == (True, None)
    assert trace_tokens(tokens.softmax(1), [picture]) == (False, None), "every token knows every patch"
