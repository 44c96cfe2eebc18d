"""Random blocks: where they lie, what they sum, what they hide."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from usu.metrics.blocks import SIDES, Blocks, random_blocks


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@given(height=st.integers(1, 40), width=st.integers(1, 40), count=st.integers(1, 50), seed=st.integers(0, 10**6))
def test_inside_and_summed_as_by_slicing(height, width, count, seed):
    blocks = random_blocks((height, width), count, generator=seeded(seed))
    field = torch.randn(height, width, generator=seeded(seed), dtype=torch.float64)
    assert len(blocks) == count
    expected = []
    for top, left, side in zip(blocks.top.tolist(), blocks.left.tolist(), blocks.side.tolist(), strict=True):
        assert top >= 0
        assert left >= 0
        part = field[top : top + side, left : left + side]
        assert part.shape == (side, side)
        expected.append(float(part.sum()))
    np.testing.assert_allclose(blocks.sums(field), expected, atol=1e-11)


def test_sides_are_equally_often_and_positions_uniform():
    blocks = random_blocks((64, 96), 40_000, generator=seeded(0))
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
    assert random_blocks((32, 32), 7, generator=seeded(0)).side.tolist() == [2, 4, 8, 12, 2, 4, 8]
    assert random_blocks((16, 90), 2, sides=(1, 0.001), generator=seeded(0)).side.tolist() == [16, 1]
    assert SIDES == (1 / 16, 1 / 8, 1 / 4, 3 / 8)


def test_hidden_shows_the_fill_in_the_block_alone():
    image, filled = torch.zeros(2, 3, 4), torch.ones(2, 3, 4)
    blocks = Blocks(torch.tensor([0, 1]), torch.tensor([3, 0]), torch.tensor([1, 2]))
    batch = blocks.hidden(image, filled, slice(0, 2))
    assert batch[0, 1].tolist() == [[0, 0, 0, 1], [0, 0, 0, 0], [0, 0, 0, 0]]
    assert batch[1, 0].tolist() == [[0, 0, 0, 0], [1, 1, 0, 0], [1, 1, 0, 0]]
    assert image.sum() == 0
    np.testing.assert_array_equal(blocks.hidden(image, filled, slice(1, 2))[0], batch[1])


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="`blocks` must be a whole number of at least 1; got 0"):
        random_blocks((8, 8), 0, generator=seeded(0))
    with pytest.raises(ValueError, match="`sides` must be shares of the shorter side, above 0, at most 1; got 16"):
        random_blocks((8, 8), 1, sides=(16,), generator=seeded(0))
    with pytest.raises(ValueError, match="`sides` must name at least one size"):
        random_blocks((8, 8), 1, sides=(), generator=seeded(0))
