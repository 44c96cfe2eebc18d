"""All metrics of one photograph for eight upsamplers: how many pictures reach the model, and how many of them differ.

What is passed twice is what two maps rank alike (the same pixels hidden), and the ends of some curves.
"""

from __future__ import annotations

from typing import Any

import torch
from skimage import data
from torch import Tensor

import usu
from usu.bench import Sample
from usu.forward.digest import digest
from usu.forward.runtime import runtime
from usu.models import load

UPSAMPLERS = ("nearest", "bilinear", "bicubic", "lanczos3", "cell", "soft", "fast", "paper")
#: Of all passes over those of distinct pictures.
TARGET = 1.2


class Counted:
    """A model that knows which pictures it was shown, by their content."""

    def __init__(self, model: Any) -> None:
        self.model, self.passed = model, 0
        self.seen: set[str] = set()

    def __call__(self, batch: Tensor) -> Any:
        self.passed += len(batch)
        self.seen |= {digest(one.contiguous().numpy().tobytes()) for one in batch}
        return self.model(batch)

    @property
    def ratio(self) -> float:
        return self.passed / len(self.seen)


def main() -> None:
    loaded = load()
    image, _ = loaded.prepare(data.chelsea())
    truth = torch.zeros(224, 224, dtype=torch.bool)
    truth[40:200, 30:190] = True
    counted = Counted(runtime(loaded.model, image, "auto").model)
    usu.evaluate(
        UPSAMPLERS, [Sample("chelsea", image, truth=truth.numpy())], loaded.model, ["all"], evaluations=300,
        forward=counted, layer=loaded.layer,
    )  # fmt: skip
    print(f"\n## all metrics of one photograph, {len(UPSAMPLERS)} upsamplers, 300 evaluations each\n")
    print(
        f"{counted.passed} pictures were passed, {len(counted.seen)} of them different: {counted.ratio:.3f} (wanted: "
        f"{TARGET})"
    )


if __name__ == "__main__":
    main()
