"""The installed Quantus, with our explanation function in its metrics."""

from __future__ import annotations

import importlib
import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from skimage import data, transform
from torch import nn

import usu
from tests.integrations.grad_cam_oracle import QUICK
from usu.errors import UsuWarning
from usu.integrations.quantus import explain_func

TARGETS = np.array([4, 1])


@pytest.fixture(scope="module")
def pictures() -> np.ndarray:
    pixels = [transform.resize(getattr(data, name)(), (48, 48), anti_aliasing=True) for name in ("chelsea", "coffee")]
    return np.stack(pixels).transpose(0, 3, 1, 2)


@pytest.fixture
def net() -> nn.Module:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 5, stride=4, padding=2), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2, padding=1),
        nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 6),
    ).eval()  # fmt: skip
    with torch.no_grad():  # evidence for the classes asked for
        net[3].bias.fill_(0.5)
        net[7].weight.abs_()
    return net


def quiet(metric_class, **settings):
    return metric_class(disable_warnings=True, display_progressbar=False, **settings)


@pytest.mark.parametrize("metric", ["Sparseness", "PixelFlipping"])
def test_a_metric_explains_with_it(quantus, net, pictures, metric):
    settings = {"features_in_step": 48} if metric == "PixelFlipping" else {}
    explained = explain_func(preset=QUICK)
    before = [(m.training, len(m._forward_hooks)) for m in net.modules()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Quantus' own
        through = quiet(getattr(quantus, metric), **settings)(
            net, pictures, TARGETS, explain_func=explained, device="cpu", channel_first=True
        )
        ready = quiet(getattr(quantus, metric), **settings)(
            net, pictures, TARGETS, a_batch=explained(net, pictures, TARGETS), device="cpu", channel_first=True
        )
        coarse = usu.gradcam(net, torch.tensor(pictures, dtype=torch.float32), TARGETS).values
        smooth = quiet(getattr(quantus, metric), **settings)(
            net, pictures, TARGETS, a_batch=usu.interpolate(coarse, (48, 48), "bilinear").numpy()[:, None],
            device="cpu", channel_first=True,
        )  # fmt: skip
    np.testing.assert_allclose(np.asarray(through, dtype=float), np.asarray(ready, dtype=float))
    assert np.isfinite(np.asarray(through, dtype=float)).all()
    assert not np.allclose(np.asarray(through, dtype=float), np.asarray(smooth, dtype=float))
    assert before == [(m.training, len(m._forward_hooks)) for m in net.modules()]


def test_evaluate_takes_it(quantus, net, pictures):
    """quantus.evaluate hands the name of the method over, and whatever its users have in `explain_func_kwargs`."""
    explained = explain_func(preset=QUICK)
    metric = quiet(quantus.Sparseness)
    settings = {"device": "cpu", "img_size": 48, "nr_channels": 3}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = quantus.evaluate(
            {"sparse": metric}, {"usu": explained}, net, pictures, TARGETS, explain_func_kwargs=settings
        )
        wanted = metric(net, pictures, TARGETS, a_batch=explained(net, pictures, TARGETS))
    np.testing.assert_allclose(found["usu"]["sparse"], wanted)


def test_a_metric_that_randomises_the_model(quantus, net, pictures):
    """Copies of the model with other weights are handed over; the layer is found in them by its name."""
    models: list[nn.Module] = []

    def signed(model, images, classes):
        models.append(model)
        return usu.gradcam(model, images, classes, layer="3", relu=False).values

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quiet(quantus.MPRT, layer_order="bottom_up", seed=0, return_average_correlation=True)(
            net, pictures, TARGETS, explain_func=explain_func(signed, preset="fast"), device="cpu", channel_first=True
        )
    assert len({id(model) for model in models}) > 1


def test_shape_values_and_mass(net, pictures):
    images = torch.tensor(pictures, dtype=torch.float32)
    coarse = usu.gradcam(net, images, TARGETS.tolist()).values
    found = explain_func(preset=QUICK)(net, pictures, TARGETS)
    assert isinstance(found, np.ndarray)
    assert found.shape == (2, 1, 48, 48)
    cells = found.reshape(2, 6, 8, 6, 8).sum((2, 4))
    np.testing.assert_allclose(cells, coarse.numpy() * 64, atol=1e-5 * float(coarse.max()) * 64)
    for index, target in enumerate(TARGETS.tolist()):
        alone = usu.upsample(coarse[index], images[index], net, target, preset=QUICK).pixel_map
        np.testing.assert_allclose(found[index, 0], alone.numpy(), atol=1e-6 * float(alone.max()))
    even = explain_func(preset=replace(usu.PRESETS["cell"], parts=1, base=None, evaluations=4))
    nearest = nn.functional.interpolate(coarse[:, None], (48, 48), mode="nearest-exact").numpy()
    np.testing.assert_allclose(even(net, pictures, TARGETS), nearest, atol=1e-6 * nearest.max())


def test_a_source_of_ones_own(net, pictures):
    asked = []

    def corner(model, images, classes):
        asked.append((model, images.dtype, classes))
        return np.array([[[1.0, 0.0], [0.0, -1.0]]] * 2)

    found = explain_func(corner, preset=QUICK)(model=net, inputs=pictures, targets=TARGETS)
    assert asked == [(net, torch.float32, [4, 1])]
    assert found[0, 0, :24, :24].sum() == pytest.approx(576)
    assert found[0, 0, 24:, 24:].sum() == pytest.approx(-576)
    assert 0 < found[0, 0, :24, 24:].sum() < 1e-12 * 576, "an empty cell has no more than a trace"


def test_under_no_grad_and_in_training_mode(net, pictures):
    wanted = explain_func(preset=QUICK)(net, pictures, TARGETS)
    net.train()
    with torch.no_grad():
        found = explain_func(preset=QUICK)(net, pictures, TARGETS)
    assert net.training
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.filterwarnings("ignore:The coarse map:usu.errors.UsuWarning")
def test_an_all_negative_map_is_said(net, pictures):
    with torch.no_grad():
        net[7].weight[2] = -1.0
    with pytest.warns(UsuWarning, match=r"Picture 1: the layer holds only evidence against the target"):
        found = explain_func(preset=QUICK)(net, pictures, np.array([4, 2]))
    assert np.abs(found[1]).max() == 0 < np.abs(found[0]).max()


def test_mistakes_are_named(net, pictures):
    with pytest.raises(ValueError, match="`source`"):
        explain_func("grad-cam")
    with pytest.raises(ValueError, match=r"`inputs` .* got 2 x 48"):
        explain_func()(net, pictures[:, 0], TARGETS)
    with pytest.raises(ValueError, match=r"`targets` .* got 1"):
        explain_func()(net, pictures, TARGETS[:1])


def test_quantus_itself_is_not_needed(net, pictures, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "quantus"] + ["quantus"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "usu.integrations.quantus")
    again = importlib.import_module("usu.integrations.quantus")
    assert again.explain_func(preset="fast")(net, pictures, TARGETS).shape == (2, 1, 48, 48)
