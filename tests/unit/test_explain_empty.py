"""A source that finds nothing for the target: what is known is shown instead, and everything says so."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import usu
from tests.chosen import chosen
from tests.small_nets import Tower, seeded
from usu.errors import UsuWarning

IMAGE = torch.rand(1, 16, 16, generator=torch.Generator().manual_seed(2)) + 0.1


class Bright(nn.Module):
    """Classes that weigh the mean brightness; the classes' weights are the last layer's."""

    def __init__(self, *weights: float, biases: tuple[float, ...] | None = None) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 1, 4, stride=4, bias=False)
        self.head = nn.Linear(1, len(weights))
        with torch.no_grad():
            self.conv.weight.fill_(1.0)
            self.head.weight.copy_(torch.tensor(weights)[:, None])
            self.head.bias.copy_(torch.tensor(biases or [0.0] * len(weights)))
        self.seen = 0

    def forward(self, x: Tensor) -> Tensor:
        self.seen += len(x)
        return self.head(self.conv(x).relu().mean((2, 3)))


def explained(net: nn.Module, target: int | None, **more: object) -> usu.Explanation:
    return usu.explain(net, IMAGE, target, **{"preset": chosen("soft", parts=9), "evaluations": 12, **more})


@pytest.mark.parametrize("preset", [chosen("soft", parts=9), chosen("cell", parts=9)])
def test_evidence_against_the_target_is_shown_where_there_is_no_other(preset, tmp_path: Path) -> None:
    with pytest.warns(UsuWarning, match=r"only evidence against the target.*Shown instead: the evidence against"):
        found = explained(Bright(1.0, -1.0), 1, preset=preset)
    assert found.instead == "the evidence against the target"
    signed = found.source.signed[0].numpy()
    np.testing.assert_array_equal(found.coarse, signed)
    assert (found.pixel_map <= 0).all()
    assert found.pixel_map.sum() == pytest.approx(16 * signed.sum(), rel=1e-5)
    assert not found.source.values.any(), "what the source said is kept"
    manifest = json.loads((found.save(tmp_path / "out") / "manifest.json").read_text())
    assert manifest["instead"] == found.instead
    assert "Shown instead" in manifest["source"]["notes"][0]
    assert found.instead in found.figure().get_suptitle()


@pytest.mark.parametrize("preset", [chosen("soft", parts=9), chosen("cell", parts=9), chosen("paper", parts=9)])
def test_otherwise_the_scores_alone_decide(preset) -> None:
    """Class 1 is what is left when class 0 is not: its layer has no gradient, and yet parts of the picture matter."""
    with pytest.warns(UsuWarning, match="does not depend on this layer.*Shown instead: the scores alone"):
        found = explained(Bright(1.0, 0.0), 1, preset=preset, evaluations=None if preset.name == "paper" else 12)
    assert found.instead.startswith("the scores alone")
    np.testing.assert_array_equal(found.coarse, np.ones((4, 4)))
    assert found.pixel_map.sum() == pytest.approx(256)
    assert found.pixel_map.std() > 0 or found.upsampled.scores.std() == 0
    assert found.manifest()["instead"] == found.instead
    assert "the scores alone" in found.figure().get_suptitle()


class Beside(Bright):
    """The second class reads a finer layer and passes the coarse one by."""

    def __init__(self) -> None:
        super().__init__(1.0, 0.0)
        self.fine = nn.Conv2d(1, 1, 2, stride=2, bias=False)
        with torch.no_grad():
            self.fine.weight.fill_(1.0)

    def forward(self, x: Tensor) -> Tensor:
        fine = self.fine(x)
        return super().forward(x) + torch.stack([0 * fine.mean((1, 2, 3)), fine[:, 0, :, :4].mean((1, 2))], 1)


def test_without_scores_the_finer_layers_decide() -> None:
    with pytest.warns(UsuWarning, match="Shown instead: the finer layers alone"):
        found = explained(Beside(), 1, preset="fast", layer="conv", evaluations=None)
    assert found.pixel_map[:, :6].min() > found.pixel_map[:, 10:].max()


def test_with_neither_zero_stays() -> None:
    tower = seeded(Tower)
    with torch.no_grad():
        tower.head.weight[2] = 0
    image = torch.rand(3, 32, 32, generator=torch.Generator().manual_seed(4))
    with pytest.warns(UsuWarning, match="zero everywhere"):
        found = usu.explain(tower, image, 2, preset="fast")
    assert found.instead is None, "the finer layers know nothing either"
    assert not found.pixel_map.any()


def test_a_map_of_zeros_from_elsewhere_is_treated_alike() -> None:
    with pytest.warns(UsuWarning, match=r"^The coarse map is zero everywhere\. Shown instead: the scores alone"):
        found = explained(Bright(1.0, 0.0), 0, source=np.zeros((4, 4)))
    assert found.pixel_map.sum() == pytest.approx(256)


def test_a_map_with_evidence_says_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = explained(Bright(1.0, -1.0), 0)
    assert found.instead is None
    assert found.manifest()["instead"] is None
    assert "instead" not in found.figure().get_suptitle()


@pytest.mark.parametrize(
    ("target", "top", "warned"),
    [(6, 9.0, True), (5, 9.0, True), (4, 9.0, False), (0, 9.0, False), (None, 9.0, False), (6, 3.0, False)],
)
def test_a_target_that_the_model_finds_all_but_impossible_is_said(target, top: float, warned: bool) -> None:
    """Two conditions: a probability below 1e-3, and five likelier classes."""
    biases = (top, 1.0, 0.5, 0.0, -0.5, -1.0, -1.5)
    net = Bright(*[1.0] * 7, biases=biases)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = explained(net, target)
    index = 0 if target is None else target
    exact = torch.softmax(torch.tensor(biases).double(), 0)[index]
    assert found.source.probabilities == (pytest.approx(float(exact), rel=1e-5),)
    assert found.source.goals[0].likelier == sum(bias > biases[index] for bias in biases)
    assert [f"class {index} a probability of" in str(one.message) for one in said] == [True] * warned
    assert any("a probability of" in note for note in found.manifest()["source"]["notes"]) == warned


def test_knowing_the_probability_costs_nothing() -> None:
    net = Bright(*[1.0] * 7, biases=(20.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0))
    with pytest.warns(UsuWarning, match="likelier"):
        found = explained(net, 6)
    assert net.seen == found.upsampled.evaluations + found.source.evaluations == 12 + 1


def test_probabilities_are_known_of_logits_wherever_they_are_and_not_of_callables() -> None:
    net = Bright(1.0, 0.0)
    chances = nn.Sequential(net, nn.Softmax(1))
    exact = net(IMAGE[None]).softmax(1)[0, 0].item()
    assert usu.gradcam(chances, IMAGE[None], 0).probabilities == (pytest.approx(exact, rel=1e-6),)
    wrapped = Bright(1.0, 0.0)
    wrapped.register_forward_hook(lambda _module, _given, output: {"logits": output})
    assert usu.gradcam(wrapped, IMAGE[None], 0).probabilities == (pytest.approx(exact, rel=1e-6),)
    assert usu.gradcam(net, IMAGE[None], lambda output: output[:, 0]).probabilities == ()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_models_of_half_precision_are_explained(dtype: torch.dtype, tmp_path: Path) -> None:
    tower = seeded(Tower)
    image = torch.rand(3, 32, 32, generator=torch.Generator().manual_seed(4))
    full = usu.explain(tower, image, 1, source="layercam", preset=chosen("soft", parts=9), evaluations=24)
    tower.to(dtype)
    half = usu.explain(tower, image.to(dtype), 1, source="layercam", preset=chosen("soft", parts=9), evaluations=24)
    assert half.pixel_map.dtype == np.float64
    assert np.isfinite(half.pixel_map).all()
    assert half.upsampled.mass_error < 1e-12
    assert np.corrcoef(half.pixel_map.ravel(), full.pixel_map.ravel())[0, 1] > 0.8
    half.save(tmp_path / "out")
    coarse = usu.gradcam(tower, image.to(dtype)[None], 1, relu=False)
    for given in (coarse, coarse.values[0].abs()):
        made = usu.upsample(given, image.to(dtype), tower, 1, preset=chosen("cell", parts=9), evaluations=12)
        assert made.pixel_map.dtype == dtype
        assert made.pixel_map.isfinite().all()
