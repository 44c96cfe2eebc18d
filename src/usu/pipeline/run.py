"""`upsample`: coarse map + picture + model -> segments -> scores -> one redistribution."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from usu.errors import UsuWarning
from usu.forward import Engine, Model, Progress, Target
from usu.forward import engine as engine_of
from usu.forward.digest import versions
from usu.forward.engine import RuntimeName
from usu.forward.fills import Drop
from usu.inputs import Input, agree, call_of, model_name, model_of
from usu.operator.cells import Labels, partition_of
from usu.operator.redistribute import SoftPrior, cell_budgets
from usu.pipeline.certainty import blunter, certainty_of, sentence, stability_so_far
from usu.pipeline.halves import (
    finer_of,
    map_of,
    scores_of,
)
from usu.results import Upsampled
from usu.score.groups import Effects
from usu.settings import Settings, settings_of
from usu.sources.cams import CoarseMap
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
        image: what the model takes, (C, H, W) or (B, C, H, W). A signal is (C, L), a volume or a video (C, D, H, W),
            with ``coarse`` (l,) and (d, h, w); where both could be, the model's first convolution decides, and without
            one it is a picture.
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
    about: dict[str, Any] = {"preset": settings.name, "settings": settings.described()}
    limit, asked = settings.limit, model_of(model)
    about["model"] = model_name(asked)
    inputs, batched, back = call_of(coarse, image, target, model=asked, picture=picture, cells=cells, finer=finer)
    engines = []
    for given in inputs:  # a callable target reads the raw output; log-odds are of classes
        link: Any = "logit" if callable(given.target) and settings.link == "log_odds" else settings.link
        engines.append(engine_of(asked, given.target, link=link, limit=limit))
    done = [_one(given, own, settings, about, back, progress) for given, own in zip(inputs, engines, strict=True)]
    for number, given in enumerate(inputs):
        if given.empty:
            which = f" of picture {number}" if batched else ""
            warnings.warn(
                f"The coarse map{which} is zero everywhere, and so is its pixel map.", UsuWarning, stacklevel=2
            )
    return _batch(done) if batched else done[0]


def _one(
    given: Input, asked: Engine, settings: Settings, about: dict[str, Any], back: Any, progress: Progress | None
) -> Upsampled[Any]:
    """One picture of a call."""
    start = time.perf_counter()
    asked, finer = finer_of(given, asked, settings)
    # the scores of a gradient, and no scores at all, have no use for another runtime than torch
    scored_by_passes = settings.scoring in ("sampled", "delete") and not given.empty
    fast, ran_by, note = settings.engine if scored_by_passes else "torch", "torch", ""
    if isinstance(settings.fill, Drop) and scored_by_passes:
        from usu.sources.tokens import token_drop

        fast, asked = "torch", asked.run_by(token_drop(asked.model, given.image))
    if fast != "torch" or not isinstance(asked.model, nn.Module):
        from usu.forward.runtime import runtime

        runs = runtime(asked.model, given.image, fast)
        asked, ran_by, note = asked.run_by(runs.model), runs.name, runs.note

    def enough(effects: Effects, labels: Any) -> bool:
        return stability_so_far(effects, labels, given, settings, finer) >= settings.stability

    scored = scores_of(given, asked, settings, finer=finer, progress=progress, enough=enough)
    # a callable target may turn out to hold several
    several = given.several or len(scored.field) > 1
    if len(given.maps) > 1:
        agree(len(given.maps), len(scored.field))
    field = (scored.field if several else scored.field[0]).to(given.coarse.device)
    levels = finer if several else tuple(level[0] for level in finer)
    result = map_of(given.coarse, field, settings, cells=given.cells, finer=levels)
    mass_error = mass_error_of(result, given.coarse, field, settings, cells=given.cells)
    certainty = certainty_of(scored, given, settings, levels) if scored.effects is not None else None
    pixel_map, scores = back(result), back(field)
    stderr = None if certainty is None else back(certainty.stderr)
    doubts = "" if certainty is None else sentence(certainty, settings.stability)
    notes = {note, doubts, blunter(settings) if scored_by_passes else ""} - {""}
    # scores that draw no lots would be the same again; of those that do, without a posterior, nobody knows
    lots = settings.scoring == "sampled" and not given.empty
    return Upsampled(
        pixel_map=pixel_map,
        stderr=stderr,
        stability=certainty.stability if certainty is not None else None if lots else 1.0,
        scores=scores,
        effects=scored.effects,
        segments=scored.segments,
        depth_scores=scored.fields,
        evaluations=asked.meter.spent,
        stop_reason=scored.stop_reason,
        mass_error=mass_error,
        seconds=time.perf_counter() - start,
        provenance=about | {"engine": ran_by, "notes": sorted(notes), "target": scored.target, "versions": versions()},
        picture=given.picture,
    )


def mass_error_of(
    result: Tensor, coarse: Tensor, scores: Tensor, settings: Settings, *, cells: Array | Labels | None = None
) -> float:
    """Largest relative error of what the budget promises; a cell of no mass is measured against the mean mass.

    A total is measured against the mass of both signs, because they may cancel.
    """
    parts, _ = partition_of(coarse, scores, cells)
    sums = parts.total(result.detach().reshape(-1, *parts.lattice))
    if isinstance(settings.budget, SoftPrior):
        flat = coarse.detach().double().reshape(-1, len(parts.sizes)) * parts.sizes
        wanted, sums = flat.sum(1, keepdim=True).expand(len(sums), 1), sums.sum(1, keepdim=True)
        scale = flat.abs().sum(1, keepdim=True).expand_as(sums)
    else:
        budgets = cell_budgets(
            coarse.detach().double(), scores, cells=cells, budget=settings.budget, signed=settings.signed
        )
        wanted = budgets.reshape(-1, len(parts.sizes))
        mean = wanted.abs().mean(1, keepdim=True)
        scale = wanted.abs().where(wanted.abs() > 1e-9 * mean, mean)
    return float(((sums - wanted).abs() / scale.where(scale > 0, 1)).max())


def _batch(done: Sequence[Upsampled[Any]]) -> Upsampled[Any]:
    """Several pictures as one result."""
    stack: Any = torch.stack if isinstance(done[0].pixel_map, Tensor) else np.stack
    known = any(one.stderr is not None for one in done)  # a map of zeros has no posterior, and no error
    kept = ("stability", "effects", "segments", "depth_scores", "stop_reason")
    each: dict[str, Any] = {name: tuple(getattr(one, name) for one in done) for name in kept}
    return Upsampled(
        pixel_map=stack([one.pixel_map for one in done]),
        stderr=stack([one.pixel_map * 0 if one.stderr is None else one.stderr for one in done]) if known else None,
        scores=stack([one.scores for one in done]),
        evaluations=sum(one.evaluations for one in done),
        mass_error=max(one.mass_error for one in done),
        seconds=sum(one.seconds for one in done),
        provenance={
            **done[0].provenance,
            "engine": ", ".join(sorted({one.provenance["engine"] for one in done})),
            "notes": sorted({note for one in done for note in one.provenance["notes"]}),
            "target": tuple(one.provenance["target"] for one in done),
        },
        picture=np.stack([one.picture for one in done if one.picture is not None]),
        **each,
    )
