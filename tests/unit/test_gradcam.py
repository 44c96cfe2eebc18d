"""Grad-CAM: its targets, its choice of layer and the grids of layers. Its formula is in test_sources_cams.py."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from usu.sources import gradcam
from usu.sources.recording import LayerGrid, find_grid


def small(*, inplace: bool = False, channels: int = 4) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, channels, 3, stride=2, padding=1),
        nn.BatchNorm2d(channels),
        nn.ReLU(inplace=inplace),
        nn.Conv2d(channels, 6, 3, stride=2, padding=1),
        nn.ReLU(inplace=inplace),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(6, 5),
    )


@pytest.fixture
def images() -> torch.Tensor:
    return torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(1))


def test_an_activation_before_an_inplace_relu_keeps_its_negative_part(images):
    """The map of the convolution, not that of its rectified copy."""
    model = small(inplace=True)
    conv = gradcam(model, images, 2, layer="3", relu=False).values
    rectified = gradcam(model, images, 2, layer="4", relu=False).values
    assert not torch.allclose(conv, rectified)


def test_layer_by_module_and_its_record(images):
    model = small()
    by_name, by_module = (gradcam(model, images, 0, layer=layer) for layer in ("3", model[3]))
    assert torch.equal(by_name.values, by_module.values)
    assert (by_module.layer, by_module.reason, by_module.evaluations) == ("3", "asked for", 3)
    chosen = gradcam(model, images, 0)
    assert chosen.layer == "3", "activations and poolings repeat the convolution before them"
    assert chosen.reason == "the last spatial layer (4 x 4)"


def test_targets(images):
    model = small()
    top = model.eval()(images).argmax(1).tolist()
    none = gradcam(model, images)
    assert none.targets == tuple(top)
    assert torch.equal(none.values, gradcam(model, images, top).values)
    assert gradcam(model, images, 2).targets == (2, 2, 2)
    called = gradcam(model, images, lambda logits: logits[:, 2])
    assert called.targets is None
    assert torch.equal(called.values, gradcam(model, images, 2).values)


@pytest.mark.parametrize("wrap", [lambda y: (y, None), lambda y: {"aux": y[:, :1], "logits": y}])
def test_outputs_that_are_not_tensors(images, wrap):
    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = small()

        def forward(self, x):
            return wrap(self.net(x))

    model = Wrapped()
    assert torch.equal(gradcam(model, images, 3).values, gradcam(model.net, images, 3).values)


def test_pictures_do_not_see_each_other_and_chunks_do_not_matter(images):
    model = small()
    together = gradcam(model, images, [0, 1, 2]).values
    for chunk in (1, 2):
        torch.testing.assert_close(gradcam(model, images, [0, 1, 2], chunk=chunk).values, together)
    torch.testing.assert_close(gradcam(model, images[1:2], 1).values, together[1:2])


def test_numpy_pictures(images):
    model = small()
    assert torch.equal(gradcam(model, images.numpy(), 1).values, gradcam(model, images, 1).values)


def test_exactly_one_forward_pass_per_picture(images):
    model, seen = small(), []
    model.register_forward_hook(lambda _m, inputs, _o: seen.append(len(inputs[0])))
    found = gradcam(model, images, chunk=2)
    assert seen == [2, 1]
    assert found.evaluations == 3


def test_a_map_without_positive_evidence_is_kept_and_explained():
    model = nn.Sequential(nn.Conv2d(1, 1, 1, bias=False), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    nn.init.constant_(model[0].weight, -1.0)
    picture = torch.ones(1, 1, 2, 2)
    found = gradcam(model, picture)
    assert not found.values.any()
    assert len(found.notes) == 1
    assert "only evidence against the target" in found.notes[0]
    assert (found.signed == -0.25).all()
    signed = gradcam(model, picture, relu=False)
    assert torch.equal(signed.values, found.signed)
    assert (signed.empty, signed.only_negative) == ((False,), (True,))
    three = gradcam(model, torch.cat([picture, 0 * picture, -picture]))
    assert [note.split(":")[0] for note in three.notes] == ["Picture 1", "Picture 0"]
    assert (three.empty, three.only_negative) == ((True, True, False), (True, False, False))


def test_a_last_layer_of_one_place_is_passed_over():
    model = nn.Sequential(nn.Conv2d(3, 4, 3, stride=4), nn.Conv2d(4, 4, 4), nn.Flatten(), nn.Linear(4, 2))
    assert gradcam(model, torch.randn(1, 3, 16, 16), 0).layer == "0"


def test_a_branch_that_leads_nowhere_is_passed_over(images):
    class Branched(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused, self.head = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3), nn.Linear(4, 2)

        def forward(self, x):
            x = self.used(x)
            self.unused(x)
            return self.head(x.mean((2, 3)))

    found = gradcam(Branched(), images, 0)
    assert found.layer == "used"
    assert "1 later one has none there" in found.reason


def test_a_deep_model_is_searched_from_its_end(images):
    model = nn.Sequential(*[nn.Conv2d(3, 3, 1) for _ in range(100)], nn.AdaptiveAvgPool2d(1), nn.Flatten())
    assert gradcam(model, images, 0).layer == "99"


@pytest.mark.parametrize(
    ("settings", "kind", "message"),
    [
        ({"layer": "33"}, ValueError, r"`layer` .* got '33'. Close are: .*3"),
        ({"layer": nn.Linear(2, 2)}, ValueError, "`layer` .* got a Linear"),
        ({"layer": 3}, TypeError, "`layer` .* got int"),
        ({"layer": "8"}, ValueError, "`layer` .* got '8' with 3 x 5"),
        ({"layer": "5"}, ValueError, "`layer` .* got '5' with 3 x 6 x 1 x 1"),
        ({"target": 5}, ValueError, "`target` .* from 0 to 4"),
        ({"target": [0, 1]}, ValueError, r"`target` .* \(3\); got 2"),
        ({"target": "cat"}, TypeError, "`target`"),
        ({"target": lambda y: y.sum()}, ValueError, "`target`"),
        ({"target": lambda y: y}, ValueError, "`target` .* got 3 x 5"),
        ({"target": lambda y: y[:, 0].detach()}, ValueError, "`model` must be differentiable"),
        ({"chunk": 0}, ValueError, "`chunk`"),
        ({"images": torch.zeros(3, 16, 16)}, ValueError, "`images` .* got 3 x 16 x 16"),
        ({"images": torch.full((1, 3, 16, 16), float("nan")), "target": 0}, ValueError, "`model` must have finite"),
        ({"model": lambda batch: batch}, TypeError, r"`model` .* Grad-CAM needs gradients; got function"),
        ({"model": nn.Sequential(nn.Flatten(), nn.Linear(768, 2))}, ValueError, "`model` must have a layer"),
    ],
)
def test_bad_arguments(images, settings, kind, message):
    with pytest.raises(kind, match=message):
        gradcam(**{"model": small(), "images": images, **settings})


def test_a_layer_that_does_not_run(images):
    model = small()
    model.spare = nn.Conv2d(3, 3, 1)
    model.forward = lambda x: nn.Sequential(*list(model)[:-1])(x)
    with pytest.raises(ValueError, match=r"`layer` must .*; got 'spare'"):
        gradcam(model, images, 0, layer="spare")


@given(
    st.integers(1, 8),
    st.integers(1, 8),
    st.sampled_from([4, 7, 14, 16]),
    st.integers(0, 5),
    st.integers(1, 3),
    st.booleans(),
)
def test_token_grids_are_found_from_the_patches_seen(h, w, patch, prefix, batch, told):
    """With the patch embedding's grid known, every token count is read rightly, whatever stands in front."""
    size = (h * patch + (patch - 1) * told, w * patch)  # a margin that only the convolution knows of
    grid = find_grid((batch, h * w + prefix, 32), batch, size, {(h, w)})
    if h * w == 1:
        assert grid is None or grid.places > 1
    else:
        assert grid == LayerGrid((h, w), "tokens", prefix)


def test_a_class_is_not_likelier_than_itself_or_its_equal():
    model = nn.Sequential(nn.Conv2d(1, 4, 1, bias=False), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([1.0, 3.0, 3.0, 2.0])[:, None, None, None])
    likelier = [gradcam(model, torch.ones(1, 1, 3, 3), target).goals[0].likelier for target in range(4)]
    assert likelier == [3, 0, 0, 2]


@given(st.integers(2, 9), st.integers(2, 9), st.integers(1, 40), st.integers(0, 2))
def test_arrange_inverts_each_layout(h, w, channels, prefix):
    maps = torch.arange(2 * channels * h * w, dtype=torch.float32).reshape(2, channels, h, w)
    last = maps.permute(0, 2, 3, 1)
    tokens = torch.cat([torch.full((2, prefix, channels), -1.0), last.flatten(1, 2)], 1)
    assert torch.equal(LayerGrid((h, w), "channels first").arrange(maps), maps)
    assert torch.equal(LayerGrid((h, w), "channels last").arrange(last), maps)
    assert torch.equal(LayerGrid((h, w), "tokens", prefix).arrange(tokens), maps)


@pytest.mark.parametrize(
    ("shape", "size", "expected"),
    [
        ((2, 201, 8), (224, 224), LayerGrid((14, 14), "tokens", 5)),
        ((2, 50, 8), (224, 224), LayerGrid((7, 7), "tokens", 1)),
        ((2, 49, 8), (224, 224), LayerGrid((7, 7), "tokens", 0)),
        ((2, 33, 8), (32, 64), LayerGrid((4, 8), "tokens", 1)),
        ((2, 8, 8, 16), (32, 32), LayerGrid((8, 8), "channels last")),
        ((2, 16, 4, 15), (64, 240), LayerGrid((4, 15), "channels first")),
        ((2, 8, 1, 1), (32, 32), None),
        ((98, 49, 8), (224, 224), None),  # windows in the batch
        ((2, 77, 8), (224, 224), None),  # words, not patches
        ((2, 8), (32, 32), None),
    ],
)
def test_grids(shape, size, expected):
    assert find_grid(shape, 2, size) == expected
