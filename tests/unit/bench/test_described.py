"""What a folder's rows depend on: the same in every process, another for whatever would give other numbers."""

from __future__ import annotations

import copy
import json
import logging
import subprocess
import sys
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import usu
from usu.forward.digest import described

HERE = """
import enum, json, pathlib, torch, numpy as np
from functools import partial
import usu
from usu.bench import contenders
from usu.forward.digest import described
factor = 2.0
class Mode(enum.Enum):
    A = 1
net = torch.nn.Linear(2, 2)
torch.nn.init.ones_(net.weight); torch.nn.init.zeros_(net.bias)
class Mine:
    def __init__(self): self.power, self._cache = 3, {}
def fill(image, by=0.5): return image * by * factor
def chosen(x): return x if x in {"mean", "blur", "noise"} else [fill(one) for one in x]
values = [net, Mine(), fill, lambda x: net(x), partial(fill, by=1), np.arange(3), Mine().__init__, max, chosen,
          usu.Settings(fill=fill), frozenset("abc"), contenders("all"), Mode.A, pathlib.Path("a"), np.sin, object()]
print(json.dumps(described(values)))
"""


def test_the_same_in_every_process():
    first, second = (
        subprocess.run([sys.executable, "-c", HERE], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    )
    assert first == second
    assert len(json.loads(first)) == 16
    assert "0x" not in first, "no address"


NET = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU())
FACTOR = 2


class Scaled(nn.Module):
    """A network with a number that is no tensor, and one that is not in its state."""

    def __init__(self, by=1.0, mean=0.0):
        super().__init__()
        self.body, self.by = NET, by
        self.register_buffer("mean", torch.tensor([mean]), persistent=False)

    def forward(self, batch):
        return self.body(batch) * self.by


class Softer(Scaled):
    def forward(self, batch):
        return self.body(batch) / self.by


Softer.__name__ = "Scaled"  # as far as it prints, the same


@dataclass(frozen=True, slots=True)
class Slotted:
    power: int

    def __call__(self, coarse, picture):
        return coarse


class Mode(Enum):
    A = 1
    B = 2


class Printed:
    def __init__(self, word):
        self.word, self.noise = word, object()

    def fingerprint(self):
        return self.word


def trained():
    other = copy.deepcopy(NET)
    other[1].running_mean += 1e-6
    return other


def closed(value):
    return lambda x: value(x) if callable(value) else x * value


def plus(number):
    return lambda x: x + number


def decorated(sign):
    scope = {"torch": torch}
    exec(f"@torch.no_grad()\ndef f(x): return x {sign} 1", scope)
    return scope["f"]


def listed(factor):
    scope = {"FACTOR": factor}
    exec("def f(x): return [one * FACTOR for one in x]", scope)
    return scope["f"]


DIFFERENT = {
    "weights": (lambda: NET, trained),
    "activation": (lambda: NET, lambda: nn.Sequential(NET[0], NET[1], nn.Sigmoid())),
    "a number of the network": (Scaled, lambda: Scaled(by=2.0)),
    "a buffer out of the state": (Scaled, lambda: Scaled(mean=1.0)),
    "shapes": (lambda: np.zeros(3), lambda: np.zeros((3, 1))),
    "types": (lambda: np.zeros(3), lambda: np.zeros(3, dtype=np.float32)),
    "short floats": (lambda: torch.zeros(2, dtype=torch.bfloat16), lambda: torch.zeros(2, dtype=torch.float16)),
    "sparse": (lambda: torch.eye(90).to_sparse(), lambda: torch.eye(90).index_fill(0, torch.tensor(50), 2).to_sparse()),
    "closures": (lambda: closed(2.0), lambda: closed(3.0)),
    "networks in closures": (lambda: closed(NET), lambda: closed(trained())),
    "functions in closures": (lambda: closed(plus(1)), lambda: closed(plus(2))),
    "decorated functions": (lambda: decorated("+"), lambda: decorated("-")),
    "instructions": (lambda: lambda x: x + 1, lambda: lambda x: x - 1),
    "constants": (lambda: lambda x: x + 1, lambda: lambda x: x + 2),
    "defaults": (lambda: lambda x, by=1: x, lambda: lambda x, by=2: x),
    "names": (lambda: lambda x: np.sin(x), lambda: lambda x: np.cos(x)),
    "globals of a comprehension": (lambda: listed(2), lambda: listed(3)),
    "partial": (lambda: partial(pow, 2), lambda: partial(pow, 3)),
    "settings": (lambda: usu.PRESETS["cell"], lambda: replace(usu.PRESETS["cell"], segmenter=usu.segment.Tiles())),
    "slots": (lambda: Slotted(1), lambda: Slotted(2)),
    "enum": (lambda: Mode.A, lambda: Mode.B),
    "paths": (lambda: Path("a"), lambda: Path("b")),
    "ufuncs": (lambda: np.sin, lambda: np.cos),
    "methods": (lambda: torch.zeros(2).sum, lambda: torch.ones(2).sum),
    "cached": (lambda: cache(plus(1)), lambda: cache(plus(2))),
    "fingerprints": (lambda: Printed("a"), lambda: Printed("b")),
    "mappings": (lambda: {"a": 1}, lambda: {"a": 2}),
}  # fmt: skip


@pytest.mark.parametrize(("one", "other"), DIFFERENT.values(), ids=DIFFERENT)
def test_other_values_are_described_otherwise(one, other):
    assert described(one()) == described(one())
    assert described(one()) != described(other())


def test_a_network_is_its_code_too():
    assert repr(Scaled()) == repr(Softer())
    first, second = described(Scaled()), described(Softer())
    assert first["weights"] == second["weights"]
    assert first["structure"] != second["structure"]


def test_what_changes_by_itself_is_left_out():
    seen, count = [], 0

    def model(batch):
        nonlocal count
        seen.append(1)
        count += 1
        return batch

    before = described(model)
    model(0)
    assert described(model) == before
    NET.train()
    try:
        training = described(NET)
    finally:
        NET.eval()
    assert training == described(NET)


def test_whatever_is_there_can_be_described():
    class Knot:
        pass

    knot = Knot()
    knot.self, knot.log, knot.library = [knot], logging.getLogger("usu.test"), np
    assert described(knot)["has"] == {"self": [described(Knot())["kind"]], "library": "None.numpy"}
    for odd in (nn.Linear(2, 2, device="meta"), nn.LazyLinear(3), object()):
        assert json.dumps(described(odd)) == json.dumps(described(odd))
    conjugate = torch.complex(torch.ones(2), torch.ones(2)).conj()
    assert described(conjugate) == described(conjugate.resolve_conj())
