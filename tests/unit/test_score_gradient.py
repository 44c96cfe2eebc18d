from __future__ import annotations

import pytest
import torch
from torch import nn

from usu.forward import engine
from usu.score import delete, gradient

GENERATOR = torch.Generator().manual_seed(0)
IMAGE = torch.rand(3, 6, 8, generator=GENERATOR)
SEGMENTS = torch.randint(0, 5, (6, 8), generator=GENERATOR)


def test_equals_deletion_for_a_linear_model():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(144, 4))
    ask = engine(net, [3, 1])
    scores = gradient(ask, IMAGE, SEGMENTS)
    assert torch.allclose(scores.values, delete(ask, IMAGE, SEGMENTS).values, atol=1e-5)
    assert scores.evaluations == 1


def test_one_forward_pass_and_no_traces():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Tanh(), nn.Flatten(), nn.Dropout(), nn.Linear(96, 4)).train()
    passes = []
    net.register_forward_hook(lambda module, inputs, output: passes.append(len(inputs[0])))
    net[0].weight.grad = torch.ones_like(net[0].weight)
    first, second = gradient(engine(net), IMAGE, SEGMENTS), gradient(engine(net), IMAGE, SEGMENTS)
    assert passes == [1, 1]
    assert torch.equal(first.values, second.values)
    assert net[0].weight.grad.eq(1).all()
    assert net[4].weight.grad is None
    assert all(module.training for module in net.modules())
    assert not IMAGE.requires_grad


def test_needs_a_model_that_can_be_differentiated():
    with pytest.raises(ValueError, match="`model` must be differentiable"):
        gradient(engine(lambda batch: torch.ones(len(batch), 2), 0), IMAGE, SEGMENTS)
