"""Grad-CAM: its formula, its choice of layer, and a model that is left as it was found."""

from __future__ import annotations

import copy
import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from usu.sources import gradcam
from usu.sources.grids import Grid, find_grid


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


def naive(model: nn.Sequential, images: torch.Tensor, targets, cut: int) -> torch.Tensor:
    """The paper's formula with loops, the model cut in two by hand."""
    model = copy.deepcopy(model).eval()
    maps = []
    for image, target in zip(images, targets, strict=True):
        activation = model[:cut](image[None]).detach().clone()
        leaf = activation.clone().requires_grad_()
        model[cut:](leaf.clone())[0, target].backward()
        total = torch.zeros(activation.shape[2:])
        for channel in range(activation.shape[1]):
            weight = leaf.grad[0, channel].mean()
            total += weight * activation[0, channel]
        maps.append(total)
    return torch.stack(maps)


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize(("layer", "cut"), [("3", 4), ("1", 2), (None, 4)])
def test_formula(images, inplace, layer, cut):
    model = small(inplace=inplace)
    found = gradcam(model, images, [0, 3, 1], layer=layer, relu=False)
    expected = naive(model, images, [0, 3, 1], cut)
    torch.testing.assert_close(found.values, expected, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(
        gradcam(model, images, [0, 3, 1], layer=layer).values, expected.relu(), rtol=1e-5, atol=1e-7
    )
    assert (expected < 0).any()


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


def snapshot(model: nn.Module) -> tuple[object, ...]:
    return (
        [module.training for module in model.modules()],
        [len(module._forward_hooks) + len(module._backward_hooks) for module in model.modules()],
        [None if p.grad is None else p.grad.clone().tolist() for p in model.parameters()],
        [p.requires_grad for p in model.parameters()],
        {key: value.tolist() for key, value in model.state_dict().items()},
        torch.get_rng_state().tolist(),
        random.getstate(),
        np.random.get_state()[1].tolist(),
        torch.is_grad_enabled(),
    )


class Noisy(nn.Module):
    """Uses every random number generator."""

    def forward(self, x):
        return x + 0 * (torch.rand(()) + random.random() + float(np.random.rand()))


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("layer", [None, "1.3"])
def test_the_model_is_left_as_found(images, fails, layer):
    model = nn.Sequential(Noisy(), small()).train()
    model[1][1].eval()  # a frozen batch norm in a training model
    model[1][0].weight.requires_grad_(False)
    model[1][3].weight.grad = torch.ones_like(model[1][3].weight)
    before, pixels = snapshot(model), images.clone()

    def target(logits):
        if fails:
            raise RuntimeError("in the middle")
        return logits[:, 0]

    if fails:
        with pytest.raises(RuntimeError, match="in the middle"):
            gradcam(model, images, target, layer=layer)
    else:
        gradcam(model, images, target, layer=layer)
    assert snapshot(model) == before
    assert torch.equal(images, pixels)
    assert not images.requires_grad


@pytest.mark.parametrize("surroundings", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("frozen", [False, True])
def test_works_without_gradients_around_it(images, surroundings, frozen):
    model = small(inplace=True)
    expected = gradcam(model, images, 1).values
    model.requires_grad_(not frozen)
    with surroundings():
        found = gradcam(model, images * 1, 1).values
        assert not torch.is_grad_enabled()
    assert torch.equal(found, expected)
    assert not found.requires_grad
    assert expected.any()


def test_a_map_without_positive_evidence_is_kept_and_explained():
    model = nn.Sequential(nn.Conv2d(1, 1, 1, bias=False), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    nn.init.constant_(model[0].weight, -1.0)
    picture = torch.ones(1, 1, 2, 2)
    found = gradcam(model, picture)
    assert not found.values.any()
    assert found.notes == (
        "The layer holds only evidence against the target, so the rectified map is zero. See it with relu=False.",
    )
    assert (gradcam(model, picture, relu=False).values == -0.25).all()
    two = gradcam(model, torch.cat([picture, 0 * picture]))
    assert [note.split(":")[0] for note in two.notes] == ["Picture 1", "Picture 0"]


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


def test_bad_arguments(images):
    model = small()
    cases = [
        ({"layer": "33"}, ValueError, r"`layer` must name a layer of the model; got '33'. Close are: .*3"),
        ({"layer": nn.Linear(2, 2)}, ValueError, "`layer` must be part of the model; got a Linear"),
        ({"layer": 3}, TypeError, "`layer` must be a name or a module; got int"),
        ({"layer": "8"}, ValueError, "`layer` must have an output that lies over the picture; got '8' with 3 x 5"),
        (
            {"layer": "5"},
            ValueError,
            "`layer` must have an output that lies over the picture; got '5' with 3 x 6 x 1 x 1",
        ),
        ({"target": 5}, ValueError, "`target` must be a class index from 0 to 4"),
        ({"target": -1}, ValueError, "`target` must be a class index of at least 0"),
        ({"target": [0, 1]}, ValueError, r"`target` must be one class, or one per picture \(3\); got 2"),
        ({"target": "cat"}, TypeError, "`target` must be a class index"),
        ({"target": lambda y: y.sum()}, ValueError, "`target` must return one number per picture"),
        ({"target": lambda y: y}, ValueError, "`target` must return one number per picture; got 3 x 5"),
        ({"target": lambda y: y[:, 0].detach()}, ValueError, "`model` must be differentiable"),
        ({"chunk": 0}, ValueError, "`chunk` must be a whole number"),
    ]
    for settings, kind, message in cases:
        with pytest.raises(kind, match=message):
            gradcam(model, images, **settings)
    with pytest.raises(ValueError, match=r"`images` must be a batch, B x C x H x W; got 3 x 16 x 16"):
        gradcam(model, images[0])
    with pytest.raises(TypeError, match=r"`model` must be an nn\.Module"):
        gradcam(lambda batch: batch, images)
    with pytest.raises(ValueError, match="`model` must have a layer that lies over the picture"):
        gradcam(nn.Sequential(nn.Flatten(), nn.Linear(768, 2)), images)
    with pytest.raises(ValueError, match="`model` must have finite activations"):
        gradcam(model, images * float("nan"), 0)


def test_a_layer_that_does_not_run(images):
    model = small()
    model.spare = nn.Conv2d(3, 3, 1)
    model.forward = lambda x: nn.Sequential(*list(model)[:-1])(x)
    with pytest.raises(ValueError, match="`layer` must take part in the forward pass; got 'spare'"):
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
        assert grid is None or grid.height * grid.width > 1
    else:
        assert grid == Grid(h, w, "tokens", prefix)


@given(st.integers(2, 9), st.integers(2, 9), st.integers(1, 40), st.integers(0, 2))
def test_arrange_inverts_each_layout(h, w, channels, prefix):
    maps = torch.arange(2 * channels * h * w, dtype=torch.float32).reshape(2, channels, h, w)
    last = maps.permute(0, 2, 3, 1)
    tokens = torch.cat([torch.full((2, prefix, channels), -1.0), last.flatten(1, 2)], 1)
    assert torch.equal(Grid(h, w, "channels first").arrange(maps), maps)
    assert torch.equal(Grid(h, w, "channels last").arrange(last), maps)
    assert torch.equal(Grid(h, w, "tokens", prefix).arrange(tokens), maps)


@pytest.mark.parametrize(
    ("shape", "size", "expected"),
    [
        ((2, 201, 8), (224, 224), Grid(14, 14, "tokens", 5)),
        ((2, 50, 8), (224, 224), Grid(7, 7, "tokens", 1)),
        ((2, 49, 8), (224, 224), Grid(7, 7, "tokens", 0)),
        ((2, 33, 8), (32, 64), Grid(4, 8, "tokens", 1)),
        ((2, 8, 8, 16), (32, 32), Grid(8, 8, "channels last")),
        ((2, 16, 4, 15), (64, 240), Grid(4, 15, "channels first")),
        ((2, 8, 1, 1), (32, 32), None),
        ((98, 49, 8), (224, 224), None),  # windows in the batch
        ((2, 77, 8), (224, 224), None),  # words, not patches
        ((2, 8), (32, 32), None),
    ],
)
def test_grids(shape, size, expected):
    assert find_grid(shape, 2, size) == expected
