"""The paper's networks, layer by layer."""

from __future__ import annotations

import torch
from experiments.synthetic.networks import CAM_LAYER, cnn, mlp
from torch import nn


def test_the_cnn_is_the_papers() -> None:
    layers = [module for module in cnn().modules() if not list(module.children())]
    convolutions = [m for m in layers if isinstance(m, nn.Conv2d)]
    assert [(m.in_channels, m.out_channels, m.kernel_size) for m in convolutions] == [
        (1, 16, (5, 5)),
        (16, 32, (5, 5)),
        (32, 64, (5, 5)),
    ]
    assert [(m.in_features, m.out_features) for m in layers if isinstance(m, nn.Linear)] == [(1024, 128), (128, 3)]
    assert [m.kernel_size for m in layers if isinstance(m, nn.MaxPool2d)] == [2, 2, 2]
    assert [m.output_size for m in layers if isinstance(m, nn.AdaptiveAvgPool2d)] == [4]
    assert sum(isinstance(m, nn.ReLU) for m in layers) == 4


def test_the_mlp_is_the_papers() -> None:
    layers = [m for m in mlp().modules() if isinstance(m, nn.Linear)]
    assert [(m.in_features, m.out_features) for m in layers] == [(50176, 256), (256, 64), (64, 3)]
    assert sum(isinstance(m, nn.ReLU) for m in mlp(8).modules()) == 2


def test_shapes_of_their_answers() -> None:
    images = torch.rand(2, 1, 32, 32)
    assert cnn()(images).shape == mlp(32)(images).shape == (2, 3)
    assert cnn(5)(images).shape == mlp(32, 5)(images).shape == (2, 5)


def test_the_cam_layer_is_made_of_whole_places_at_224() -> None:
    seen: list[torch.Size] = []
    model = cnn()
    model.get_submodule(CAM_LAYER).register_forward_hook(lambda module, inputs, output: seen.append(output.shape))
    with torch.no_grad():
        model(torch.zeros(1, 1, 224, 224))
    assert seen == [(1, 64, 28, 28)]


def test_weights_follow_the_seed_and_nothing_else() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, again, other = mlp(8), mlp(8), mlp(8, seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first.hidden1.weight, again.hidden1.weight)
    assert not torch.equal(first.hidden1.weight, other.hidden1.weight)
