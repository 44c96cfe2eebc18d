from __future__ import annotations

import numpy as np
import torch

from tests.chosen import chosen
from usu.forward import engine
from usu.forward.fills import Constant
from usu.inputs import Input
from usu.pipeline.halves import Scorer

#: Segment 0 is the left half; the right half has three.
LABELS = np.array([[0, 0, 1, 1], [0, 0, 2, 2], [0, 0, 3, 3]])


def test_a_segment_that_cannot_change_the_result_gets_the_lowest_score_of_the_others():
    """All effects are negative here: a score of 0 would make the segment that nobody asked about the best of all."""
    weights = -torch.arange(4.0)[torch.from_numpy(LABELS)]  # a pixel of segment s brings -s
    model = lambda batch: (batch[:, 0] * weights).sum((1, 2))[:, None]  # noqa: E731
    coarse = torch.tensor([[0.0, 1.0]], dtype=torch.float64)
    image = torch.ones(1, 3, 4)
    settings = chosen(
        "paper", scoring="delete", mode="delete", fill=Constant(0.0), budget="cell", edges="segments", trace=0.0,
        link="logit", depth=0,
    )  # fmt: skip
    asked = engine(model, 0, limit=5)
    scorer = Scorer(Input(coarse, image, np.zeros((3, 4, 3))), asked, settings)
    found = scorer(LABELS, np.arange(4))
    assert found.tolist() == [[-6.0, -2.0, -4.0, -6.0]]
    assert asked.meter.spent == 4, "the picture and three segments"
