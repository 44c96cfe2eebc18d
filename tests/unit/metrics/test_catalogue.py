"""Every metric does what its declaration says of it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from usu import metrics
from usu.metrics import METRICS, Case, by_name
from usu.metrics.catalogue import Memory
from usu.operator.interpolate import interpolate


class Counting(nn.Module):
    """A small network that counts the pictures it is shown."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.body = nn.Sequential(nn.Conv2d(3, 6, 5, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.head = nn.Linear(24, 4)
        self.seen = 0

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        self.seen += len(batch)
        return self.head(self.body(batch))


def case(seed: int = 0) -> Case:
    dice = torch.Generator().manual_seed(seed)
    coarse = torch.rand(4, 4, generator=dice).double().numpy()
    field = torch.rand(28, 28, generator=dice).double().numpy() * interpolate(coarse, (28, 28), "bilinear")
    rows, columns = np.mgrid[:28, :28]
    return Case(
        pixel_map=field, image=torch.rand(3, 28, 28, generator=dice), model=Counting(), target=1, coarse=coarse,
        truth=(rows - 12) ** 2 + (columns - 15) ** 2 < 64, segments=(rows // 5) * 6 + columns // 5, seed=seed,
    )  # fmt: skip


OTHERS = ["deletion:noise", "half-deletion:blur", "irof-matched", "infidelity:noise-matched", "infidelity-raw-matched"]


@pytest.mark.parametrize("name", [metric.name for metric in METRICS] + OTHERS)
def test_every_metric_is_what_it_declares(name):
    metric, one = by_name(name), case()
    found = metric.measure(one)
    # both curves begin and end with the same two images, which are shown once
    shared = 2 if name.startswith("insertion-deletion") else 0
    assert found.evaluations == metric.evaluations == one.model.seen + shared
    for value in (found.value, *(metric.measure(case(seed)).value for seed in (1, 2))):
        assert metric.low - 1e-12 <= value <= metric.high + 1e-12
    scaled = [
        metric.measure(replace(one, pixel_map=one.pixel_map * factor, of_map=Memory())).value for factor in (1e-6, 1e6)
    ]
    if metric.scale_invariant:
        assert scaled == pytest.approx([found.value] * 2, rel=1e-9, abs=1e-9)
    else:
        assert max(abs(other - found.value) for other in scaled) > 1e-3
    if metric.needs_truth:
        with pytest.raises(ValueError, match="`truth`"):
            metric.measure(replace(case(), truth=None))
        assert metric.measure(case()).value == found.value, "the same question gets the same answer"
    else:
        assert metric.measure(replace(case(), truth=None)).value == found.value, "also without an outline"


def test_names_are_unique_and_unknown_ones_are_told_the_known():
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    with pytest.raises(ValueError, match=r"`metrics` must be names.*got 'delection'.*half-deletion"):
        by_name("delection")
    with pytest.raises(ValueError, match="road:noise"):
        by_name("road:noise")


def test_block_answers_are_shared_by_the_maps_of_a_picture():
    one = case()
    first = by_name("infidelity").measure(one)
    other = replace(one, pixel_map=np.roll(one.pixel_map, 3, 1), of_map=Memory())
    second = by_name("infidelity").measure(other)
    assert one.model.seen == first.evaluations == second.evaluations
    assert first.value != second.value
    direct = metrics.infidelity(other.pixel_map, one.image, one.model, 1, fill="mean", generator=one.dice("blocksmean"))
    assert second.value == pytest.approx(direct.value, abs=1e-12)


@pytest.mark.parametrize("name", ["deletion", "insertion", "pixel-flipping", "irof", "road"])
def test_a_name_has_one_definition(name):
    """The table's number is that of the function of the same name, called with its defaults."""
    one, metric = case(), getattr(metrics, name.replace("-", "_"))
    dice = one.dice(f"{name}mean" if name in ("deletion", "insertion") else metric.__name__)
    direct = metric(one.pixel_map, one.image, one.model, one.target, generator=dice)
    listed = by_name(name).measure(one)
    assert (listed.value, listed.evaluations) == (pytest.approx(direct.value, abs=1e-9), direct.evaluations)
    np.testing.assert_allclose(listed.curve, direct.curve, atol=1e-9)


def test_the_ends_of_curves_are_shared_by_the_maps_and_fills_of_a_picture():
    one = case()
    counts = []
    for name in ("deletion", "insertion", "deletion:blur"):
        for pixel_map in (one.pixel_map, np.roll(one.pixel_map, 3, 1)):
            before, of_one = one.model.seen, replace(one, pixel_map=pixel_map, of_map=Memory())
            found = by_name(name).measure(of_one)
            counts.append(one.model.seen - before)
            alone = by_name(name).measure(replace(of_one, of_picture=Memory(), of_map=Memory()))
            assert found.value == pytest.approx(alone.value, abs=1e-9)
            np.testing.assert_allclose(found.curve, alone.curve, atol=1e-9)
            assert found.evaluations == 9
    assert counts == [9, 7, 7, 7, 8, 7]  # the image once, each fill once


def test_insertion_minus_deletion_is_their_difference_and_repeats_neither():
    one = case()
    both = by_name("insertion-deletion").measure(one)
    seen = one.model.seen
    insertion, deletion = by_name("insertion").measure(one), by_name("deletion").measure(one)
    assert one.model.seen == seen
    assert both.value == pytest.approx(insertion.value - deletion.value, abs=1e-15)
    assert both.evaluations == insertion.evaluations + deletion.evaluations


def test_matched_maps_have_the_bilinear_values_in_their_own_order():
    one = case()
    matched = one.matched.pixel_map
    smooth = interpolate(one.coarse, (28, 28), "bilinear")
    np.testing.assert_array_equal(np.sort(matched.ravel()), np.sort(smooth.ravel()))
    assert (np.diff(matched.ravel()[np.argsort(one.pixel_map.ravel())]) >= 0).all()


class Inside(nn.Module):
    """Two classes: how bright the picture is inside the outline, and how dark."""

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        inside = (batch * torch.from_numpy(case().truth)).sum((1, 2, 3)) / 40
        return torch.stack([-inside, inside], 1)


RANKING = (
    "half-deletion", "deletion", "insertion", "insertion-deletion", "pixel-flipping", "irof", "road", "monotonicity",
)  # fmt: skip


@pytest.mark.parametrize("name", RANKING)
def test_a_map_that_knows_is_not_at_chance_and_permuted_it_is(name):
    """Chance is what maps without any order get; the mean of permuted maps is within four standard errors of it."""
    metric, dice = by_name(name), np.random.default_rng(0)
    one = replace(case(), model=Inside(), image=torch.from_numpy(case().truth * 0.8 + 0.1).float().expand(3, 28, 28))
    knowing = one.truth + 1e-3 * dice.random((28, 28))

    def value(pixel_map: np.ndarray, seed: int) -> float:
        return metric.measure(replace(one, pixel_map=pixel_map, seed=seed, of_map=Memory(), of_picture=Memory())).value

    permuted = [value(dice.permutation(knowing.ravel()).reshape(28, 28), seed) for seed in range(24)]
    # a constant map has no correlation; a map of random numbers has one around 0
    blind = [0.0] if name == "monotonicity" else [value(np.ones((28, 28)), seed) for seed in range(24)]
    error = math.sqrt(np.var(permuted) / len(permuted) + np.var(blind) / len(blind))
    assert abs(np.mean(permuted) - np.mean(blind)) < 4 * error
    gain = value(knowing, 0) - np.mean(blind)
    assert (gain if metric.better == "higher" else -gain) > 8 * error


def test_any_metric_can_be_measured_on_the_matched_map():
    one = case()
    for name in ("irof", "concentration", "infidelity:noise", "energy-in-mask"):
        assert by_name(f"{name}-matched").measure(one).value == by_name(name).measure(one.matched).value


def test_ties_of_the_area_follow_the_seed():
    flat = replace(case(), pixel_map=np.ones((28, 28)))
    assert len({by_name("area-iou").measure(replace(flat, seed=seed)).value for seed in range(4)}) > 1
