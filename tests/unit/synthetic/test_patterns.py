"""Five patterns, each with the symmetry its name promises."""

from __future__ import annotations

import pytest
import torch
from experiments.synthetic.patterns import patterns

SIZE = 64
DRAWN = patterns(size=SIZE)


def test_names_and_forms() -> None:
    assert list(DRAWN) == ["zigzag", "sine", "spiral", "concentric wave", "moire"]
    for field in DRAWN.values():
        assert field.shape == (SIZE, SIZE)
        assert field.dtype == torch.float32
        assert (float(field.min()), float(field.max())) == (0, 1)


def test_half_is_bright() -> None:
    for name, field in DRAWN.items():
        wanted = 0.25 if name == "moire" else 0.5  # a product of two halves
        assert float(field.mean()) == pytest.approx(wanted, abs=0.06), name


def test_periods() -> None:
    down, along = SIZE // 8, SIZE // 4
    for name in ("zigzag", "sine"):
        field = DRAWN[name]
        torch.testing.assert_close(field[down:], field[:-down], atol=1e-3, rtol=0)
        torch.testing.assert_close(field[:, along:], field[:, :-along], atol=1e-3, rtol=0)
        assert not torch.allclose(field[:, along // 2 :], field[:, : -along // 2], atol=0.1)


def test_rings_are_round_and_the_spiral_is_not() -> None:
    ring, spiral = DRAWN["concentric wave"], DRAWN["spiral"]
    torch.testing.assert_close(ring, ring.T, atol=1e-4, rtol=0)
    torch.testing.assert_close(ring, ring.flip(0), atol=1e-4, rtol=0)
    # half a turn winds the arm half a period on: bright becomes dark
    torch.testing.assert_close(spiral, 1 - spiral.flip(0, 1), atol=1e-3, rtol=0)


def test_no_two_are_alike() -> None:
    flat = torch.stack([field.flatten() for field in DRAWN.values()]).double()
    correlation = torch.corrcoef(flat) - torch.eye(5, dtype=torch.float64)
    assert float(correlation.abs().max()) < 0.9


def test_too_small() -> None:
    with pytest.raises(ValueError, match=r"`size` must be at least 16, .*; got 8"):
        patterns(size=8)
