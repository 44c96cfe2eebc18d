from __future__ import annotations

import pytest
import torch

from usu.score import needed


def test_needed_by_a_loop():
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        segments = torch.randint(0, 12, (6, 6), generator=generator)
        cells = torch.randint(0, 14, (6, 6), generator=generator)
        masses = torch.randint(-1, 2, (14,), generator=generator)
        expected = []
        for p in range(int(segments.max()) + 1):
            meets = set(cells[segments == p].tolist())
            expected.append(any(masses[k] != 0 and len(segments[cells == k].unique()) > 1 for k in meets))
        assert needed(segments, cells, masses).tolist() == expected


def test_needed_on_a_grid_of_masses():
    cells = torch.arange(4).reshape(2, 2).repeat_interleave(2, 0).repeat_interleave(2, 1)
    segments = torch.arange(16).reshape(4, 4)
    assert needed(segments, cells, torch.tensor([[1.0, 0.0], [0.0, 0.0]])).nonzero().flatten().tolist() == [0, 1, 4, 5]
    assert not needed(cells, cells, torch.ones(4)).any()


def test_bad_cells():
    labels = torch.arange(4).reshape(2, 2)
    with pytest.raises(ValueError, match="`masses` must hold one number per cell"):
        needed(labels, labels, torch.ones(3))
    with pytest.raises(TypeError, match="`cells` must hold integer labels"):
        needed(labels, labels.double(), torch.ones(4))
