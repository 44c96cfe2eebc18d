"""Eight threads with one model: each map is the one that a single thread makes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

import usu
from tests.chosen import chosen
from tests.small_nets import Tower, seeded

THREADS, CALLS = 8, 300
IMAGES = torch.rand(8, 3, 32, 32, generator=torch.Generator().manual_seed(4))
SOFT = chosen("soft", parts=9)


@pytest.mark.soak
def test_every_map_of_every_thread_is_that_of_one() -> None:
    net = seeded(Tower)
    net.train()

    def explained(number: int) -> np.ndarray:
        image, target = IMAGES[number % 8], number % 5
        return usu.explain(net, image, target, source="layercam", preset=SOFT, evaluations=12).pixel_map

    alone = [explained(number) for number in range(40)]
    weights = [tensor.clone() for tensor in net.state_dict().values()]
    with ThreadPoolExecutor(THREADS) as pool:
        together = list(pool.map(explained, [number % 40 for number in range(THREADS * CALLS)]))
    wrong = [number for number, found in enumerate(together) if not (found == alone[number % 40]).all()]
    assert wrong == []
    assert all(module.training for module in net.modules())
    assert all(torch.equal(now, then) for now, then in zip(net.state_dict().values(), weights, strict=True))
