"""`upsample`: coarse map + picture + model -> segments -> scores -> one redistribution."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from usu.errors import UsuWarning
from usu.forward import Engine, Model, Progress, Target
from usu.forward import engine as engine_of
from usu.forward.engine import RuntimeName
from usu.inputs import Input, agree, call_of, model_of
from usu.pipeline.halves import (
    Certainty,
    Scored,
    certainty_of,
    finer_of,
    map_of,
    maps_of,
    mass_error_of,
    model_name,
    scores_of,
    sentence,
    stable,
)  # fmt: skip
from usu.results import Upsampled, versions
from usu.settings import Settings, settings_of
from usu.sources.coarse import CoarseMap
from usu.types import Array, ArrayT


def upsample(
    coarse: ArrayT | CoarseMap,
    image: Array,
    model: Model,
    target: Target | Sequence[Target] = None,
    *,
    preset: str | Settings | None = None,
    evaluations: int | Literal["auto"] | None = None,
    seed: int | None = None,
    engine: RuntimeName | None = None,
    picture: Array | None = None,
    cells: Array | None = None,
    finer: Sequence[Array] | None = None,
    progress: Progress | None = None,
) -> Upsampled[ArrayT]:
    """Upsample a coarse map to the picture's resolution, its mass led by what the model says of the picture's parts.

    Args:
        coarse: (h, w) for one picture; (T, h, w) for several targets; a leading B for a batch; or what a source such
            as `usu.gradcam` returned. With ``cells``, (..., K) instead of (..., h, w).
        image: what the model takes, (C, H, W) or (B, C, H, W).
        model: an ``nn.Module`` or any callable batch -> logits; left exactly as it was found.
        target: class index; several for one picture; one (or several) per picture of a batch; a callable on the
            output; None for the model's top class.
        preset: ``"paper"``, ``"fast"``, ``"cell"``, ``"soft"``, or `Settings`. None is ``"cell"``: every cell keeps
            the mass it came with.
        evaluations: model evaluations per picture; None: as the preset has it. A number is made exactly by sampled
            scoring, unless refinement ends before the last depth or no score can change the result (a map of zeros).
            ``"auto"``: as many as the settings' ``stability`` takes, at most their ``ceiling``.
        seed: of the random groups; None: as the preset has it.
        engine: what runs the model for scores: ``"torch"`` (the presets'), ``"onnx"``, ``"compile"`` or ``"auto"``.
        picture: what the segmenter sees, (B,) H x W x 3 in [0, 1]; made from ``image`` by min-max if absent.
        cells: labels of the coarse values' cells, where they are no grid.
        finer: maps of finer layers made elsewhere, (..., h', w') with the leading dimensions of ``coarse``, the next
            finer first, of which two are used; then the model is not asked for them.
        progress: called with the evaluations done and to do. Where scores have a posterior it may return True: then the
            result is the map as it stands, with its own stability.

    Guarantees:
        Those of `usu.redistribute` with the settings' budget; ``mass_error`` of the result is the measured one.
        Never more than ``evaluations`` passes per picture. The model's mode, hooks, gradients and device are as
        before, also after an exception; one thread at a time asks a module, and the global random numbers are not used.

    >>> coarse, image = torch.tensor([[1.0]]), torch.zeros(1, 4, 4)
    >>> image[0, :, 2:] = 1  # the model sees only the bright half
    >>> result = upsample(coarse, image, lambda batch: batch.sum((1, 2, 3))[:, None], 0, evaluations=32)
    >>> result.evaluations, round(float(result.pixel_map.sum())), bool(result.pixel_map[0, 3] > result.pixel_map[0, 0])
    (32, 16, True)
    """
    settings = settings_of(preset, evaluations=evaluations, seed=seed, engine=engine)
    start = time.perf_counter()
    call, asked = call_of(coarse, image, target, picture=picture, cells=cells, finer=finer), model_of(model)
    engines = [
        engine_of(asked, given.target, link=_link(given, settings), limit=settings.limit) for given in call.inputs
    ]
    done = [_one(given, own, settings, progress) for given, own in zip(call.inputs, engines, strict=True)]
    for number, given in enumerate(call.inputs):
        if given.empty:
            which = f" of picture {number}" if call.batched else ""
            warnings.warn(
                f"The coarse map{which} is zero everywhere, and so is its pixel map.", UsuWarning, stacklevel=2
            )

    together = torch.stack if call.batched else lambda parts: parts[0]
    each = ((d.scored.segments, d.scored.fields, d.scored.stop_reason, d.scored.target, d.scored.effects) for d in done)
    segments, fields, reasons, targets, effects = (
        tuple(parts) if call.batched else parts[0] for parts in zip(*each, strict=True)
    )
    return Upsampled(
        pixel_map=call.back(together([d.pixel_map for d in done])),
        stderr=None if all(d.certainty is None for d in done) else call.back(together([d.stderr for d in done])),
        stability=tuple(d.stability for d in done) if call.batched else done[0].stability,
        scores=call.back(together([d.field for d in done])),
        effects=effects,
        segments=segments,
        depth_scores=fields,
        evaluations=sum(own.meter.spent for own in engines),
        stop_reason=reasons,
        mass_error=max(d.mass_error for d in done),
        seconds=time.perf_counter() - start,
        provenance={
            "preset": settings.name,
            "settings": settings.described(),
            "model": model_name(asked),
            "engine": ", ".join(sorted({d.ran_by for d in done})),
            "notes": sorted({note for d in done for note in (d.note, d.remark)} - {""}),
            "target": targets,
            "versions": versions(),
        },
        picture=np.stack([given.picture for given in call.inputs]) if call.batched else call.inputs[0].picture,
    )


@dataclass(frozen=True, eq=False)
class _Done:
    """One picture of a call, finished."""

    pixel_map: Tensor
    field: Tensor
    scored: Scored
    mass_error: float
    #: What ran the model for scores, and why it is not what was asked for.
    ran_by: str
    note: str
    certainty: Certainty | None
    #: Of scores that draw no lots it is 1; of those without a posterior nobody knows.
    stability: float | None
    #: What a person should know of the stability.
    remark: str = ""

    @property
    def stderr(self) -> Tensor:
        """Of each pixel; none where there was nothing to move."""
        return torch.zeros_like(self.pixel_map) if self.certainty is None else self.certainty.stderr


def _one(given: Input, asked: Engine, settings: Settings, progress: Progress | None) -> _Done:
    asked, finer = finer_of(given, asked, settings)
    # the scores of a gradient, and no scores at all, have no use for another runtime than torch
    fast = settings.engine if settings.scoring in ("sampled", "delete") and not given.empty else "torch"
    ran_by, note = "torch", ""
    if fast != "torch" or not isinstance(asked.model, nn.Module):
        from usu.forward.runtime import runtime

        runs = runtime(asked.model, given.image, fast)
        asked, ran_by, note = asked.run_by(runs.model), runs.name, runs.note
    scored = scores_of(
        given, asked, settings, finer=finer, progress=progress,
        enough=partial(stable, given=given, settings=settings, finer=finer),
    )  # fmt: skip
    # a callable target may turn out to hold several
    several = given.several or len(scored.field) > 1
    agree(len(maps_of(given)), len(scored.field))
    field = (scored.field if several else scored.field[0]).to(given.coarse.device)
    finer = tuple(level if several else level[0] for level in finer)
    result = map_of(given.coarse, field, settings, cells=given.cells, finer=finer)
    error = mass_error_of(result, given.coarse, field, settings, cells=given.cells)
    certainty = certainty_of(scored, given, settings, finer) if scored.effects is not None else None
    lots = settings.scoring == "sampled" and not given.empty
    stability = certainty.stability if certainty is not None else None if lots else 1.0
    remark = "" if certainty is None else sentence(certainty, settings.stability)
    return _Done(result, field, scored, error, ran_by, note, certainty, stability, remark)


def _link(given: Input, settings: Settings) -> Any:
    """A callable target reads the raw output; log-odds are of classes."""
    return "logit" if callable(given.target) and settings.link == "log_odds" else settings.link
