"""One forward and one backward pass: every segment's effect to first order."""

from __future__ import annotations

import torch

from usu.forward import Engine
from usu.forward.fills import Fill
from usu.score.groups import Scores, segmented
from usu.types import Array


def gradient(engine: Engine, image: Array, segments: Array, *, fill: Fill = "blur") -> Scores:
    """δ_p ≈ Σ over the pixels and channels of S_p of ∂g/∂x · (x - filled x).

    Needs a model that can be differentiated. The parameters' gradients are neither computed nor touched.

    Guarantees:
        Equal to `delete` for a linear model. One evaluation; one backward pass per target.

    >>> from usu.forward import engine
    >>> total = engine(lambda batch: batch.sum((1, 2, 3))[:, None], target=0)
    >>> gradient(total, torch.tensor([[[1.0, 2.0, 4.0]]]), torch.tensor([[0, 1, 1]]), fill=0).values
    tensor([[1., 6.]], dtype=torch.float64)
    """
    parts = segmented(engine, image, segments, fill)
    (aimed, _), slopes = engine.slope(parts.image)
    effect = (slopes.double() * (parts.image - parts.filled).double()).sum(1).flatten(1)
    values = torch.zeros(len(effect), parts.count, dtype=torch.float64, device=effect.device)
    values.index_add_(1, parts.segments.flatten(), effect)
    return Scores(values.cpu(), None, 1, aimed.target)
