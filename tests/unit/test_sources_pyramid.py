"""The conserved pyramid: mass handed down level by level, from one pass."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from usu.operator.cells import interval_of
from usu.operator.redistribute import redistribute
from usu.sources import gradcam, hirescam, pyramid


class Counted(torch.autograd.Function):
    """Passes through, and counts."""

    forwards = backwards = 0

    @staticmethod
    def forward(ctx, x):
        Counted.forwards += 1
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        Counted.backwards += 1
        return gradient


class Net(nn.Module):
    def __init__(self, *, pools: int = 3) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stages = nn.ModuleList(nn.Conv2d(3 if i == 0 else 6, 6, 3, padding=1) for i in range(pools + 1))
        self.head = nn.Linear(6, 4)

    def forward(self, x):
        x = Counted.apply(x)
        for i, stage in enumerate(self.stages):
            x = torch.relu_(stage(x if i == 0 else nn.functional.max_pool2d(x, 2)))
        return self.head(x.mean((2, 3)))


def mass_in(coarse_size, fine: torch.Tensor) -> torch.Tensor:
    """Sums over the finer cells that lie in each coarse one, by loops."""
    rows, columns = (interval_of(n, k, fine.device) for n, k in zip(fine.shape[1:], coarse_size, strict=True))
    total = torch.zeros(len(fine), *coarse_size, dtype=torch.float64)
    for i, row in enumerate(rows.tolist()):
        for j, column in enumerate(columns.tolist()):
            total[:, row, column] += fine[:, i, j]
    return total


@pytest.mark.parametrize("size", [(32, 32), (27, 45)], ids=["even", "odd"])
@pytest.mark.parametrize("base", [None, "bilinear"])
@pytest.mark.parametrize("temperature", [0.02, 0.3])
def test_every_level_keeps_the_mass_of_the_one_above(size, base, temperature):
    model, images = Net(), torch.randn(2, 3, *size)
    found = pyramid(model, images, [0, 3], base=base, temperature=temperature)
    sizes = [tuple(level.mass.shape[1:]) for level in found.levels]
    assert sizes == [tuple(s // 2**k for s in size) for k in (3, 2, 1, 0)]
    for above, below in zip(found.levels[:-1], found.levels[1:], strict=True):
        kept = mass_in(above.mass.shape[1:], below.mass)
        assert float((kept - above.mass).abs().max()) <= 1e-12 * float(above.mass.max())
        assert 0 <= float(below.scores.min()) < float(below.scores.max()) <= 1
    top = gradcam(model, images, [0, 3], layer="stages.3").values.double()
    pixels = mass_in(top.shape[1:], torch.ones(2, *size, dtype=torch.float64))
    torch.testing.assert_close(found.levels[0].mass, top * pixels)
    assert top.sum() > 0
    torch.testing.assert_close(found.pixel_map.sum((1, 2)), (top * pixels).sum((1, 2)), rtol=1e-12, atol=0)
    assert found.pixel_map is found.levels[-1].mass


def test_each_step_is_a_redistribution_by_gradient_times_activation():
    model, images = Net(), torch.randn(1, 3, 32, 32)
    found = pyramid(model, images, 1, base=None, temperature=0.2, source="hirescam")
    mass = 64 * hirescam(model, images, 1, layer="stages.3").values.double()
    for level in found.levels[1:-1]:
        scores = hirescam(model, images, 1, layer=level.layer).values.double()
        mass = redistribute(mass, scores / scores.max(), temperature=0.2, coarse_is="mass")
        torch.testing.assert_close(level.mass, mass)
    leaf = images.clone().requires_grad_()
    model(leaf)[0, 1].backward()
    scores = (leaf.grad * images).sum(1).relu().double()
    torch.testing.assert_close(found.levels[-1].scores, scores / scores.max())


def test_one_forward_and_one_backward_pass():
    model = Net()
    for count, chunk in ((1, 16), (2, 2)):
        Counted.forwards = Counted.backwards = 0
        found = pyramid(model, torch.randn(3, 3, 32, 32), chunk=chunk)
        assert (Counted.forwards, Counted.backwards) == (count, count)
        assert found.evaluations == 3
    assert found.reason == "the last layer of each resolution (4 x 4, 8 x 8, 16 x 16)"
    assert [level.layer for level in found.levels] == ["stages.3", "stages.2", "stages.1", ""]


def test_the_last_layer_and_the_last_run_of_a_resolution():
    torch.manual_seed(0)
    twice = nn.Conv2d(3, 3, 3, padding=1)
    model = nn.Sequential(
        nn.MaxPool2d(2), nn.Conv2d(3, 3, 3, padding=1), twice, nn.Tanh(), twice, nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )
    images = torch.randn(1, 3, 8, 8)
    found = pyramid(model, images, 0, source="hirescam")
    assert found.levels[0].layer == "2"
    top = hirescam(model, images, 0, layer="2").values.double()
    assert top.any()
    torch.testing.assert_close(found.levels[0].mass, 4 * top)
    asked = pyramid(model, images, 0, layers=["2"], source="hirescam")
    torch.testing.assert_close(asked.levels[0].mass, 4 * top)


def test_layers_by_name_and_module():
    model, images = Net(), torch.randn(2, 3, 32, 32)
    asked = pyramid(model, images, 0, layers=[model.stages[1], "stages.3"])
    assert [level.layer for level in asked.levels] == ["stages.3", "stages.1", ""]
    assert asked.reason == "asked for (4 x 4, 16 x 16)"
    every = pyramid(model, images, 0)
    same = pyramid(model, images, 0, layers=["stages.1", "stages.2", "stages.3"])
    torch.testing.assert_close(same.pixel_map, every.pixel_map, rtol=0, atol=0)


def test_a_layer_asked_for_that_the_target_does_not_see_leaves_an_even_share():
    class Branched(Net):
        def forward(self, x):
            self.aside(x)
            return super().forward(x)

    model = Branched()
    model.aside = nn.Conv2d(3, 2, 4, stride=4)
    found = pyramid(model, torch.randn(1, 3, 32, 32), 0, layers=["aside", "stages.3"], base=None)
    assert not found.levels[1].scores.any()
    top = found.levels[0].mass
    torch.testing.assert_close(found.levels[1].mass, top.repeat_interleave(2, 1).repeat_interleave(2, 2) / 4)


def test_no_positive_evidence():
    model = Net()
    nn.init.constant_(model.head.weight, -1.0)
    found = pyramid(model, torch.randn(1, 3, 32, 32), 0)
    assert not found.pixel_map.any()
    assert "only evidence against the target" in found.notes[0]


def test_bad_arguments():
    model, images = Net(), torch.randn(1, 3, 32, 32)
    cases = [
        ({"layers": "stages.3"}, TypeError, "`layers` must be a list of names or modules; got str"),
        ({"layers": []}, TypeError, "`layers` must be a list of names or modules; got list"),
        ({"layers": ["nowhere"]}, ValueError, "`layer` must name a layer of the model; got 'nowhere'"),
        (
            {"layers": ["stages.0"]},
            ValueError,
            r"`layers` must all run .* got stages.0 of 32",
        ),
        ({"source": "lime"}, ValueError, "`source` must be one of 'gradcam', 'hirescam', 'layercam'"),
        ({"base": "smooth"}, ValueError, "`base` must be one of 'bilinear'"),
        ({"temperature": 0}, ValueError, "`temperature` must be greater than 0"),
    ]
    for settings, kind, message in cases:
        with pytest.raises(kind, match=message):
            pyramid(model, images, **settings)
    model.other = nn.Conv2d(3, 2, 8, stride=8)
    with pytest.raises(ValueError, match=r"`layers` must all run"):
        pyramid(model, images, layers=["other", "stages.3"])
    with pytest.raises(ValueError, match="`model` must have a layer coarser than the picture"):
        pyramid(Net(pools=0), images, 0)
    with pytest.raises(ValueError, match="`model` must have finite activations"):
        pyramid(model, images * float("nan"), 0)
