"""`upsample` and `explain`: coarse map + picture + model -> segments -> scores -> one redistribution."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from usu import _checks as check
from usu._checks import as_numpy
from usu.errors import UsuWarning
from usu.forward import Engine, Model, Progress, Target
from usu.forward import engine as engine_of
from usu.forward.engine import RuntimeName
from usu.inputs import Input, agree, call_of, displayable, model_of
from usu.models.pictures import Geometry
from usu.pipeline.halves import Scored, finer_of, map_of, mass_error_of, model_name, scores_of
from usu.pipeline.stability import Certainty, certainty_of, expected_stability, sentence
from usu.results import Explanation, Upsampled, versions
from usu.settings import EXPLAIN_DEFAULT, Settings, settings_of
from usu.sources.cams import coarse_map
from usu.sources.coarse import CoarseMap
from usu.types import Array, ArrayT, NDArray

#: A target less probable than this, and not among so many likeliest classes, may be a wrong index.
TINY, LIKELIEST = 1e-3, 5


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
        progress: called with the evaluations done and to do.

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
    )


def explain(
    model: nn.Module | Model,
    image: Array,
    target: Target = None,
    *,
    source: str | Array = "gradcam",
    layer: str | nn.Module | None = None,
    preset: str | Settings | None = None,
    evaluations: int | Literal["auto"] | None = None,
    picture: Array | None = None,
    classes: Sequence[str] | None = None,
    original: NDArray | None = None,
    geometry: Geometry | None = None,
    progress: Progress | None = None,
) -> Explanation:
    """Why the model said what it said about one picture: a coarse map from a source, upsampled.

    Args:
        model: an ``nn.Module`` (sources need gradients); any callable if ``source`` is a map of your own.
        image: what the model takes, (C, H, W) or (1, C, H, W).
        target: class index, a callable on the output, or None for the model's top class.
        source: ``"gradcam"``, ``"hirescam"``, ``"layercam"``, ``"attention_rollout"`` or ``"gradient_attention"``; or a
            coarse map (h, w) made elsewhere.
        layer: where the first three look; None takes the last spatial layer and says why.
        preset: as in `usu.upsample`; None is ``"soft"``: the total is kept and follows the model most faithfully.
        evaluations: see `usu.upsample`; the source's own pass is counted apart.
        picture: H x W x 3 in [0, 1], for segments and figures; made from ``image`` by min-max if absent.
        classes: names, for the label of the result.
        original: the file's own picture H x W x 3 in [0, 1] and
        geometry: how ``image`` sits in it, so that overlays come at its own resolution.
        progress: called with the evaluations done and to do.

    A source may find no evidence for the target, and its map is zero. Then what is known is shown instead, and a
    `usu.errors.UsuWarning`, ``instead`` of the result, its manifest and its figure say so: the evidence against the
    target where there is some, otherwise the scores on a coarse map of ones. A warning also says that the target's
    probability is tiny, because its index may be wrong.

    >>> net = nn.Sequential(nn.Conv2d(1, 2, 3, stride=2), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    >>> with torch.no_grad(): _ = net[0].weight.fill_(1.0), net[0].bias.fill_(0.0)
    >>> found = explain(net, torch.rand(1, 9, 9), 1, evaluations=8)
    >>> found.coarse.shape, found.pixel_map.shape, found.label, found.source.layer
    ((4, 4), (9, 9), 'class 1', '0')
    """
    model = model_of(model)
    images = check.as_tensor("image", image)
    if images.ndim == 3:
        images = images[None]
    if images.ndim != 4 or len(images) != 1:
        more = " Explain the pictures of a batch one by one, or use usu.upsample." if images.ndim == 4 else ""
        raise ValueError(f"`image` must be one picture, C x H x W; got {check.shape(images)}.{more}")
    settings = settings_of(preset, default=EXPLAIN_DEFAULT, evaluations=evaluations)
    coarse = _coarse(model, images, target, source, layer, finer=settings.base == "layers")
    shown = as_numpy(displayable(images[0]) if picture is None else picture)
    values, finer, instead = _shown_of(coarse, settings)
    coarse = replace(coarse, notes=_remarks(coarse, instead))
    for remark in coarse.notes:
        warnings.warn(remark, UsuWarning, stacklevel=2)
    upsampled = upsample(
        values,
        images[0],
        model,
        coarse.targets[0] if coarse.targets else target,
        preset=settings,
        finer=finer,
        picture=shown,
        progress=progress,
    )
    index = upsampled.provenance["target"]
    if isinstance(index, int):
        coarse = replace(coarse, targets=(index,))
        label = classes[index] if classes is not None and index < len(classes) else f"class {index}"
    else:
        label = "no class asked for" if index is None else str(index)
    return Explanation(coarse, values, upsampled, shown, label, original, geometry, instead=instead)


def _shown_of(coarse: CoarseMap, settings: Settings) -> tuple[NDArray, list[Tensor] | None, str | None]:
    """The map to upsample, maps of finer layers (None: nobody looked), and what it is where the source's is zero."""
    finer = [level[0] for level in coarse.finer]
    values = coarse.values[0]
    instead = None
    if coarse.empty[0]:
        if coarse.signed is not None and coarse.only_negative[0]:
            values, instead = coarse.signed[0], "the evidence against the target"
        elif settings.scoring != "none":
            values, finer, instead = torch.ones_like(values), [], "the scores alone, on a coarse map of ones"
        elif any(bool(level.any()) for level in finer):
            values, instead = torch.ones_like(values), "the finer layers alone, on a coarse map of ones"
    plain = as_numpy(values).astype(np.float64)
    return plain, finer if finer or (instead and settings.scoring != "none") else None, instead


def _remarks(coarse: CoarseMap, instead: str | None) -> tuple[str, ...]:
    """What a person should know before believing the result."""
    notes = list(coarse.notes)
    if instead is not None:
        why = notes.pop(0) if notes else "The coarse map is zero everywhere."
        notes.insert(0, f"{why} Shown instead: {instead}.")
    for goal in coarse.goals:
        if goal.probability is not None and goal.probability < TINY and goal.likelier >= LIKELIEST:
            notes.append(
                f"The model gives class {goal.number} a probability of {goal.probability:.1g} here and finds "
                f"{goal.likelier} classes likelier. Is it the class you mean?"
            )
    return tuple(notes)


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
        enough=lambda found, labels: expected_stability(found, labels, given, settings, finer) >= settings.stability,
    )  # fmt: skip
    # a callable target may turn out to hold several
    several = given.several or len(scored.field) > 1
    agree(given.coarse.numel() // len(given.partition.sizes), len(scored.field))
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


def _coarse(model: Any, images: Tensor, target: Any, source: str | Array, layer: Any, *, finer: bool) -> CoarseMap:
    if not isinstance(source, str):
        values = check.as_tensor("source", source)
        if values.ndim != 2:
            raise ValueError(f"`source` must be one coarse map, h x w; got {check.shape(values)}.")
        known = (target,) if isinstance(target, int) else None
        return CoarseMap(values[None], "", "made elsewhere", known, 0)
    return coarse_map(source, model, images, target, layer=layer, finer=finer)
