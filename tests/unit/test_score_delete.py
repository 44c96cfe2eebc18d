from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from usu.forward import engine
from usu.forward.fills import Mean, filled
from usu.score import Scores, delete

GENERATOR = torch.Generator().manual_seed(0)
IMAGE = torch.rand(3, 10, 12, generator=GENERATOR)
SEGMENTS = torch.randint(0, 6, (10, 12), generator=GENERATOR)


@pytest.fixture
def net() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Conv2d(3, 5, 3), nn.Tanh(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(20, 4)).eval()


def count(net: nn.Module) -> list[int]:
    """Pictures that really went through."""
    sizes: list[int] = []
    net.register_forward_hook(lambda module, inputs, output: sizes.append(len(inputs[0])))
    return sizes


def naive(net: nn.Module, fill: Tensor, mode: str, targets: list[int]) -> Tensor:
    """The definition, one picture at a time."""

    def g(picture: Tensor) -> Tensor:
        with torch.no_grad():
            return net(picture[None])[0, targets].double()

    columns = []
    for p in range(6):
        inside = p == SEGMENTS
        away = g(IMAGE) - g(torch.where(inside, fill, IMAGE))
        alone = g(torch.where(inside, IMAGE, fill)) - g(fill)
        columns.append({"delete": away, "keep": alone, "both": (away + alone) / 2}[mode])
    return torch.stack(columns, 1)


@pytest.mark.parametrize("chunk", [1, 4, 50])
@pytest.mark.parametrize(("mode", "cost"), [("delete", 7), ("keep", 7), ("both", 14)])
def test_equals_the_definition_and_counts_what_it_costs(net, mode, cost, chunk):
    expected = naive(net, Mean()(IMAGE), mode, [2, 0])
    passes = count(net)
    scores = delete(engine(net, [2, 0], chunk=chunk), IMAGE, SEGMENTS, fill="mean", mode=mode)
    assert isinstance(scores, Scores)
    assert torch.allclose(scores.values, expected, atol=1e-6)
    assert scores.values.abs().min() > 1e-5, "the test would not see a missing segment"
    assert scores.evaluations == sum(passes) == cost
    assert scores.stderr is None


@pytest.mark.parametrize(("mode", "cost"), [("delete", 6), ("keep", 7), ("both", 13)])
def test_a_known_reference_is_not_evaluated_again(net, mode, cost):
    aimed = engine(net).aim(IMAGE)
    full = delete(engine(net), IMAGE, SEGMENTS, mode=mode)
    passes = count(net)
    scores = delete(aimed.engine, IMAGE, SEGMENTS, mode=mode, reference=aimed.values)
    assert torch.allclose(scores.values, full.values, atol=1e-6)
    assert scores.evaluations == sum(passes) == cost


def test_the_top_class_is_looked_up_when_no_target_is_given(net):
    top = int(net(IMAGE[None]).argmax())
    for mode, cost in (("delete", 7), ("keep", 8)):
        passes = count(net)
        scores = delete(engine(net), IMAGE, SEGMENTS, mode=mode)
        assert torch.allclose(scores.values, delete(engine(net, top), IMAGE, SEGMENTS, mode=mode).values, atol=1e-6)
        assert scores.evaluations == cost <= sum(passes)


@pytest.mark.parametrize("which", [[4, 1], np.array([4, 1]), torch.tensor([False, True, False, False, True, False])])
@pytest.mark.parametrize("mode", ["delete", "keep", "both"])
def test_only_the_segments_asked_for(net, which, mode):
    everything = delete(engine(net, 1), IMAGE, SEGMENTS, mode=mode).values
    some = delete(engine(net, 1), IMAGE, SEGMENTS, mode=mode, which=which)
    assert torch.allclose(some.values[:, [1, 4]], everything[:, [1, 4]], atol=1e-6)
    assert some.values[:, [0, 2, 3, 5]].isnan().all()
    assert some.evaluations == {"delete": 3, "keep": 3, "both": 6}[mode]


def test_nothing_asked_for_costs_nothing_more_than_the_reference(net):
    scores = delete(engine(net, [1, 2]), IMAGE, SEGMENTS, which=[])
    assert scores.values.shape == (2, 6)
    assert scores.evaluations == 1


def test_a_label_without_pixels_costs_nothing_and_scores_zero(net):
    gap = SEGMENTS.clone()
    gap[gap == 3] = 6
    scores = delete(engine(net, 1), IMAGE, gap)
    assert scores.values.shape == (1, 7)
    assert scores.values[0, 3] == 0
    assert scores.evaluations == 7


def test_memory_does_not_grow_with_the_number_of_segments():
    largest = []

    def model(batch: Tensor) -> Tensor:
        largest.append(len(batch))
        return batch.mean((1, 2, 3))[:, None]

    segments = torch.arange(40 * 50).reshape(40, 50)
    scores = delete(engine(model, 0, chunk=16), torch.rand(3, 40, 50), segments, mode="both")
    assert max(largest) == 16
    assert sum(largest) == scores.evaluations == 2 * 2000 + 2


def test_numpy_arrays_and_progress(net):
    seen = []
    scores = delete(
        engine(net, 1, chunk=4), IMAGE.numpy(), SEGMENTS.numpy().astype(np.int32), progress=lambda *n: seen.append(n)
    )
    assert torch.equal(scores.values, delete(engine(net, 1, chunk=4), IMAGE, SEGMENTS).values)
    assert seen == [(4, 6), (6, 6)]


def test_bad_arguments(net):
    ask = engine(net, 1)
    with pytest.raises(ValueError, match=r"`segments` must give every pixel \(10 x 12\) one label; got 5 x 5"):
        delete(ask, IMAGE, torch.zeros(5, 5, dtype=torch.int64))
    with pytest.raises(TypeError, match="`segments` must hold integer labels"):
        delete(ask, IMAGE, SEGMENTS.double())
    with pytest.raises(ValueError, match="`segments` must be labels from 0 on; got -1"):
        delete(ask, IMAGE, SEGMENTS - 1)
    with pytest.raises(ValueError, match="`mode` must be one of"):
        delete(ask, IMAGE, SEGMENTS, mode="drop")
    with pytest.raises(ValueError, match="`which` must be a whole number from 0 to 5; got 6"):
        delete(ask, IMAGE, SEGMENTS, which=[2, 6])
    with pytest.raises(TypeError, match="`which` must hold integer labels"):
        delete(ask, IMAGE, SEGMENTS, which=[True, False])
    with pytest.raises(ValueError, match="`image` must be finite"):
        delete(ask, IMAGE * torch.nan, SEGMENTS)


def test_the_picture_is_not_written_to(net):
    before, labels = IMAGE.clone(), SEGMENTS.clone()
    delete(engine(net, 1), IMAGE, SEGMENTS, fill=lambda image: filled(image, "blur"))
    assert torch.equal(before, IMAGE)
    assert torch.equal(labels, SEGMENTS)
