"""How busy the hot paths are: calls of our functions, operators of torch, bytes these allocate. No clock is asked.

``python -m tests.busy`` writes the figures that ``tests/contracts/test_busy.py`` compares with.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import usu
from tests.small_nets import Tower, seeded

FIGURES = Path(__file__).parent / "contracts" / "busy.json"
SOURCE = str(Path(usu.__file__).parent)


class Operators(TorchDispatchMode):
    """Counts operators, and the bytes of results that are no views of what they were given."""

    def __init__(self) -> None:
        super().__init__()
        self.count = self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        given = {_storage(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)}
        made = {_storage(leaf) for leaf in tree_leaves(found) if isinstance(leaf, torch.Tensor)} - given
        self.count += 1
        self.bytes += sum(size for _, size in made)
        return found


def _storage(tensor: torch.Tensor) -> tuple[int, int]:
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.nbytes()


def busy(work: Callable[[], object]) -> dict[str, int]:
    """What one run takes, after a first one that imports and remembers."""
    calls = 0

    def called(frame: Any, event: str, _: object) -> None:
        nonlocal calls
        code = frame.f_code  # comprehensions are calls in some versions of Python only
        calls += event == "call" and code.co_filename.startswith(SOURCE) and not code.co_name.startswith("<")

    work()
    before = sys.getprofile()
    sys.setprofile(called)
    try:
        work()
    finally:
        sys.setprofile(before)
    with Operators() as operators:
        work()
    return {"calls": calls, "operators": operators.count, "bytes": operators.bytes}


def paths() -> dict[str, Callable[[], object]]:
    """The hot paths by their names."""
    dice = torch.Generator().manual_seed(0)
    coarse, scores = torch.rand(7, 7, generator=dice), torch.rand(224, 224, generator=dice)
    small, image = torch.rand(4, 4, generator=dice), torch.rand(3, 32, 32, generator=dice)
    field, net = torch.rand(32, 32, generator=dice), seeded(Tower)
    return {
        "redistribute": lambda: usu.redistribute(coarse, scores),
        "interpolate": lambda: usu.interpolate(coarse, (224, 224), "bilinear"),
        "soft": lambda: usu.upsample(small, image, net, 1, preset="soft", evaluations=120),
        "deletion": lambda: usu.metrics.deletion(field, image, net, 1),
    }


def main() -> None:
    found = {name: busy(work) for name, work in paths().items()}
    FIGURES.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
