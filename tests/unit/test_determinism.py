"""Same machine and threads: the same bits, in every process. Other threads: to 1e-5 of the largest value."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

import usu
from tests.chosen import chosen
from tests.small_nets import Tower, seeded

PROGRAM = """
import sys
import numpy as np
import torch
from torch import nn
import usu

torch.set_num_threads(int(sys.argv[1]))
torch.manual_seed(0)
net = nn.Sequential(
    nn.Conv2d(3, 24, 5, 2, 2), nn.ReLU(), nn.Conv2d(24, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU(),
    nn.Conv2d(32, 48, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, 7),
).eval()
image = torch.rand(3, 96, 96, generator=torch.Generator().manual_seed(1))
picture = image.permute(1, 2, 0).numpy()
maps = {}
for preset in ("soft", "cell", "fast"):
    few = {} if preset == "fast" else {"evaluations": 24}
    for again in ("", " again"):
        found = usu.explain(net, image, 3, source="layercam", preset=preset, picture=picture, **few)
        maps[preset + again] = found.pixel_map
np.savez(sys.argv[2], **maps)
"""


def maps_of(threads: int, path: Path) -> dict[str, np.ndarray]:
    subprocess.run([sys.executable, "-c", PROGRAM, str(threads), str(path)], check=True, timeout=600)
    with np.load(path) as found:
        return dict(found)


def test_the_same_bits_with_the_same_threads_and_nearly_the_same_with_others(tmp_path: Path) -> None:
    one, again, two = (maps_of(n, tmp_path / f"{i}.npz") for i, n in enumerate((1, 1, 2)))
    for name, pixel_map in one.items():
        np.testing.assert_array_equal(pixel_map, again[name], err_msg=name)
        np.testing.assert_array_equal(pixel_map, one[name.removesuffix(" again")], err_msg=name)
        np.testing.assert_allclose(two[name], pixel_map, rtol=0, atol=1e-5 * np.abs(pixel_map).max(), err_msg=name)


def test_the_random_numbers_of_the_process_are_neither_used_nor_changed() -> None:
    """Also of a model in training mode, whose dropout would draw from them."""
    net, image = seeded(Tower).train(), torch.rand(3, 32, 32, generator=torch.Generator().manual_seed(4))
    states = lambda: (torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate())  # noqa: E731
    before = states()
    for preset in ("soft", "cell"):
        usu.explain(net, image, 1, source="layercam", preset=chosen(preset, parts=9), evaluations=12)
    assert states() == before
