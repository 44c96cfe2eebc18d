from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

import usu
from usu.inputs import Input
from usu.operator.interpolate import FLOOR, OF_COARSE, OF_FINER, RADII_PER_SIDE, follow_picture, guided_filter, layered
from usu.pipeline import map_of
from usu.pipeline.certainty import expected_stability, stability_so_far
from usu.pipeline.halves import base_of

DRAW = torch.Generator().manual_seed(4)
PICTURE = torch.rand(20, 28, 3, generator=DRAW, dtype=torch.float64).numpy()
SCORES = torch.rand(20, 28, generator=DRAW, dtype=torch.float64)
CELL = usu.PRESETS["cell"]


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=DRAW, dtype=torch.float64)


# ---------------------------------------------------------------- what layers agree on


def naive(smooth: np.ndarray, finer: list[np.ndarray], of_coarse: float) -> np.ndarray:
    """Pixel by pixel, for one map."""
    height, width = smooth.shape
    exponents = [of_coarse, *OF_FINER]
    maps = [np.abs(smooth), *(np.maximum(usu.interpolate(level, (height, width), "bilinear"), 0) for level in finer)]
    tops = [one.max() or 1.0 for one in maps]
    result = np.empty_like(smooth)
    for y in range(height):
        for x in range(width):
            factors = [(one[y, x] / top + FLOOR) ** e for one, top, e in zip(maps, tops, exponents, strict=False)]
            result[y, x] = -factors[0] if smooth[y, x] < 0 else math.prod(factors)
    return result


@pytest.mark.parametrize("levels", [0, 1, 2, 3])
@pytest.mark.parametrize("shift", [0.0, 10.0, -10.0])
@pytest.mark.parametrize("of_coarse", [OF_COARSE, 0.25, 0.0])
def test_layered_is_its_formula(levels, shift, of_coarse):
    smooth = normal(20, 28) + shift
    finer = [normal(5, 7) * 3, normal(9, 14), normal(10, 10)][:levels]
    expected = naive(smooth.numpy(), [level.numpy() for level in finer[:2]], of_coarse)
    np.testing.assert_allclose(layered(smooth, finer, of_coarse=of_coarse).numpy(), expected, rtol=1e-12)


def test_layered_looks_at_each_map_of_a_batch_alone_and_at_no_scale():
    smooth, finer = normal(2, 20, 28), [normal(2, 5, 7), normal(2, 9, 14)]
    together = layered(smooth, finer)
    for i in range(2):
        assert torch.allclose(together[i], layered(smooth[i], [level[i] for level in finer]), rtol=1e-12)
    assert torch.allclose(layered(1e6 * smooth, [1e-6 * level for level in finer]), together, rtol=1e-9)
    shared = layered(smooth, [level[:1] for level in finer])
    assert torch.allclose(shared[0], together[0], rtol=1e-12)
    assert not torch.allclose(shared[1], together[1], rtol=0.1)


def test_a_finer_map_of_zeros_and_one_against_the_target_say_nothing():
    smooth, fine = normal(20, 28).abs(), normal(9, 14)
    expected = layered(smooth, [fine.abs() * 0])
    assert torch.equal(layered(smooth, [-fine.abs()]), expected)
    assert torch.allclose(expected / layered(smooth, []), torch.tensor(FLOOR).double() ** OF_FINER[0])
    assert torch.isfinite(layered(smooth * 0, [fine])).all()


# ---------------------------------------------------------------- edges of the picture


def test_follow_picture_is_a_guided_filter_and_a_stretch():
    scores = torch.stack([SCORES, SCORES**3, torch.full_like(SCORES, 0.25)])
    found = follow_picture(scores, PICTURE)
    radius = max(1, round(20 / RADII_PER_SIDE))
    for one, field in zip(found[:2], scores, strict=False):
        smooth = guided_filter(field.numpy(), PICTURE, radius=radius)
        expected = (smooth - smooth.min()) / (smooth.max() - smooth.min())
        np.testing.assert_allclose(one.numpy(), expected, rtol=0, atol=1e-12)
        assert (float(one.min()), float(one.max())) == (0, 1)
    assert torch.equal(found[2], scores[2]), "a field that is constant stays as it is"
    assert torch.equal(follow_picture(scores[2:], PICTURE), scores[2:])


def test_its_windows_grow_with_the_picture():
    size = 3 * RADII_PER_SIDE
    picture = torch.rand(size, size + 40, 3, generator=DRAW, dtype=torch.float64).numpy()
    scores = torch.rand(1, size, size + 40, generator=DRAW, dtype=torch.float64)
    smooth = guided_filter(scores[0].numpy(), picture, radius=3)
    expected = (smooth - smooth.min()) / np.ptp(smooth)
    np.testing.assert_allclose(follow_picture(scores, picture)[0].numpy(), expected, rtol=0, atol=1e-12)


def test_an_edge_of_the_picture_inside_a_segment_becomes_one_of_the_scores():
    picture = np.zeros((20, 28, 3))
    picture[:, 12:] = 1
    segments = torch.zeros(1, 20, 28, dtype=torch.float64)
    segments[:, :, 13:] = 1  # cut one pixel beside the edge
    field = follow_picture(segments, picture)[0]
    steps = field.diff(dim=1).mean(0)
    assert int(steps.argmax()) == 11


# ---------------------------------------------------------------- a trace in empty cells


def sums(pixel_map: Tensor) -> Tensor:
    return pixel_map.reshape(*pixel_map.shape[:-2], 4, 5, 4, 7).sum((-3, -1))


def with_holes(*shape: int) -> Tensor:
    coarse = normal(*shape)
    coarse[..., 0, 1] = coarse[..., 2, 3] = 0
    return coarse


@pytest.mark.parametrize("sign", [1, -1, 0])
def test_a_trace_is_below_rounding_and_orders_the_pixels_of_an_empty_cell(sign):
    coarse = with_holes(4, 4)
    coarse = coarse if not sign else sign * coarse.abs()
    settings = replace(CELL, base=None, max_gain=None)
    result = map_of(coarse, SCORES, settings)
    assert (sums(result) - 35 * coarse).abs().max() < 1e-12 * 35 * coarse.abs().mean()
    for cell in (result[:5, 7:14], result[10:15, 21:]):
        assert 0 < cell.max() < 1e-11
    order = SCORES[:5, 7:14].flatten().argsort()
    assert bool((result[:5, 7:14].flatten()[order].diff() > 0).all())
    silent = map_of(coarse, SCORES, replace(settings, trace=0.0))
    assert not silent[:5, 7:14].any()
    heavy = coarse.repeat_interleave(5, 0).repeat_interleave(7, 1) != 0
    assert torch.equal(result[heavy], silent[heavy])


@pytest.mark.parametrize("lead", [(), (3,)])
def test_pixels_of_all_empty_cells_are_ranked_as_if_there_were_no_cells(lead):
    """Each is the map of one great cell there, up to one factor a target: so scores rank them across cells, too."""
    coarse, scores = with_holes(*lead, 4, 4).abs(), torch.rand(*lead, 20, 28, generator=DRAW, dtype=torch.float64)
    coarse[..., 3, 0] = 0
    result = map_of(coarse, scores, replace(CELL, base=None, max_gain=None))
    empty = coarse.repeat_interleave(5, -2).repeat_interleave(7, -1) == 0
    wanted = (scores / CELL.temperature_of(16)).exp()
    for one, mask, free in zip(*(field.reshape(-1, 20, 28) for field in (result, empty, wanted)), strict=True):
        found = one[mask] / free[mask]
        assert float(found.max() / found.min()) < 1 + 1e-9
        assert int(mask.sum()) == 3 * 35


def test_the_ceiling_and_the_base_hold_in_an_empty_cell_too():
    coarse = with_holes(4, 4).abs()
    result = map_of(coarse, SCORES, replace(CELL, temperature=0.01), finer=[normal(10, 14)])
    cell = result[:5, 7:14]
    assert float(cell.max() / cell.mean()) <= CELL.max_gain * (1 + 1e-9)
    assert len(cell.unique()) > 10


@pytest.mark.parametrize("cells", [False, True])
def test_a_map_of_zeros_stays_so_also_beside_another(cells):
    coarse = with_holes(2, 4, 4)
    coarse[1] = 0
    labels = (torch.arange(20)[:, None] // 5 * 4 + torch.arange(28) // 7) if cells else None
    result = map_of(coarse.flatten(1) if cells else coarse, SCORES.expand(2, -1, -1), CELL, cells=labels)
    assert result[0, :5, 7:14].any()
    assert not result[1].any()
    assert not map_of(torch.zeros(4, 4), SCORES, CELL).any()


def test_each_map_has_a_trace_of_its_own_mean():
    one, other = with_holes(4, 4), with_holes(4, 4) * 1e9
    together = map_of(torch.stack([one, other]), SCORES, CELL)
    assert torch.allclose(together[0], map_of(one, SCORES, CELL), rtol=1e-12, atol=0)
    assert torch.allclose(together[1], map_of(other, SCORES, CELL), rtol=1e-12, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_lower_precision_is_no_reason_to_fail(dtype):
    coarse = with_holes(4, 4).to(dtype)
    result = map_of(coarse, SCORES, CELL, finer=[normal(8, 8)])
    assert result.dtype == dtype
    tolerance = 1e-6 if dtype == torch.float32 else 0.01
    error = sums(result.double()) - 35 * coarse.double()
    assert error.abs().max() < tolerance * 35 * coarse.double().abs().max()
    assert bool(result[:5, 7:14].any()) == (dtype != torch.float16), "a trace is nothing in float16"


def test_gradients_pass_by_the_trace():
    coarse = with_holes(4, 4).requires_grad_()
    map_of(coarse, SCORES, CELL).sum().backward()
    wanted = torch.where(coarse == 0, 0.0, 35.0).double()
    assert torch.allclose(coarse.grad, wanted)


# ---------------------------------------------------------------- the base measure


@pytest.mark.parametrize("name", ["cell", "soft", "fast"])
@pytest.mark.parametrize("sign", [1, 0])
def test_the_base_is_the_layers_for_maps_of_any_sign(name, sign):
    coarse, finer = normal(4, 4), [normal(8, 8), normal(10, 14)]
    coarse = coarse.abs() if sign else coarse
    settings = usu.PRESETS[name]
    base = layered(usu.interpolate(coarse, (20, 28), "bilinear"), finer, 2, settings.of_coarse)
    found = map_of(coarse, SCORES, settings, finer=finer)
    expected = usu.redistribute(
        coarse, SCORES, temperature=settings.temperature_of(16), budget=settings.budget, max_gain=settings.max_gain,
        base=base.abs() if name == "cell" else base,
    )  # fmt: skip
    assert torch.allclose(found, expected, rtol=1e-12, atol=1e-15)
    plain = map_of(coarse, SCORES, settings)
    alone = layered(usu.interpolate(coarse, (20, 28), "bilinear"), [], 2, settings.of_coarse)
    expected = usu.redistribute(
        coarse, SCORES, temperature=settings.temperature_of(16), budget=settings.budget, max_gain=settings.max_gain,
        base=alone.abs() if name == "cell" else alone,
    )  # fmt: skip
    assert torch.allclose(plain, expected, rtol=1e-12, atol=1e-15)
    assert not torch.allclose(found, plain, rtol=0.1)
    smooth = map_of(coarse, SCORES, replace(settings, base="bilinear"), finer=finer)
    assert torch.equal(smooth, map_of(coarse, SCORES, replace(settings, base="bilinear")))
    assert not torch.allclose(smooth, plain, rtol=0.1)


@pytest.mark.parametrize("lead", [(), (2,)])
def test_cells_of_any_form_have_layers_too(lead):
    labels = (torch.arange(20 * 28).reshape(20, 28) * 7 // (20 * 28)).numpy()
    coarse, finer = normal(*lead, 7).abs(), [normal(*lead, 8, 8), normal(*lead, 10, 14)]
    found = map_of(coarse, SCORES.expand(*lead, -1, -1), CELL, cells=labels, finer=finer)
    base = layered(coarse[..., torch.from_numpy(labels)], finer)
    expected = usu.redistribute(
        coarse, SCORES.expand(*lead, -1, -1), cells=labels, base=base, temperature=CELL.temperature_of(7),
        max_gain=CELL.max_gain,
    )  # fmt: skip
    assert torch.allclose(found, expected, rtol=1e-12)
    for k in range(7):
        inside = torch.from_numpy(labels == k)
        assert torch.allclose(found[..., inside].sum(-1), coarse[..., k] * int(inside.sum()), rtol=1e-12)
    without = map_of(coarse, SCORES.expand(*lead, -1, -1), CELL, cells=labels)
    even = map_of(coarse, SCORES.expand(*lead, -1, -1), replace(CELL, base=None), cells=labels)
    assert torch.allclose(without, even, rtol=1e-12), "flat in every cell"


# ---------------------------------------------------------------- how much of a map would stay


class Runs:
    """Simulated runs, of nine segments: the first ``lucky`` ones find the first highest, the others the last; whoever
    asks for runs that are longer gets none of the first."""

    def __init__(self, lucky: int) -> None:
        self.lucky, self.asked = lucky, list[tuple[int, int]]()

    def repeats(self, count: int, *, times: int = 1) -> Tensor:
        self.asked.append((count, times))
        lucky = min(self.lucky, count) if times == 1 else 0
        return torch.eye(9, dtype=torch.float64)[[0] * lucky + [8] * (count - lucky)][:, None]


NINE = np.arange(24)[:, None] // 8 * 3 + np.arange(24) // 8
SHOWN = Input(torch.ones(1, 1).double(), torch.rand(3, 24, 24, generator=DRAW), np.full((24, 24, 3), 0.5))
PLAIN = replace(CELL, base=None, edges="segments", max_gain=None)


def test_the_stability_is_that_of_any_two_simulated_runs_as_long_as_asked():
    runs = Runs(lucky=2)
    found = [expected_stability(runs, NINE, SHOWN, PLAIN, (), times=times, draws=4) for times in (1, 4)]
    assert found == [2 / 6, 1]  # two pairs of six agree
    assert runs.asked == [(4, 1), (4, 4)]


@pytest.mark.parametrize(("lucky", "asked"), [(12, [12, 48]), (6, [12])])
def test_a_lucky_glance_ends_no_run(lucky, asked):
    """The first dozen of runs agree, or not; where they do, as many are asked as the stability that is told has."""
    runs = Runs(lucky)
    alike = sum(n * (n - 1) for n in (lucky, asked[-1] - lucky)) / (asked[-1] * (asked[-1] - 1))
    assert stability_so_far(runs, NINE, SHOWN, PLAIN, ()) == pytest.approx(alike)
    assert alike < PLAIN.stability
    assert [count for count, _ in runs.asked] == asked


@pytest.mark.parametrize("of_coarse", [OF_COARSE, 0.25])
def test_the_settings_say_how_much_of_the_coarse_map_is_in_the_base(of_coarse):
    coarse, finer = normal(4, 4).abs(), [normal(8, 8).abs()]
    found = base_of(coarse, torch.zeros(16, 16).double(), replace(CELL, of_coarse=of_coarse), finer=finer)
    smooth = torch.as_tensor(usu.interpolate(coarse, (16, 16), "bilinear"))
    assert torch.allclose(found, layered(smooth, finer, of_coarse=of_coarse), rtol=1e-12)
