"""The installed torchcam's extractors, wrapped: called as before, mass kept, metrics none the wiser."""

from __future__ import annotations

import gc
from dataclasses import replace
from functools import partial

import pytest
import torch
from skimage import data, transform
from torch import nn

import usu
from tests.integrations.grad_cam_oracle import QUICK
from usu.errors import UsuWarning
from usu.integrations import torchcam
from usu.integrations.torchcam import wrap
from usu.segment import Tiles

methods = pytest.importorskip("torchcam.methods")
metrics = pytest.importorskip("torchcam.metrics")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:torchcam")

#: One segment has one score, and without a base measure nothing else tells pixels apart.
EVEN = replace(usu.PRESETS["cell"], parts=1, base=None, evaluations=4)
SIZE = (48, 60)
CLASSES = [4, 1]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.early = nn.Sequential(nn.Conv2d(3, 6, 5, stride=4, padding=2), nn.BatchNorm2d(6), nn.ReLU())
        self.late = nn.Sequential(nn.Conv2d(6, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.head = nn.Linear(8, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.late(self.early(x)).mean((2, 3)))


@pytest.fixture
def net() -> nn.Module:
    torch.manual_seed(0)
    net = Net().eval()
    with torch.no_grad():
        net.head.weight.mul_(10)
    return net


@pytest.fixture(scope="module")
def images() -> torch.Tensor:
    pixels = [transform.resize(getattr(data, name)(), SIZE, anti_aliasing=True) for name in ("chelsea", "coffee")]
    return torch.stack([torch.tensor(p, dtype=torch.float32).permute(2, 0, 1) for p in pixels])


EXTRACTORS = {
    "CAM": lambda net: methods.CAM(net, "late", fc_layer="head"),
    "GradCAM": lambda net: methods.GradCAM(net, "late"),
    "GradCAMpp": lambda net: methods.GradCAMpp(net, "late"),
    "XGradCAM": lambda net: methods.XGradCAM(net, "late"),
    "LayerCAM": lambda net: methods.LayerCAM(net, ["early", "late"]),
    "ScoreCAM": lambda net: methods.ScoreCAM(net, "late"),
    "SmoothGradCAMpp": lambda net: methods.SmoothGradCAMpp(net, "late"),
    "RefineCAM": lambda net: methods.RefineCAM(net, ["early", "late"], base_method=methods.LayerCAM),
    "FinerCAM": lambda net: methods.FinerCAM(net, "late"),
}


def nearest(coarse: torch.Tensor) -> torch.Tensor:
    return nn.functional.interpolate(coarse[:, None], SIZE, mode="nearest-exact")[:, 0]


def state(net: nn.Module) -> list[object]:
    modules = [(m.training, list(m._forward_hooks.items()), list(m._forward_pre_hooks.items())) for m in net.modules()]
    return [modules, [(p.grad, p.requires_grad) for p in net.parameters()]]


def maps(extractor, net, images, **settings) -> list[torch.Tensor]:
    torch.manual_seed(0)  # SmoothGradCAMpp draws noise
    return extractor(CLASSES, net(images), **settings)


@pytest.mark.parametrize("name", EXTRACTORS)
def test_constant_scores_give_nearest_exact_of_the_raw_map(net, images, name):
    before = state(net)
    with EXTRACTORS[name](net) as extractor:
        theirs = maps(extractor, net, images, normalized=False)
    assert all(float(part.abs().max()) > 1e-3 for part in theirs)
    with wrap(EXTRACTORS[name](net), preset=EVEN) as extractor:
        ours = maps(extractor, net, images, normalized=False)
    assert len(ours) == len(theirs)
    for mine, raw in zip(ours, theirs, strict=True):
        assert mine.shape == (2, *SIZE)
        assert torch.allclose(mine, nearest(raw), atol=1e-6 * float(raw.abs().max()))
    assert state(net) == before


@pytest.mark.parametrize("name", EXTRACTORS)
def test_cells_keep_their_mass_and_hooks_their_place(net, images, name):
    seen: list[tuple[int, ...]] = []
    net.late.register_forward_hook(lambda _m, _i, output: seen.append(tuple(output.shape)))
    with wrap(EXTRACTORS[name](net), preset=QUICK) as extractor:
        net.late.register_forward_hook(lambda _m, _i, _o: None)  # after theirs, and so it stays
        net.register_forward_pre_hook(lambda _m, _i: None)
        during = state(net)[0]
        theirs = maps(extractor.extractor, net, images, normalized=False)
        torch.manual_seed(0)
        scores = net(images)
        heard = [a.clone() for a in getattr(extractor.extractor, "base_cam", extractor.extractor).hook_a]
        torch.manual_seed(0)
        ours = extractor(CLASSES, scores, normalized=False)
        assert state(net)[0] == during
        assert torch.equal(extractor._image, images), "not a picture the extractor made"
        if name != "SmoothGradCAMpp":  # which leaves its own noisy pass behind
            after = getattr(extractor.extractor, "base_cam", extractor.extractor).hook_a
            assert all(torch.equal(a, b) for a, b in zip(after, heard, strict=True)), "the scoring passes were stored"
    assert max(shape[0] for shape in seen) > 10, "the user's own hook hears the scoring passes"
    for mine, raw in zip(ours, theirs, strict=True):
        even = nearest(raw)
        labels = nearest(torch.arange(raw[0].numel(), dtype=torch.float32).reshape(1, *raw.shape[1:]))[0].long()
        for field, flat in zip(mine, even, strict=True):
            sums, wanted = (
                torch.zeros(raw[0].numel()).index_add_(0, labels.flatten(), x.flatten()) for x in (field, flat)
            )
            assert torch.allclose(sums, wanted, atol=1e-5 * float(wanted.abs().max()))
        assert not torch.allclose(mine, even, atol=0.05 * float(even.abs().max()))


def test_normalised_as_its_users_expect(net, images):
    with wrap(methods.GradCAM(net, "late"), preset=QUICK) as extractor:
        (raw,) = maps(extractor, net, images, normalized=False)
        (unit,) = maps(extractor, net, images)
    assert unit.amin((1, 2)).tolist() == [0, 0]
    assert unit.amax((1, 2)).tolist() == [1, 1]
    assert (unit == 1).double().mean((1, 2)).tolist() == pytest.approx([0.02, 0.02], abs=0.005), "full strength"
    low, high = raw.amin((1, 2), keepdim=True), raw.double().flatten(1).quantile(0.98, dim=1)[:, None, None]
    assert torch.allclose(unit.double(), ((raw - low) / (high - low)).clamp(max=1).double(), atol=1e-2)


def test_what_is_looked_at_is_soft_and_what_is_counted_keeps_its_cells(net, images, monkeypatch):
    few = {name: replace(usu.PRESETS[name], evaluations=8, parts=6) for name in ("soft", "cell")}
    monkeypatch.setattr("usu.settings.PRESETS", few)
    asked = []

    def upsample(*given, preset, evaluations):
        asked.append(preset)
        return usu.upsample(*given, preset=preset, evaluations=evaluations)

    monkeypatch.setattr(torchcam, "upsample", upsample)
    with wrap(methods.GradCAM(net, "late")) as extractor:
        maps(extractor, net, images)
        maps(extractor, net, images, normalized=False)
    assert asked == ["soft", None]


@pytest.mark.parametrize("name", ["GradCAM", "LayerCAM", "RefineCAM"])
@pytest.mark.parametrize("metric", ["ClassificationMetric", "DeletionInsertionMetric"])
def test_the_metrics_take_it(net, images, name, metric):
    with EXTRACTORS[name](net) as extractor:
        theirs = getattr(metrics, metric)(extractor, partial(torch.softmax, dim=-1))
        theirs.update(images, CLASSES)
    with wrap(EXTRACTORS[name](net), preset=QUICK) as extractor:
        ours = getattr(metrics, metric)(extractor, partial(torch.softmax, dim=-1))
        ours.update(images, CLASSES)
        fused = extractor.fuse_cams(maps(extractor, net, images))
    assert fused.shape == (2, *SIZE)
    assert ours.summary().keys() == theirs.summary().keys()
    assert ours.total == 2
    assert ours.summary() != theirs.summary()


def test_a_metric_of_an_even_map_is_that_of_nearest_neighbours(net, images):
    """The metric gets the map at full size and does not resize it again."""
    with methods.GradCAM(net, "late") as extractor:
        (theirs,) = extractor(CLASSES, net(images).softmax(1))
    probability = net(images).softmax(1)[[0, 1], CLASSES]
    left = net(images * nearest(theirs)[:, None]).softmax(1)[[0, 1], CLASSES]
    wanted = ((probability - left).relu() / probability).mean().item()
    with wrap(methods.GradCAM(net, "late"), preset=EVEN) as extractor:
        metric = metrics.ClassificationMetric(extractor, partial(torch.softmax, dim=-1))
        metric.update(images, CLASSES)
    assert metric.summary()["avg_drop"] == pytest.approx(wanted, abs=1e-4)


def test_scalar_targets(net, images):
    def own(row: torch.Tensor) -> torch.Tensor:
        return row[4]

    def other(row: torch.Tensor) -> torch.Tensor:
        return row[1]

    # a callable reads logits, and so must the class
    with wrap(methods.GradCAM(net, "late"), preset=replace(QUICK, link="logit")) as extractor:
        (by_class,) = extractor(CLASSES, net(images))
        (by_target,) = extractor(scores=net(images), targets=[own, other])
        (one,) = extractor(scores=net(images), targets=own)
    assert torch.allclose(by_class, by_target, atol=1e-5)
    assert torch.allclose(by_class[0], one[0], atol=1e-5)
    assert not torch.allclose(by_class[1], one[1], atol=1e-2)


def test_finer_cam_is_scored_by_its_own_contrast(net, images):
    """The pass that scores asks what FinerCAM asks: the class minus gamma times those it is compared with."""
    with wrap(methods.FinerCAM(net, "late", gamma=0.7), preset=QUICK) as extractor:
        scores = net(images)
        (ours,) = extractor(CLASSES, scores, normalized=False, comparison_idx=[[0, 2], [3, 5]])
        (raw,) = extractor.extractor(CLASSES, net(images), comparison_idx=[[0, 2], [3, 5]], normalized=False)
    for index, (own, others) in enumerate(((4, [0, 2]), (1, [3, 5]))):

        def contrast(output: torch.Tensor, own: int = own, others: list[int] = others) -> torch.Tensor:
            return output[:, own] - 0.7 * output[:, others].mean(1)

        alone = usu.upsample(raw[index], images[index], net, contrast, preset=QUICK).pixel_map
        assert torch.allclose(ours[index], alone, atol=1e-5 * float(alone.abs().max()))


def test_several_classes_of_one_pass(net, images):
    with wrap(methods.GradCAM(net, "late"), preset=QUICK) as extractor:
        scores = net(images)
        (first,) = extractor(4, scores, retain_graph=True)
        (second,) = extractor(1, scores)
    assert not torch.allclose(first, second)


def test_the_picture_is_the_last_one_the_model_was_given(net, images):
    with wrap(methods.GradCAM(net, "late"), preset=QUICK) as extractor:
        net(images.flip(0))
        scores = net(images)
        (found,) = extractor(CLASSES, scores)
        (given,) = extractor(CLASSES, net(images), image=images)
        assert torch.equal(found, given)
        with extractor._hooks_off():
            net(torch.zeros_like(images))
        assert torch.equal(extractor._image, images)
        extractor.disable_hooks()
        net(torch.zeros_like(images))
        extractor.enable_hooks()
        assert torch.equal(extractor._image, images)
    assert extractor._image is None, "released"
    assert state(net)[0] == state(Net().eval())[0], "nothing is left on the model"


def test_no_memory_of_earlier_calls(net, images):
    counts = []
    quick = replace(EVEN, segmenter=usu.segment.Tiles(), edges="segments")
    with wrap(methods.GradCAM(net, "late"), preset=quick) as extractor:
        for _ in range(2):
            for _ in range(15):
                extractor(4, net(images[:1]))
            gc.collect()
            # by type, because some objects of torch warn when they are asked
            counts.append(sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects()))
    assert counts[0] == counts[1]


def test_without_gradients(net, images):
    """torchcam's activation methods need none, and neither does scoring."""
    with torch.no_grad(), wrap(methods.ScoreCAM(net, "late"), preset=QUICK) as extractor:
        (quiet,) = extractor(CLASSES, net(images))
    with wrap(methods.ScoreCAM(net, "late"), preset=QUICK) as extractor:
        (loud,) = extractor(CLASSES, net(images))
    assert torch.allclose(quiet, loud, atol=1e-6)


def test_as_before_after_an_exception(net, images):
    calls = []

    def failing(row: torch.Tensor) -> torch.Tensor:
        calls.append(row)
        if len(calls) > 2:  # torchcam asks twice, once per picture; the third time it is us
            raise RuntimeError("user's own")
        return row[4]

    net.train()
    with wrap(methods.GradCAM(net, "late"), preset=QUICK) as extractor:
        before = state(net)
        with pytest.raises(RuntimeError, match="user's own"):
            extractor(scores=net(images), targets=failing)
        assert state(net) == before
        (again,) = extractor(CLASSES, net(images))
        assert again.shape == (2, *SIZE)
    assert net.training


@pytest.mark.filterwarnings("ignore:The coarse map:usu.errors.UsuWarning")
def test_an_all_negative_map_is_said(net, images):
    with torch.no_grad():
        net.head.weight[2] = -1.0  # every feature speaks against class 2
    with wrap(methods.GradCAM(net, "late"), preset=QUICK) as extractor:
        scores = net(images)
        with pytest.warns(UsuWarning, match="Picture 1"):
            (found,) = extractor([4, 2], scores)
    assert float(found[1].abs().max()) == 0
    assert float(found[0].max()) > 0.9


def test_mistakes_are_named(net, images):
    with pytest.raises(TypeError, match=r"`extractor` .* got Net"):
        wrap(net)
    extractor = methods.GradCAM(net, "late")
    scores = net(images)
    with wrap(extractor) as wrapped:
        assert repr(wrapped) == f"wrap({extractor!r})"
        assert (wrapped.model, wrapped.target_names) == (net, ["late"])
        with pytest.raises(ValueError, match="`image`"):
            wrapped(CLASSES, scores)
        with pytest.raises(ValueError, match=r"`image` .* 2 maps"):
            wrapped(CLASSES, scores, image=images[:1])


def test_a_model_in_bfloat16(net, images):
    tiled = replace(QUICK, segmenter=Tiles())  # noise that is rounded has other segments
    with wrap(methods.GradCAM(net, "late"), preset=tiled) as extractor:
        (wanted,) = extractor(CLASSES, net(images), normalized=False)
    net.bfloat16()
    with wrap(methods.GradCAM(net, "late"), preset=tiled) as extractor:
        (ours,) = extractor(CLASSES, net(images.bfloat16()), normalized=False)
    assert ours.dtype == torch.bfloat16
    assert float(torch.corrcoef(torch.stack([ours.float().flatten(), wanted.flatten()]))[0, 1]) > 0.93
    assert torch.allclose(ours.float().sum((1, 2)), wanted.sum((1, 2)), rtol=0.05)
