"""What a folder's rows depend on: the same in every process, another for whatever would give other numbers."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

import usu
from usu.bench.described import described

HERE = """
import json, torch, numpy as np
from functools import partial
import usu
from usu.bench import contenders
from usu.bench.described import described
factor = 2.0
net = torch.nn.Linear(2, 2)
torch.nn.init.ones_(net.weight); torch.nn.init.zeros_(net.bias)
class Mine:
    def __init__(self): self.power, self._cache = 3, {}
def fill(image, by=0.5): return image * by * factor
values = [net, Mine(), fill, lambda x: net(x), partial(fill, by=1), np.arange(3), Mine().__init__, max,
          usu.Settings(fill=fill), frozenset("abc"), contenders("all")]
print(json.dumps(described(values)))
"""


def test_the_same_in_every_process():
    first, second = (
        subprocess.run([sys.executable, "-c", HERE], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    )
    assert first == second
    assert len(json.loads(first)) == 11
    assert "0x" not in first, "no address"


def closed(value):
    return lambda x: x * value


NET = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))


def trained(net):
    other = copy.deepcopy(net)
    other[1].running_mean += 1e-6
    return other


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (NET, trained(NET)),
        (np.zeros(3), np.zeros((3, 1))),
        (np.zeros(3), np.zeros(3, dtype=np.float32)),
        (torch.zeros(2, dtype=torch.bfloat16), torch.zeros(2, dtype=torch.float16)),
        (closed(2.0), closed(3.0)),
        (closed(NET), closed(trained(NET))),
        (lambda x: x + 1, lambda x: x - 1),
        (lambda x: x + 1, lambda x: x + 2),
        (lambda x, by=1: x, lambda x, by=2: x),
        (lambda x: np.sin(x), lambda x: np.cos(x)),
        (partial(pow, 2), partial(pow, 3)),
        (usu.PRESETS["cell"], replace(usu.PRESETS["cell"], segmenter=usu.segment.Grid())),
        ({"a": 1}, {"a": 2}),
    ],
)  # fmt: skip
def test_other_values_are_described_otherwise(one, other):
    assert described(one) == described(copy.copy(one))
    assert described(one) != described(other)


def test_state_that_changes_by_itself_is_left_out():
    seen = []

    def model(batch):
        seen.append(1)
        return batch

    before = described(model)
    model(0)
    assert described(model) == before


def test_circles_end():
    class Knot:
        pass

    knot = Knot()
    knot.self = [knot]
    assert described(knot)["self"] == [described(Knot())["kind"]]
