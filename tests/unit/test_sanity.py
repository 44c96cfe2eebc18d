"""Can a map be trusted? The model is spoiled on a copy; a map that does not notice is found out."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

import usu
from tests.chosen import chosen
from tests.small_nets import Tower, seeded
from usu.pipeline.sanity import _spoiled

FEW = {"preset": chosen("soft", parts=9), "evaluations": 30}
LAYERS = ["head", "last", "norm", "middle", "fine", "stem"]


class Corner(nn.Module):
    """Sees the brightness of a corner by its weights; what is shuffled sees another place."""

    def __init__(self) -> None:
        super().__init__()
        self.look = nn.Conv2d(3, 2, 4, stride=4, bias=False)
        self.place = nn.Linear(2 * 64, 2, bias=False)
        with torch.no_grad():
            self.look.weight.fill_(0.1)
            self.place.weight.zero_()
            self.place.weight.view(2, 2, 8, 8)[0, :, :3, :3] = 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.place(self.look(x).relu().flatten(1))


def picture() -> torch.Tensor:
    return torch.rand(3, 32, 32, generator=torch.Generator().manual_seed(0)) + 0.2


def test_a_map_that_follows_the_model_passes():
    found = usu.sanity(Corner(), picture(), 0, source="hirescam", steps=2, **FEW)
    assert found.passed, found
    assert "follows what the model has learnt" in found.sentence
    names = [trial.name for trial in found.trials]
    assert names == [
        "another seed", "fill mean", "fill noise", "segments Felzenszwalb", "segments Tiles", "source layercam",
        "last 1 of 2 layers shuffled", "all layers shuffled",
    ]  # fmt: skip
    assert [trial.wanted for trial in found.trials] == ["same"] * 6 + ["other"] * 2
    assert found.trials[0].correlation > found.trials[-1].correlation
    assert repr(found).count("\n") == 9
    assert "<table>" in found._repr_html_()
    assert found.rows()[0]["name"] == "another seed"


def test_a_map_that_ignores_the_weights_fails():
    """An edge detector in disguise: all its weights are equal, so that shuffling changes nothing."""
    net = nn.Sequential(nn.Conv2d(3, 2, 4, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    with torch.no_grad():
        for weights in net.parameters():
            weights.fill_(0.1)
    found = usu.sanity(net, picture(), 0, steps=1, **FEW)
    assert not found.passed
    assert "does not depend on what the model has learnt" in found.sentence
    assert found.trials[-1].iou == 1.0


def test_the_model_is_not_touched_also_when_something_raises(monkeypatch):
    net = seeded(Tower).train()
    before = copy.deepcopy(net.state_dict())
    usu.sanity(net, picture(), 1, steps=1, **FEW)
    assert net.training
    calls = []

    def failing(*given, **more):
        calls.append(given)
        if len(calls) == 8:
            raise RuntimeError("the cable is loose")
        return real(*given, **more)

    real = usu.explain
    monkeypatch.setitem(usu.sanity.__globals__, "explain", failing)
    with pytest.raises(RuntimeError, match="cable"):
        usu.sanity(net, picture(), 1, steps=2, **FEW)
    assert calls[-1][0] is not net, "a spoiled copy was at work"
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert list(net.state_dict()) == list(before)


def test_layers_are_shuffled_from_the_last_to_the_first():
    net = seeded(Tower)
    own = dict(net.named_parameters())
    changed = [
        {name.partition(".")[0] for name, value in spoiled.named_parameters() if not torch.equal(value, own[name])}
        for _, spoiled in ((name, copy.deepcopy(one)) for name, one in _spoiled(net, LAYERS, 3))
    ]
    assert changed[0] == {"head"}
    assert changed[0] < changed[1] < changed[2]
    assert {"stem", "fine"} <= changed[2]
    for name, value in next(
        one for title, one in _spoiled(net, LAYERS, 1) if title == "all layers shuffled"
    ).named_parameters():
        assert torch.equal(value.flatten().sort()[0], own[name].flatten().sort()[0]), "the same numbers"


def test_progress_and_nonsense():
    seen = []
    usu.sanity(Corner(), picture(), 0, steps=1, progress=lambda done, all_: seen.append((done, all_)), **FEW)
    assert seen == [(n, 8) for n in range(2, 9)]
    with pytest.raises(TypeError, match="`model` must be an nn"):
        usu.sanity(lambda batch: batch, picture())
    with pytest.raises(ValueError, match="`steps` must"):
        usu.sanity(Corner(), picture(), steps=0)


def test_the_map_it_speaks_of_is_there():
    found = usu.sanity(Corner(), picture(), 0, steps=1, **FEW)
    alone = usu.explain(Corner(), picture(), 0, **FEW)
    assert np.array_equal(found.explanation.pixel_map, alone.pixel_map)


def test_more_steps_than_layers_show_no_model_twice():
    seen = []
    found = usu.sanity(Corner(), picture(), 0, steps=5, progress=lambda *so_far: seen.append(so_far), **FEW)
    names = [trial.name for trial in found.trials if trial.wanted == "other"]
    assert names == ["last 1 of 2 layers shuffled", "all layers shuffled"]
    assert seen[-1] == (9, 9)


def test_a_volume_is_cut_by_who_can():
    net = seeded(lambda: nn.Sequential(nn.Conv3d(1, 3, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten()))
    found = usu.sanity(net, torch.rand(1, 9, 9, 9), 0, steps=1, **FEW)
    assert [trial.name for trial in found.trials if "segments" in trial.name] == ["segments Tiles"]
