"""Infidelity against its definition in loops, additive models whose value is known, and maps at any scale."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from usu.forward.fills import filled
from usu.metrics.infidelity import SIDES, BlockChanges, Blocks, block_changes, infidelity, infidelity_of, random_blocks
from usu.metrics.quantus_compat import patch_changes


def total(batch):
    return batch.sum((1, 2, 3))[:, None]


def unsure(batch):
    value = (batch * batch.roll(1, -1)).sum((1, 2, 3)) - batch[:, :, 0].sum((1, 2))
    return torch.stack([value, value * 0], 1)


def counting(model):
    seen = []

    def counted(batch):
        seen.append(len(batch))
        return model(batch)

    return counted, seen


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6))
def test_against_loops(seed):
    rng = np.random.default_rng(seed)
    image, field = rng.normal(size=(2, 16, 20)), rng.normal(size=(16, 20))
    found = {
        scaling: infidelity(field, image, unsure, 0, blocks=12, scaling=scaling, generator=seed)
        for scaling in ("optimal", "raw")
    }
    blocks = block_changes(image, unsure, 0, blocks=12, generator=seed).blocks
    u, v = [], []
    for top, left, side in zip(blocks.top.tolist(), blocks.left.tolist(), blocks.side.tolist(), strict=True):
        part = slice(top, top + side), slice(left, left + side)
        picture = image.copy()
        picture[(..., *part)] = image.mean((1, 2))[:, None, None]
        u.append(field[part].sum())
        v.append(float(unsure(torch.from_numpy(image)[None])[0, 0] - unsure(torch.from_numpy(picture)[None])[0, 0]))
    np.testing.assert_allclose(found["raw"].curve, np.stack([u, v], 1), atol=1e-9)
    assert found["raw"].value == pytest.approx(np.mean(np.subtract(u, v) ** 2))
    # the best of all scales, by least squares
    _, rest, _, _ = np.linalg.lstsq(np.array(u)[:, None], np.array(v), rcond=None)
    assert found["optimal"].value == pytest.approx(float(rest[0] / np.sum(np.square(v))))
    assert 0 <= found["optimal"].value <= 1


@pytest.mark.parametrize("fill", [0.0, "mean", "blur"])
def test_an_additive_model_is_explained_by_what_it_adds(fill):
    """g = Σ w x: the block's change is Σ w (x - fill) inside it, so that map has no infidelity at its own scale."""
    rng = torch.Generator().manual_seed(0)
    image = torch.rand(3, 32, 24, generator=rng, dtype=torch.float64)
    weights = torch.randn(3, 32, 24, generator=rng, dtype=torch.float64)

    def model(batch):
        return (batch * weights).sum((1, 2, 3))[:, None]

    exact = (weights * (image - filled(image, fill))).sum(0)
    for factor, raw_is_zero in ((1.0, True), (-3.0, False), (1e-4, False)):
        optimal = infidelity(factor * exact, image, model, 0, fill=fill).value
        raw = infidelity(factor * exact, image, model, 0, fill=fill, scaling="raw").value
        assert optimal < 1e-12
        assert (raw < 1e-20) == raw_is_zero
    assert infidelity(exact.flip(0), image, model, 0, fill=fill).value > 0.3


def test_by_hand():
    """u = (1, 1), v = (3, 1): E[uv]² / (E[u²] E[v²]) = 4 / (1 · 5), and the raw number is (4 + 0) / 2."""
    two = Blocks(torch.tensor([0, 0]), torch.tensor([0, 1]), torch.tensor([1, 1]))
    changes = BlockChanges(two, torch.tensor([3.0, 1.0], dtype=torch.float64), (1, 2), evaluations=3)
    even = np.ones((1, 2))
    assert infidelity_of(even, changes) == pytest.approx(1 - 4 / 5)
    assert infidelity_of(even, changes, scaling="raw") == 2
    assert infidelity_of(np.array([[1.0, -3.0]]), changes) == 1  # u and v at right angles


def test_nothing_explained_scores_one():
    image = torch.rand(1, 16, 16)
    assert infidelity(torch.zeros(16, 16), image, total, 0).value == 1
    still = infidelity(image[0], image, lambda batch: batch.new_full((len(batch), 1), 0.7), 0)
    assert still.value == 1
    corner = torch.zeros(2, 2)
    corner[1, 1] = 1.0  # outside the only block
    one = Blocks(torch.tensor([0]), torch.tensor([0]), torch.tensor([1]))
    assert infidelity_of(corner, BlockChanges(one, torch.ones(1).double(), (2, 2), 2)) == 1


def test_permuted_maps_are_at_chance():
    """The exact map is far below a map of the same values in another order."""
    rng = torch.Generator().manual_seed(1)
    image = torch.zeros(1, 32, 32)
    image[:, 8:20, 4:16] = torch.rand(12, 12, generator=rng)
    changes = block_changes(image, total, 0, fill=0)
    exact = infidelity_of(image[0], changes)
    permuted = [
        infidelity_of(image[0].flatten()[torch.randperm(1024, generator=rng)].reshape(32, 32), changes)
        for _ in range(20)
    ]
    uniform = infidelity_of(torch.ones(32, 32), changes)
    assert exact < 1e-9 < 0.2 < min(permuted)
    assert np.mean(permuted) == pytest.approx(uniform, abs=0.05)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6), factor=st.sampled_from([1e-6, 1e6, -1.0, 1e-160, 1e160]),
    loud=st.sampled_from([1.0, 1e-160, 1e150]),
)  # fmt: skip
def test_the_scale_of_the_map_does_not_matter_unless_raw(seed, factor, loud):
    rng = np.random.default_rng(seed)
    field = rng.normal(size=(9, 9))
    blocks = Blocks(*torch.tensor([[0, 2, 4, 1], [3, 0, 5, 1], [1, 4, 2, 7]]))
    changes = BlockChanges(blocks, torch.from_numpy(rng.normal(size=4) * loud), (9, 9), 5)
    assert infidelity_of(field * factor, changes) == pytest.approx(infidelity_of(field, changes), rel=1e-9, abs=1e-12)
    quiet = BlockChanges(blocks, torch.zeros(4).double(), (9, 9), 5)
    raw = [infidelity_of(field * scale, quiet, scaling="raw") for scale in (1, 100)]
    assert raw[1] == pytest.approx(1e4 * raw[0])


def test_one_set_of_answers_for_many_maps():
    image = torch.rand(2, 16, 16)
    model, seen = counting(unsure)
    changes = block_changes(image, model, 0, blocks=20, generator=3)
    assert changes.evaluations == sum(seen) == 21
    for field in torch.rand(3, 16, 16):
        assert infidelity_of(field, changes) == infidelity(field, image, unsure, 0, blocks=20, generator=3).value
    assert sum(seen) == 21


@pytest.mark.parametrize(("target", "extra"), [(0, 0), (None, 1)])
def test_the_cost_is_counted(target, extra):
    image = torch.rand(1, 8, 8)
    model, seen = counting(unsure)
    assert infidelity(image[0], image, model, target, blocks=9).evaluations == sum(seen) == 10 + extra
    seen.clear()
    measured = infidelity(image[0], image, model, target, compat="quantus", patch_sizes=(4, 2))
    assert measured.evaluations == sum(seen) == 1 + 4 + 16 + extra
    assert measured.curve.shape == (20, 2)


def test_the_generator_decides_the_blocks():
    image = torch.rand(1, 32, 32)
    field = torch.rand(32, 32)
    values = [infidelity(field, image, unsure, 0, blocks=8, generator=seed).value for seed in (0, 0, 1)]
    assert values[0] == values[1] != values[2]
    own = infidelity(field, image, unsure, 0, blocks=8, generator=torch.Generator().manual_seed(0)).value
    assert own == values[0]


def test_quantus_form_by_hand():
    """Patches 1 and 2 are filled with 0 and stay filled: u = (2·1, 2·1 + 3·4), v = (1, 1 + 4)."""
    image, field = torch.tensor([[[1.0], [4.0]]]), torch.tensor([[2.0], [3.0]])
    measured = infidelity(field, image, total, 0, compat="quantus", patch_sizes=(1,), fill=0)
    np.testing.assert_allclose(measured.curve, [[2, 1], [14, 5]])
    assert measured.value == (1**2 + 9**2) / 2
    # the mean of (1, 4) is 2.5, then the mean of (2.5, 4) is 3.25
    falling = patch_changes(image, total, 0, patch_sizes=(1,), fill="mean")
    np.testing.assert_allclose(falling.taken[0], [[-1.5], [0.75]])
    np.testing.assert_allclose(falling.values[0], [-1.5, -0.75])


@settings(max_examples=40)
@given(height=st.integers(1, 40), width=st.integers(1, 40), count=st.integers(1, 50), seed=st.integers(0, 10**6))
def test_inside_and_summed_as_by_slicing(height, width, count, seed):
    blocks = random_blocks((height, width), count, generator=torch.Generator().manual_seed(seed))
    field = torch.randn(height, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    assert len(blocks.side) == count
    expected = []
    for top, left, side in zip(blocks.top.tolist(), blocks.left.tolist(), blocks.side.tolist(), strict=True):
        assert top >= 0
        assert left >= 0
        part = field[top : top + side, left : left + side]
        assert part.shape == (side, side)
        expected.append(float(part.sum()))
    np.testing.assert_allclose(blocks.sums(field), expected, atol=1e-11)


def test_sides_are_equally_often_and_positions_uniform():
    blocks = random_blocks((64, 96), 40_000, generator=torch.Generator().manual_seed(0))
    assert torch.bincount(blocks.side).unique().tolist() == [0, 10_000]
    assert blocks.side.unique().tolist() == [4, 8, 16, 24]
    for side in (4, 24):
        chosen = blocks.side == side
        for place, room in ((blocks.top, 64 - side + 1), (blocks.left, 96 - side + 1)):
            counts = torch.bincount(place[chosen], minlength=room)
            assert len(counts) == room  # every position, the last one too
            expected = 10_000 / room
            chi = float(((counts - expected) ** 2 / expected).sum())
            assert abs(chi - room) < 5 * np.sqrt(2 * room)


def test_seven_blocks_of_four_sizes():
    assert random_blocks((32, 32), 7, generator=torch.Generator().manual_seed(0)).side.tolist() == [
        2,
        4,
        8,
        12,
        2,
        4,
        8,
    ]
    assert random_blocks((16, 90), 2, sides=(1, 0.001), generator=torch.Generator().manual_seed(0)).side.tolist() == [
        16,
        1,
    ]
    assert SIDES == (1 / 16, 1 / 8, 1 / 4, 3 / 8)


def test_hidden_shows_the_fill_in_the_block_alone():
    image, filled = torch.zeros(2, 3, 4), torch.ones(2, 3, 4)
    blocks = Blocks(torch.tensor([0, 1]), torch.tensor([3, 0]), torch.tensor([1, 2]))
    batch = blocks.hidden(image, filled, slice(0, 2))
    assert batch[0, 1].tolist() == [[0, 0, 0, 1], [0, 0, 0, 0], [0, 0, 0, 0]]
    assert batch[1, 0].tolist() == [[0, 0, 0, 0], [1, 1, 0, 0], [1, 1, 0, 0]]
    assert image.sum() == 0
    np.testing.assert_array_equal(blocks.hidden(image, filled, slice(1, 2))[0], batch[1])
