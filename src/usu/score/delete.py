"""One segment at a time: take it away, or show nothing else."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from usu import _checks as check
from usu.forward import Engine, Progress
from usu.forward.fills import Fill
from usu.score.groups import Scores, segmented
from usu.types import Array


def delete(
    engine: Engine,
    image: Array,
    segments: Array,
    *,
    fill: Fill = "blur",
    mode: Literal["delete", "keep", "both"] = "delete",
    which: Array | None = None,
    reference: Tensor | None = None,
    progress: Progress | None = None,
) -> Scores:
    """δ_p = g(picture) - g(picture with S_p filled).

    Args:
        engine: the model and the question; see `usu.forward.engine`.
        image: (C, H, W), as the model takes it.
        segments: (H, W) labels from 0.
        fill: what takes a segment's place; see `usu.fills`.
        mode: ``"delete"`` as above; ``"keep"``: δ_p = g(S_p alone) - g(everything filled); ``"both"``: their mean.
        which: labels (or booleans) of the segments to evaluate; the others come back as NaN.
        reference: (T,) values of the picture itself, if they are known already (`Engine.aim`); saves one pass.
        progress: called with the number of pictures done and in all.

    Guarantees:
        The same numbers as captum's FeatureAblation (``mode="delete"``). Evaluations: one per segment and mode, plus
        one for g(picture) unless ``reference`` is given or not needed, plus one for g(everything filled) in the
        modes that need it.

    >>> from usu.forward import engine
    >>> total = engine(lambda batch: batch.sum((1, 2, 3))[:, None], target=0)
    >>> delete(total, torch.tensor([[[1.0, 2.0, 4.0]]]), torch.tensor([[0, 1, 1]]), fill=0).values
    tensor([[1., 6.]], dtype=torch.float64)
    """
    check.choice("mode", mode, ("delete", "keep", "both"))
    parts, before = segmented(engine, image, segments, fill, which), engine.meter.spent
    asked = parts.asked
    if reference is None and (mode != "keep" or engine.target is None):
        engine, reference = engine.aim(parts.image)

    deleting = len(asked) if mode != "keep" else 0
    keeping = len(asked) if mode != "delete" and len(asked) else 0
    # rows: every deletion, then every segment alone, then the empty picture
    total = deleting + keeping + (keeping > 0)

    def shown(rows: slice) -> Tensor:
        row = torch.arange(rows.start, rows.stop)
        alone = row >= deleting
        subject = asked[row.where(~alone, row - deleting).clamp(max=len(asked) - 1)]
        one = torch.nn.functional.one_hot(subject, parts.count).bool()
        found = torch.where(alone[:, None], one, ~one)
        found[row == deleting + keeping] = False
        return found

    values = parts.values(engine, total, shown, progress)
    effects = []
    if deleting and reference is not None:
        effects.append(reference.cpu().double() - values[:deleting])
    if keeping:
        effects.append(values[deleting:-1] - values[-1])
    targets = values.shape[1] if total else len(reference) if reference is not None else 1
    result = parts.start.repeat(targets, 1)
    if effects:
        result[:, asked] = torch.stack(effects).mean(0).T
    return Scores(result, None, engine.meter.spent - before)
