"""Training: the penalty by hand, the attention it buys, and weights that survive an interruption to the last bit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from experiments.synthetic import checkpoints, training
from experiments.synthetic.networks import mlp
from experiments.synthetic.shapes import Pictures, shapes, split
from experiments.synthetic.sweep import sweep
from experiments.synthetic.training import NORMALISATIONS, attention, evaluated, penalty, trained
from torch import Tensor, nn

TRAIN, VALIDATION, TEST = split(shapes(120, size=32))


def weights(model: nn.Module) -> Tensor:
    return torch.cat([value.flatten() for value in model.state_dict().values()])


# the penalty


def test_the_penalty_by_hand() -> None:
    gradient = torch.tensor([[[1.0, 2.0], [3.0, 0.0]], [[0.0, 0.0], [0.0, 2.0]]])
    background = torch.tensor([[[True, True], [False, False]], [[False, False], [False, True]]])
    wanted = {"sum": (5 + 4) / 2, "mean": (5 / 2 + 4) / 2, "share": (5 / 14 + 1) / 2}
    for name in NORMALISATIONS:
        assert float(penalty(gradient, background, name)) == pytest.approx(wanted[name])


def test_a_gradient_of_zero_costs_nothing() -> None:
    zero, background = torch.zeros(2, 4, 4, requires_grad=True), torch.ones(2, 4, 4, dtype=torch.bool)
    for name in NORMALISATIONS:
        price = penalty(zero, background, name)
        price.backward()
        assert float(price.detach()) == 0
    assert bool(zero.grad.isfinite().all())


def test_only_the_share_ignores_the_scale_of_scores() -> None:
    gradient = torch.randn(3, 8, 8, generator=torch.Generator().manual_seed(0))
    background = torch.ones(3, 8, 8, dtype=torch.bool).tril()
    ratios = {name: float(penalty(10 * gradient, background, name) / penalty(gradient, background, name))
              for name in NORMALISATIONS}  # fmt: skip
    assert ratios == pytest.approx({"sum": 100, "mean": 100, "share": 1})


def test_the_penalty_is_differentiated_through_the_gradient() -> None:
    """Double backward: a linear model's gradient is its weight w, so the penalty's gradient is 2 w outside."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 1, bias=False)).double()
    images = torch.rand(1, 1, 2, 2, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(model(images).sum(), images, create_graph=True)
    background = torch.tensor([[[True, False], [False, True]]])
    penalty(gradient[:, 0], background, "sum").backward()
    own = model[1].weight.detach()
    torch.testing.assert_close(model[1].weight.grad, 2 * own * background.flatten())


# what is measured


def test_attention_by_hand() -> None:
    truths = torch.tensor([[[True, False], [False, False]]] * 2)
    pictures = Pictures(torch.rand(2, 1, 2, 2), truths, torch.tensor([0, 1]), "x")
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    with torch.no_grad():
        model[1].weight.copy_(torch.tensor([[3.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]))
    # 9 of 10 in the first picture; the second's score depends on nothing
    assert attention(model, pictures) == pytest.approx((0.9 + 0) / 2)


# training


def test_the_penalty_moves_attention_into_the_shape(tmp_path: Path) -> None:
    free = trained("mlp", False, TRAIN, VALIDATION, folder=tmp_path, epochs=15, batch=16)
    held = trained("mlp", True, TRAIN, VALIDATION, folder=tmp_path, epochs=15, batch=16, strength=1.0)
    assert evaluated(held.model, TEST)["accuracy"] > 0.9
    assert attention(held.model, TEST) > attention(free.model, TEST) + 0.2
    assert held.record["validation"] == evaluated(held.model, VALIDATION)


def test_the_cnn_trains_with_double_backward(tmp_path: Path) -> None:
    few = TRAIN.pick(slice(24))
    done = trained("cnn", True, few, VALIDATION, folder=tmp_path, epochs=2, batch=8)
    first, last = done.record["epochs"]
    assert last["cross_entropy"] < first["cross_entropy"]
    assert last["penalty"] < first["penalty"]
    assert not done.model.training


class PowerCut(Exception):  # noqa: N818
    """What happens in the middle."""


def test_an_interrupted_training_ends_with_the_same_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = trained("mlp", True, TRAIN, VALIDATION, folder=tmp_path / "whole", epochs=3)
    step, calls = training._step, []

    def failing(*arguments: object) -> tuple[float, float]:
        calls.append(1)
        if len(calls) == 5:  # of 3 steps per epoch: in the second epoch
            raise PowerCut
        return step(*arguments)

    monkeypatch.setattr(training, "_step", failing)
    with pytest.raises(PowerCut):
        trained("mlp", True, TRAIN, VALIDATION, folder=tmp_path / "cut", epochs=3)
    (place,) = (tmp_path / "cut").iterdir()
    assert [file.name for file in place.iterdir()] == [checkpoints.STATE]
    calls.extend([1] * 10)
    resumed = trained("mlp", True, TRAIN, VALIDATION, folder=tmp_path / "cut", epochs=3)
    assert len(calls) == 5 + 10 + 6  # the first epoch is not repeated
    assert torch.equal(weights(resumed.model), weights(whole.model))
    assert [row["penalty"] for row in resumed.record["epochs"]] == [row["penalty"] for row in whole.record["epochs"]]


def test_a_finished_training_is_read_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = trained("mlp", False, TRAIN, VALIDATION, folder=tmp_path, epochs=1)
    (place,) = tmp_path.iterdir()
    assert sorted(file.name for file in place.iterdir()) == [checkpoints.MANIFEST, checkpoints.WEIGHTS]
    assert json.loads((place / checkpoints.MANIFEST).read_text()) == first.record
    monkeypatch.setattr(training, "_step", None)
    again = trained("mlp", False, TRAIN, VALIDATION, folder=tmp_path, epochs=1, strength=7.0)  # which vanilla ignores
    assert again.record == first.record
    assert torch.equal(weights(again.model), weights(first.model))
    assert not torch.equal(weights(first.model), weights(mlp(32)))


def test_every_setting_and_picture_has_its_own_place(tmp_path: Path) -> None:
    changes = ({}, {"seed": 1}, {"strength": 0.2}, {"normalisation": "sum"}, {"warmup": 0.0}, {"rate": 1e-2})
    for change in changes:
        trained("mlp", True, TRAIN.pick(slice(8)), VALIDATION, folder=tmp_path, epochs=1, **change)
    trained("mlp", True, TRAIN.pick(slice(9)), VALIDATION, folder=tmp_path, epochs=1)
    assert len(list(tmp_path.iterdir())) == len(changes) + 1


def test_the_sweep_has_a_row_per_setting(tmp_path: Path) -> None:
    rows = sweep(
        "mlp", size=32, count=18, folder=tmp_path, epochs=2, strengths=(0.0, 1.0), normalisations=("sum", "share")
    )
    assert [(row["normalisation"], row["strength"]) for row in rows] == [
        ("sum", 0.0), ("sum", 1.0), ("share", 0.0), ("share", 1.0)
    ]  # fmt: skip
    # the first epoch, of one step here, only warms up
    assert rows[0]["attention"] == rows[2]["attention"] != rows[3]["attention"]


def test_bad_settings(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"`kind` and `normalisation` must .*; got 'cnn' and 'median'"):
        trained("cnn", True, TRAIN, VALIDATION, folder=tmp_path, normalisation="median")
    assert list(tmp_path.iterdir()) == []
