"""Every source: its formula by loops, and a model that is left as it was found."""

from __future__ import annotations

import copy
import gc
import random

import numpy as np
import pytest
import torch
from torch import nn

import usu
from usu.cli.run import source_from
from usu.sources import coarse_map
from usu.sources.cams import attention_rollout, gradcam, gradient_attention, hirescam, layercam
from usu.sources.tokens import reshape_transform


def small() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=2, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.Conv2d(4, 6, 3, stride=2, padding=1),
        nn.Tanh(),  # negative activations keep their gradient
        nn.Flatten(),  # unlike after a mean, every place has a gradient of its own
        nn.Dropout(0.5),
        nn.Linear(96, 5),
    )


@pytest.fixture
def images() -> torch.Tensor:
    return torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(1))


def naive(method: str, model: nn.Sequential, images: torch.Tensor, targets, cut: int) -> torch.Tensor:
    """The papers' formulas with loops, the model cut in two by hand."""
    model = copy.deepcopy(model).eval()
    maps = []
    for image, target in zip(images, targets, strict=True):
        activation = model[:cut](image[None]).detach().clone()
        leaf = activation.clone().requires_grad_()
        model[cut:](leaf.clone())[0, target].backward()
        height, width = activation.shape[2:]
        total = torch.zeros(height, width)
        for channel in range(activation.shape[1]):
            weight = float(leaf.grad[0, channel].mean())
            for i in range(height):
                for j in range(width):
                    slope = float(leaf.grad[0, channel, i, j])
                    factor = {"gradcam": weight, "hirescam": slope, "layercam": max(slope, 0.0)}[method]
                    total[i, j] += factor * float(activation[0, channel, i, j])
        maps.append(total)
    return torch.stack(maps)


@pytest.mark.parametrize("method", ["gradcam", "hirescam", "layercam"])
@pytest.mark.parametrize(("layer", "cut"), [("3", 4), ("1", 2), (None, 4)])
def test_formulas(images, method, layer, cut):
    model, function = small(), {"gradcam": gradcam, "hirescam": hirescam, "layercam": layercam}[method]
    expected = naive(method, model, images, [0, 3, 1], cut)
    if layer != "1":  # a rectifier follows there, and where it cuts there is no gradient
        assert (expected < 0).any()
    found = function(model, images, [0, 3, 1], layer=layer, relu=False)
    torch.testing.assert_close(found.values, expected, rtol=1e-4, atol=1e-6)
    rectified = function(model, images, [0, 3, 1], layer=layer)
    torch.testing.assert_close(rectified.values, expected.relu(), rtol=1e-4, atol=1e-6)
    assert rectified.layer == (layer or "3")
    assert rectified.reason == ("asked for" if layer else "the last spatial layer (4 x 4)")
    assert torch.equal(coarse_map(method, model, images, [0, 3, 1], layer=layer).values, rectified.values)


def test_the_signed_hirescam_of_the_last_layer_adds_up_to_the_logit(images):
    model = small().eval()
    found = hirescam(model, images, 2, layer="4", relu=False)  # only a linear head follows
    torch.testing.assert_close(found.values.sum((1, 2)), model(images)[:, 2] - model[7].bias[2])


@pytest.mark.parametrize("method", ["hirescam", "layercam"])
def test_all_evidence_against(method):
    model = nn.Sequential(nn.Conv2d(1, 1, 1, bias=False), nn.Flatten(), nn.Linear(4, 1, bias=False))
    for layer, value in ((model[0], -1.0), (model[2], 1.0)):
        nn.init.constant_(layer.weight, value)
    found = getattr(usu, method)(model, torch.ones(1, 1, 2, 2))
    assert not found.values.any()
    assert "only evidence against the target" in found.notes[0]


class Attending(nn.Module):
    """A small ViT with a class token, two blocks, and a dictionary for an output."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Conv2d(3, 8, 4, stride=4)
        self.first = nn.Parameter(torch.randn(1, 1, 8))
        self.blocks = nn.ModuleList(nn.MultiheadAttention(8, 2, batch_first=True, dropout=0.5) for _ in range(2))
        self.norm = nn.BatchNorm1d(8)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        tokens = self.embed(x).flatten(2).mT
        tokens = torch.cat([self.first.expand(len(x), -1, -1), tokens], 1)
        for block in self.blocks:
            tokens = tokens + block(tokens, tokens, tokens, need_weights=False)[0]
        return {"aux": None, "logits": self.head(self.norm(tokens[:, 0]))}


CALLS = {
    "gradcam": gradcam,
    "hirescam": hirescam,
    "layercam": layercam,
    "attention_rollout": attention_rollout,
    "gradient_attention": gradient_attention,
}


def snapshot(model: nn.Module) -> tuple[object, ...]:
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return (
        [module.training for module in model.modules()],
        [[len(getattr(module, kind)) for kind in kinds] for module in model.modules()],
        [sorted(vars(module)) for module in model.modules()],
        [None if p.grad is None else p.grad.clone().tolist() for p in model.parameters()],
        [p.requires_grad for p in model.parameters()],
        {key: value.tolist() for key, value in model.state_dict().items()},
        torch.get_rng_state().tolist(),
        random.getstate(),
        np.random.get_state()[1].tolist(),
        torch.is_grad_enabled(),
        torch.overrides._get_current_function_mode_stack(),
    )


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("layer", [None, "blocks.0"])
@pytest.mark.parametrize("name", CALLS)
def test_the_model_is_left_as_found(images, name, layer, fails):
    model = Attending().train()
    model.norm.eval()  # frozen in a training model
    model.embed.weight.requires_grad_(False)
    model.head.weight.grad = torch.ones_like(model.head.weight)
    before, pixels = snapshot(model), images.clone()

    def target(output):
        if fails:
            raise RuntimeError("in the middle")
        return output["logits"][:, 0]

    settings = {"layer": layer} if layer and name in usu.sources.LAYER_SOURCES else {}
    if fails:
        with pytest.raises(RuntimeError, match="in the middle"):
            CALLS[name](model, images, target, **settings)
    else:
        CALLS[name](model, images, target, **settings)
    assert snapshot(model) == before
    assert torch.equal(images, pixels)
    assert not images.requires_grad


@pytest.mark.parametrize("fails", [False, True])
def test_a_reshape_transform_leaves_the_model_as_found(fails):
    model = Attending().train()
    if fails:
        model.head = nn.Linear(9, 5)
    before = snapshot(model)
    if fails:
        with pytest.raises(RuntimeError):
            reshape_transform(model, (16, 16))
    else:
        reshape_transform(model, (16, 16))
    assert snapshot(model) == before


@pytest.mark.parametrize("surroundings", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_works_without_gradients_around_it(images, surroundings, frozen, name):
    model = Attending()
    expected = CALLS[name](model, images, 1).values
    model.requires_grad_(not frozen)
    with surroundings():
        found = CALLS[name](model, images * 1, 1).values
        assert not torch.is_grad_enabled()
    torch.testing.assert_close(found, expected)
    assert not found.requires_grad
    assert expected.any()


@pytest.mark.parametrize("name", CALLS)
def test_chunks_do_not_matter_and_targets_are_recorded(images, name):
    model = Attending()
    together = CALLS[name](model, images, [0, 1, 2])
    apart = CALLS[name](model, images, [0, 1, 2], chunk=2)
    assert together.targets == apart.targets == (0, 1, 2)
    assert together.evaluations == apart.evaluations == 3
    assert together.reason == apart.reason != ""
    torch.testing.assert_close(together.values, apart.values)
    top = model.eval()(images)["logits"].argmax(1).tolist()
    assert CALLS[name](model, images).targets == tuple(top)


@pytest.mark.parametrize("name", CALLS)
def test_memory_does_not_grow_over_many_calls(name):
    model, picture = Attending(), torch.randn(1, 3, 8, 8)

    def tensors() -> int:
        gc.collect()
        return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())

    CALLS[name](model, picture, 0)
    before = tensors()
    gc.disable()  # nothing may wait for the collector: a graph held in a circle is memory held
    try:
        for _ in range(25):
            CALLS[name](model, picture, 0)
        alive = sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())
    finally:
        gc.enable()
    assert alive <= before + 5


def test_names():
    model, picture = small(), torch.randn(1, 3, 16, 16)
    with pytest.raises(ValueError, match=r"`source` must .*'gradient_attention'.*; got 'lime'"):
        coarse_map("lime", model, picture)
    with pytest.raises(ValueError, match=r"`layer` must .*; got '3'"):
        coarse_map("attention_rollout", model, picture, layer="3")
    with pytest.raises(TypeError, match=r"`model` must .*; got function"):
        hirescam(lambda batch: batch, picture)


def test_the_command_knows_names_and_files(tmp_path):
    assert source_from("layercam") == "layercam"
    np.save(tmp_path / "map.npy", np.ones((2, 3)))
    assert source_from(str(tmp_path / "map.npy")).shape == (2, 3)
    with pytest.raises(ValueError, match=r"`--source` must .*; got 'grad-cam'"):
        source_from("grad-cam")


def test_explain_takes_every_source(images):
    model = Attending()
    for name in usu.sources.SOURCES:
        result = usu.explain(model, images[0], 1, source=name, evaluations=20)
        direct = coarse_map(name, model, images[:1], 1)
        np.testing.assert_allclose(result.coarse, direct.values[0].numpy(), rtol=1e-5)
        assert result.source.reason == direct.reason
        assert result.pixel_map.shape == (16, 16)
