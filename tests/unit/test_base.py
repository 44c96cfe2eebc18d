from __future__ import annotations

import numpy as np
import torch

from usu.operator.interpolate import layered


def test_the_exponents_of_the_layers():
    """b^½ · l₁ · l₂^½ with 0.03 added to each map over its maximum; a third finer map is not used."""
    maps = [torch.tensor([[1.0, a]], dtype=torch.float64) for a in (0.17, 0.06, 0.47, 0.8)]
    found = layered(maps[0], maps[1:])[0]
    expected = [1.03**0.5 * 1.03 * 1.03**0.5, 0.2**0.5 * 0.09 * 0.5**0.5]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)
    one = layered(maps[0], maps[1:2])[0]
    np.testing.assert_allclose(one.numpy(), [1.03**1.5, 0.2**0.5 * 0.09], rtol=1e-12)
