"""All other CAMs of pytorch-grad-cam, their options, and what becomes of several layers; on a small network."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tests.chosen import PLAIN, chosen
from tests.integrations.grad_cam_oracle import (
    EVEN,
    QUICK,
    assert_close,
    cell_sums,
    library_maps,
    nearest,
    small_network,
    small_pictures,
)  # fmt: skip
from usu import PRESETS, SoftPrior, upsample
from usu.errors import UsuWarning
from usu.integrations._layered import for_display, upsample_layers
from usu.integrations.pytorch_grad_cam import SOURCES, coarse_maps, source, wrap

METHODS = (
    "GradCAM", "HiResCAM", "GradCAMPlusPlus", "XGradCAM", "ShapleyCAM", "FinerCAM", "LayerCAM", "EigenCAM", "ScoreCAM",
    "AblationCAM", "GradCAMElementWise", "EigenGradCAM", "SegEigenCAM", "FEM", "KPCA_CAM", "RandomCAM",
)  # fmt: skip
SIZE = (24, 24)
#: The fast preset without what makes it one.
BILINEAR = replace(PRESETS["fast"], base="bilinear")


def made(package: Any, method: str, *layers: int, seed: int = 0) -> Any:
    model = small_network(seed)
    return getattr(package, method)(model, [model[i] for i in layers or (6,)])


@pytest.mark.parametrize("layers", [(6,), (2, 6)], ids=["one", "two"])
@pytest.mark.parametrize("method", METHODS)
def test_constant_scores_give_the_raw_map(pytorch_grad_cam, method, layers):
    if not hasattr(pytorch_grad_cam, method):
        pytest.skip("this version does not have it")
    cam = wrap(made(pytorch_grad_cam, method, *layers), scale="mass", preset=EVEN)
    state = np.random.get_state()
    raw = library_maps(cam.cam, small_pictures())
    np.random.set_state(state)  # of RandomCAM
    assert [m.shape for m in raw] == [(2, 12, 12), (2, 6, 6)][-len(layers) :]
    for mine, theirs in zip(coarse_maps(cam.cam, small_pictures()), raw, strict=True):
        assert_close(mine, theirs)
    np.random.set_state(state)
    assert_close(cam(small_pictures()), np.mean([nearest(m, SIZE) for m in raw], axis=0))
    assert cam.last.evaluations == 2 * EVEN.evaluations, "the scores of several layers are asked for once"
    assert cam.last.provenance["source"] == {"cam": method, "layers": [m.shape[1:] for m in raw]}


@pytest.mark.parametrize("method", ["GradCAM", "LayerCAM", "FinerCAM", "HiResCAM", "ShapleyCAM"])
def test_eigen_smooth(pytorch_grad_cam, method):
    cam = made(pytorch_grad_cam, method)
    (plain,), (smooth,) = (library_maps(cam, small_pictures(), eigen_smooth=on) for on in (False, True))
    (ours,) = coarse_maps(cam, small_pictures(), eigen_smooth=True)
    assert_close(ours, smooth)
    assert not np.allclose(smooth, plain)


def test_aug_smooth_is_the_mean_of_raw_maps_turned_back(pytorch_grad_cam):
    cam = made(pytorch_grad_cam, "GradCAM", 2, 6)
    images, targets = small_pictures(), [pytorch_grad_cam.utils.model_targets.ClassifierOutputTarget(c) for c in (1, 3)]
    wanted: list[list[np.ndarray]] = [[], []]
    for flip in (False, True):
        for factor in (0.9, 1, 1.1):
            for i, m in enumerate(library_maps(cam, (images.flip(-1) if flip else images) * factor, targets)):
                wanted[i].append(m[:, :, ::-1] if flip else m)
    for ours, theirs in zip(coarse_maps(cam, images, targets, aug_smooth=True), wanted, strict=True):
        assert_close(ours, np.mean(theirs, axis=0))
        assert not np.allclose(ours, theirs[1])


def test_augmented_pictures_do_not_choose_their_own_class(pytorch_grad_cam):
    torch.manual_seed(0)
    sides = torch.nn.Sequential(torch.nn.Conv2d(3, 2, 1), torch.nn.AdaptiveAvgPool2d(2), torch.nn.Flatten())
    model = torch.nn.Sequential(*sides, torch.nn.Linear(8, 2))
    for layer in (model[0], model[3]):
        torch.nn.init.zeros_(layer.bias)
    cam = pytorch_grad_cam.GradCAM(model, [model[0]])
    images = small_pictures(40)
    with torch.no_grad():
        own, dark = cam.model(images).argmax(1), cam.model(images.flip(-1) * 0.9).argmax(1)
    torn = (own != dark).nonzero().flatten()[:1]
    assert len(torn) == 1, "choose other pictures: none changes its class"
    (ours,) = coarse_maps(cam, images[torn], aug_smooth=True)
    (fixed,) = coarse_maps(cam, images[torn], [int(own[torn])], aug_smooth=True)
    assert np.array_equal(ours, fixed)


def test_transforms_that_change_the_size_are_refused(pytorch_grad_cam):
    same, double = (
        SimpleNamespace(augment_image=lambda x, n=n: x.repeat(1, 1, n, n), deaugment_mask=lambda m: m) for n in (1, 2)
    )
    cam = made(pytorch_grad_cam, "GradCAM")
    cam.tta_transforms = [same, double]
    with pytest.raises(ValueError, match="`tta_transforms`"):
        coarse_maps(cam, small_pictures(), aug_smooth=True)


def test_finercam_options(pytorch_grad_cam):
    model = small_network()
    cam, images = pytorch_grad_cam.FinerCAM(model, [model[6]]), small_pictures()
    options = {"alpha": 0.6, "comparison_categories": [2, 4], "target_idx": 3}
    assert_close(coarse_maps(cam, images, **options)[0], library_maps(cam, images, **options)[0])
    assert not np.allclose(coarse_maps(cam, images, **options)[0], coarse_maps(cam, images)[0])
    with pytest.raises(ValueError, match=r"`alpha` .* got it for GradCAM"):
        coarse_maps(made(pytorch_grad_cam, "GradCAM"), images, alpha=0.5)
    with pytest.raises(ValueError, match=r"`target_idx` .* got it for FinerCAM with targets"):
        wrap(cam)(images, [1, 2], target_idx=3)


def test_finercam_scores_what_it_explains(pytorch_grad_cam):
    model = small_network()
    cam = wrap(pytorch_grad_cam.FinerCAM(model, [model[6]]), preset=QUICK, scale="mass")
    images = small_pictures(1)
    ours = cam(images)
    (target,) = library_targets(cam.cam, images)
    (raw,) = coarse_maps(cam.cam, images)
    wanted = upsample_layers(
        [torch.from_numpy(raw)],
        images,
        model,
        lambda logits: torch.stack([target(row) for row in logits]),
        QUICK,
    )
    assert np.array_equal(ours, wanted.pixel_map.numpy())
    assert cam.last.provenance["target"] == ("FinerWeightedTarget",)


def library_targets(cam: Any, images: torch.Tensor) -> list[Any]:
    found: list[Any] = []
    compute = cam.base_cam.compute_cam_per_layer

    def spy(pictures: torch.Tensor, targets: list[Any], smooth: bool) -> Any:
        found.extend(targets)
        return compute(pictures, targets, smooth)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cam.base_cam, "compute_cam_per_layer", spy)
        cam(images)
    return found


def test_refinecam_multiplies_unit_maps(pytorch_grad_cam):
    if not hasattr(pytorch_grad_cam, "RefineCAM"):
        pytest.skip("this version does not have it")
    model = small_network()
    layers = [model[2], model[6]]
    cam = wrap(pytorch_grad_cam.RefineCAM(model, layers), preset=EVEN)
    raw = [library_maps(base, small_pictures())[0] for base in cam.cam.base_cam_per_layer]
    units = []
    for m in raw:
        field = nearest(np.maximum(m, 0), SIZE)
        low, high = field.min((1, 2), keepdims=True), field.max((1, 2), keepdims=True)
        units.append((field - low) / (high - low))
    product = units[0] * units[1]
    assert_close(cam(small_pictures()), for_display(torch.from_numpy(product)).numpy())
    for base in cam.cam.base_cam_per_layer:
        assert base.activations_and_grads.activations == [], "one layer's pass is not stored by the others"
    # the library hands eigen_smooth on in the place of aug_smooth
    for base, ours in zip(
        cam.cam.base_cam_per_layer, coarse_maps(cam.cam, small_pictures(), eigen_smooth=True), strict=True
    ):
        assert_close(ours, library_maps(base, small_pictures(), eigen_smooth=True)[0])
    with cam:
        pass
    assert not model[2]._forward_hooks
    with pytest.raises(ValueError, match="`scale`"):
        wrap(cam.cam, scale="mass")


def test_fullgrad_smoothed_is_the_librarys_projection(pytorch_grad_cam):
    import pytorch_grad_cam.fullgrad_cam as module

    cam, images, found = made(pytorch_grad_cam, "FullGrad"), small_pictures(), []
    project = module.get_2d_projection
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "get_2d_projection", lambda stack: found.append(project(stack)) or found[-1])
        cam(images, None, eigen_smooth=True)
    (ours,) = coarse_maps(cam, images, eigen_smooth=True)
    assert ours.shape == (2, 3, 3)
    assert_close(ours, found[0], 1e-5)


def test_fullgrad_sums_its_layers_and_unused_ones_change_nothing(pytorch_grad_cam):
    cam = made(pytorch_grad_cam, "FullGrad")
    maps = coarse_maps(cam, small_pictures())
    assert [m.shape[1:] for m in maps] == [(24, 24), (12, 12), (12, 12), (6, 6), (6, 6)]
    assert all((m >= 0).all() and m.max() > 0 for m in maps)
    ours = wrap(cam, scale="mass", preset=QUICK)(small_pictures())
    total = sum((m * cell_sums(np.ones((1, *SIZE)), m.shape[1:])).sum((1, 2)) for m in maps)
    np.testing.assert_allclose(ours.sum((1, 2)), total, rtol=1e-5)

    class Half(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = small_network(), torch.nn.Conv2d(3, 1, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.used(x)

    half = Half()
    alone, beside = (coarse_maps(pytorch_grad_cam.FullGrad(net, []), small_pictures()) for net in (half.used, half))
    assert all(np.array_equal(one, other) for one, other in zip(alone, beside, strict=True))


@pytest.mark.parametrize("preset", ["cell", "soft", "paper", "fast"])
def test_presets_keep_their_promises_over_several_layers(pytorch_grad_cam, preset):
    own = {"paper": "paper", "fast": "fast"}
    settings = own.get(preset) or replace(PRESETS[preset], evaluations=12, parts=9)
    cam = wrap(made(pytorch_grad_cam, "GradCAM", 2, 6), scale="mass", preset=settings)
    ours = cam(small_pictures())
    maps = coarse_maps(cam.cam, small_pictures())
    assert cam.last.mass_error <= 1e-6
    # the two layers' masses in the coarser cells, 4 x 4 pixels each
    wanted = (cell_sums(maps[0], (6, 6)) * 4 + maps[1] * 16) / 2
    if preset in ("soft", "fast"):
        np.testing.assert_allclose(ours.sum((1, 2)), wanted.sum((1, 2)), atol=1e-5 * np.abs(wanted).sum())
        assert np.abs(cell_sums(ours, (6, 6)) - wanted).max() > 0.01 * np.abs(wanted).max(), "these move mass"
    else:
        assert_close(cell_sums(ours, (6, 6)), wanted)
    assert not np.allclose(ours, np.mean([nearest(m, SIZE) for m in maps], axis=0), atol=1e-3 * np.abs(ours).max())


@pytest.mark.parametrize("preset", ["cell", "soft", "paper"])
def test_twice_the_same_layer_is_that_layer_upsampled(preset):
    plain = {} if preset == "paper" else {**PLAIN, "evaluations": 60}
    settings = chosen(preset, parts=16, **plain)
    torch.manual_seed(0)
    layer, image = torch.randn(1, 2, 2), torch.rand(1, 3, 32, 32)
    weights = torch.randn(3, 32, 32)
    model = lambda batch: (batch * weights).sum((1, 2, 3))[:, None]  # noqa: E731
    ours = upsample_layers([layer, layer], image, model, 0, settings)
    base = "bilinear" if settings.base == "layers" else settings.base  # several maps are the layers themselves
    alone = upsample(layer, image, model, 0, preset=replace(settings, base=base))
    assert float(layer.min()) < 0 < float(layer.max())
    torch.testing.assert_close(ours.pixel_map, alone.pixel_map)
    assert ours.evaluations == alone.evaluations


def test_without_scores_layers_follow_finer_ones(pytorch_grad_cam):
    """The fast preset: a coarse target layer follows a finer one; layers of one size follow the model's finer layer."""
    images = small_pictures()
    cam = wrap(made(pytorch_grad_cam, "GradCAM", 2, 6), scale="mass", preset="fast")
    model, (fine, coarse) = cam.cam.model, coarse_maps(cam.cam, images, [1, 3])
    assert (coarse.shape, fine.shape) == ((2, 6, 6), (2, 12, 12))
    smooth = [upsample(m, images, model, [1, 3], preset=BILINEAR).pixel_map for m in (coarse, fine)]
    led = upsample(coarse, images, model, [1, 3], preset="fast", finer=[fine]).pixel_map
    assert_close(cam(images, [1, 3]), (led + smooth[1]) / 2)
    assert np.abs(led - smooth[0]).max() > 0.05 * np.abs(led).max()
    assert cam.last.evaluations == 0

    cam = wrap(made(pytorch_grad_cam, "GradCAM", 4, 6), scale="mass", preset="fast")
    ours, maps = cam(images, [1, 3]), coarse_maps(cam.cam, images, [1, 3])
    parts = [upsample(m, images, cam.cam.model, [1, 3], preset="fast") for m in maps]
    assert_close(ours, (parts[0].pixel_map + parts[1].pixel_map) / 2)
    assert cam.last.evaluations == 4, "one pass per layer and picture"
    with pytest.raises(ValueError, match=r"`model` .* finer"):
        wrap(made(pytorch_grad_cam, "GradCAM", 1, 2), preset="fast")(images)


def test_nothing_to_redistribute_costs_nothing():
    layers = [torch.tensor([[[0.0]], [[0.0]]]), torch.tensor([[[0.0, 0.0]], [[0.0, 1.0]]])]
    images = torch.rand(2, 1, 8, 8)
    with pytest.warns(UsuWarning, match="picture 0 is zero everywhere"):
        found = upsample_layers(
            layers, images, lambda x: x.sum((1, 2, 3))[:, None], 0, replace(PRESETS["cell"], evaluations=10)
        )
    assert found.evaluations == 10
    assert not found.pixel_map[0].any()
    assert float(found.pixel_map[1].sum()) == pytest.approx(16)


def test_a_wrong_mass_is_measured(monkeypatch):
    from usu.integrations import _layered

    layers, image = [torch.rand(1, 3, 3) + 1, torch.rand(1, 2, 2) + 1], torch.rand(1, 1, 12, 12)
    exact = _layered.map_of
    monkeypatch.setattr(_layered, "map_of", lambda *args, **settings: 1.25 * exact(*args, **settings))
    for budget in ("cell", "iwmr", SoftPrior()):
        settings = replace(QUICK, budget=budget)
        found = upsample_layers(layers, image, lambda x: x.sum((1, 2, 3))[:, None], 0, settings)
        assert found.mass_error == pytest.approx(0.25, rel=1e-4)
    wrong = replace(found, mass_error=0.5, pixel_map=torch.ones(1, 12, 12))
    monkeypatch.setattr(_layered, "upsample", lambda *args, **settings: wrong)
    assert upsample_layers(layers[:1], image, lambda x: x, 0, QUICK).mass_error == 0.5


@pytest.mark.parametrize("method", ["GradCAM", "FinerCAM", "EigenCAM", "AblationCAM", "RefineCAM"])
@pytest.mark.parametrize("targets", [None, [1, 3]])
def test_a_model_in_bfloat16(pytorch_grad_cam, method, targets):
    images = small_pictures()
    models = small_network(), small_network().bfloat16()
    wide, narrow = (wrap(getattr(pytorch_grad_cam, method)(m, [m[6]]), preset=QUICK) for m in models)
    hooks = [list(module._forward_hooks) for module in models[1].modules()]
    ours, wanted = narrow(images.bfloat16(), targets), wide(images, targets)
    assert hooks == [list(module._forward_hooks) for module in models[1].modules()]
    assert np.corrcoef(ours.ravel(), wanted.ravel())[0, 1] > 0.95
    assert narrow.last.mass_error < 1e-5


@pytest.mark.parametrize("method", ["ShapleyCAM", "ScoreCAM"])
def test_bfloat16_where_the_library_cannot(pytorch_grad_cam, method):
    model = small_network().bfloat16()
    cam = wrap(getattr(pytorch_grad_cam, method)(model, [model[6]]), preset=QUICK)
    with pytest.raises(TypeError, match=rf"`input_tensor` must not be bfloat16 for {method}"):
        cam(small_pictures().bfloat16(), [1, 3])


@pytest.mark.parametrize("name", SOURCES)
def test_a_method_as_a_source(pytorch_grad_cam, name):
    model, image = small_network(0), small_pictures()[0]
    found = source(name)(model, image, 1, "6")
    assert found.values.shape[1:] == source("GradCAM")(model, image, 1, "6").values.shape[1:]
    assert bool((found.values >= 0).all())
    assert (found.targets, found.layer) == ((1,), "6")
    if name not in ("FullGrad", "FinerCAM"):
        cam = getattr(pytorch_grad_cam, SOURCES[name])(model, [model[6]])
        with wrap(cam):
            (raw,) = coarse_maps(cam, image[None], [1])
        np.testing.assert_allclose(found.values.numpy(), np.maximum(raw, 0), atol=1e-6)
    assert not any(module._forward_hooks for module in model.modules())


def test_fullgrad_pairs_every_bias_with_its_layer(pytorch_grad_cam):
    """The package takes the order in which layers were made; here the last one made runs first."""

    class Branched(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.main, self.shortcut = torch.nn.Conv2d(3, 4, 3, 2, 1), torch.nn.Conv2d(3, 4, 1, 2)
            self.head = torch.nn.Linear(4, 2)

        def forward(self, x):
            kept = self.shortcut(x)
            return self.head((self.main(x) + kept).relu().mean((2, 3)))

    torch.manual_seed(0)
    model, image = Branched().eval(), torch.rand(3, 8, 8)
    with torch.no_grad():
        model.shortcut.bias.fill_(0.0)
        model.main.bias.fill_(1.0)
    found = source("FullGrad")(model, image, 1, "main").values[0]
    leaf = image[None].clone().requires_grad_()
    main, kept = model.main(leaf), model.shortcut(leaf)
    logit = model.head((main + kept).relu().mean((2, 3)))[0, 1]
    by_picture, by_main = torch.autograd.grad(logit, [leaf, main])
    wanted = torch.nn.functional.adaptive_avg_pool2d((by_picture * leaf).abs().sum(1), 4)[0] + by_main.abs().sum(1)[0]
    torch.testing.assert_close(found, wanted.double(), rtol=1e-4, atol=1e-6)
    _, of_kept, of_main = coarse_maps(pytorch_grad_cam.FullGrad(model, []), image[None], [1])
    assert not of_kept.any(), "the shortcut's bias is zero"
    assert_close(of_main, by_main.abs().sum(1).numpy(), 1e-5)


def test_an_unknown_method_is_refused():
    with pytest.raises(ValueError, match="`source` must be"):
        source("GradCMA")
