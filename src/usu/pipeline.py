"""The only file that knows every stage: coarse map + picture + model -> segments -> scores -> one redistribution."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from usu import _checks as check
from usu._checks import as_numpy
from usu.forward import Engine, Model, Progress, engine
from usu.forward.fills import Fill, fill_named
from usu.forward.outputs import Link, Target
from usu.inputs import Job, agree, displayable, jobs
from usu.models.preparation import Geometry
from usu.operator.budgets import Budget, SoftPrior
from usu.operator.cells import Partition, partition_of
from usu.operator.guided import follow_picture
from usu.operator.redistribute import cell_budgets, redistribute
from usu.refine import Refined, StopReason, refine
from usu.results import Explanation, Upsampled, versions
from usu.scorer import Scorer
from usu.segment import Segmenter, split
from usu.settings import EXPLAIN_DEFAULT, PRESETS, UPSAMPLE_DEFAULT, Settings, settings_of
from usu.sources import CoarseMap, coarse_map
from usu.sources.finer import finer_maps, module_of
from usu.spread import spread
from usu.types import Array, ArrayT, NDArray

#: "As the preset has it", for settings in which None means something.
AsPreset: TypeAlias = Literal["preset"]


def upsample(
    coarse: ArrayT,
    image: Array,
    model: Model,
    target: Target | Sequence[Target] = None,
    *,
    preset: str | Settings | None = None,
    evaluations: int | None = None,
    cells: Array | None = None,
    picture: Array | None = None,
    segmenter: Segmenter | None = None,
    parts: int | None = None,
    scoring: Literal["sampled", "delete", "gradient", "unguided", "none"] | None = None,
    fill: Fill | None = None,
    link: Link | None = None,
    depth: int | None = None,
    temperature: float | None = None,
    budget: Budget | None = None,
    base: Literal["bilinear", "layers"] | AsPreset | None = "preset",
    finer: Sequence[Array] | None = None,
    max_gain: float | AsPreset | None = "preset",
    seed: int | None = None,
    device: torch.device | str | None = None,
    autocast: bool = False,
    chunk: int | None = None,
    progress: Progress | None = None,
) -> Upsampled[ArrayT]:
    """Upsample a coarse map to the picture's resolution, its mass led by what the model says of the picture's parts.

    Args:
        coarse: (h, w) for one picture; (T, h, w) for several targets; a leading B for a batch. With ``cells``,
            (..., K) instead of (..., h, w).
        image: what the model takes, (C, H, W) or (B, C, H, W).
        model: an ``nn.Module`` or any callable batch -> logits; left exactly as it was found.
        target: class index; several for one picture; one (or several) per picture of a batch; a callable on the
            output; None for the model's top class.
        preset: ``"paper"``, ``"fast"``, ``"cell"``, ``"soft"``, or `Settings`. None is ``"cell"``: every cell keeps
            the mass it came with.
        evaluations: the most model evaluations per picture. Sampled scoring makes exactly so many, unless
            refinement ends before the last depth or no score can change the result (a map of zeros).
        cells: labels of the coarse values' cells, where they are no grid.
        picture: what the segmenter sees, (B,) H x W x 3 in [0, 1]; made from ``image`` by min-max if absent.
        segmenter: see `usu.segment`.
        parts: about how many segments.
        scoring: ``"sampled"``, ``"delete"``, ``"gradient"`` or ``"unguided"``, see `usu.score`; or ``"none"``.
        fill: what takes the place of a segment; see `usu.fills`.
        link: ``"logit"``, ``"log_probability"``, ``"probability"`` or a callable.
        depth: levels of refinement after the first.
        temperature: of the potential.
        budget: see `usu.redistribute`.
        base: ``"bilinear"``, ``"layers"`` (what finer layers of the model say, too; one evaluation) or None.
        finer: maps of finer layers made elsewhere, (..., h', w') with the leading dimensions of ``coarse``, the next
            finer first, of which two are used; then the model is not asked for them.
        max_gain: ceiling on a pixel's density over its cell's, or None.
        seed: of the random groups.
        device: where batches go if the model does not tell.
        autocast: run the model in mixed precision.
        chunk: pictures per batch; None sizes it to memory.
        progress: called with the evaluations done and to do.

    Guarantees:
        Those of `usu.redistribute` with the settings' budget; ``mass_error`` of the result is the measured one.
        Never more than ``evaluations`` passes per picture. The model's mode, hooks, gradients and device and the
        global random numbers are as before, also after an exception.

    >>> coarse, image = torch.tensor([[1.0]]), torch.zeros(1, 4, 4)
    >>> image[0, :, 2:] = 1  # the model sees only the bright half
    >>> result = upsample(coarse, image, lambda batch: batch.sum((1, 2, 3))[:, None], 0, evaluations=32, parts=4)
    >>> result.evaluations, round(float(result.pixel_map.sum())), bool(result.pixel_map[0, 3] > result.pixel_map[0, 0])
    (32, 16, True)
    """
    chosen = settings_of(preset)
    given = {
        "evaluations": evaluations,
        "segmenter": segmenter,
        "parts": parts,
        "scoring": scoring,
        "fill": fill,
        "link": link,
        "depth": depth,
        "temperature": temperature,
        "budget": budget,
        "seed": seed,
    }
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    changes |= {name: value for name, value in (("base", base), ("max_gain", max_gain)) if not _as_preset(value)}
    settings = replace(chosen, **changes)
    _checked_settings(settings)

    start = time.perf_counter()
    values = check.as_tensor("coarse", coarse)
    check.finite("coarse", values)
    images = check.as_tensor("image", image)
    check.finite("image", images)
    batched = images.ndim == 4
    work = jobs(values, images if batched else images[None], target, picture, cells, finer, batched=batched)
    engines = [
        engine(model, job.target, link=settings.link, device=device, autocast=autocast, chunk=chunk) for job in work
    ]
    done = [_one(job, asked, settings, progress) for job, asked in zip(work, engines, strict=True)]

    back = check.like_input(coarse)
    together = torch.stack if batched else lambda parts: parts[0]
    each = ((d.refined.segments, d.refined.fields, d.refined.stop_reason, d.target) for d in done)
    segments, fields, reasons, targets = (tuple(parts) if batched else parts[0] for parts in zip(*each, strict=True))
    return Upsampled(
        pixel_map=back(together([d.pixel_map for d in done])),
        scores=back(together([d.field for d in done])),
        segments=segments,
        depth_scores=fields,
        evaluations=sum(d.refined.evaluations for d in done),
        stop_reason=reasons,
        mass_error=max(d.mass_error for d in done),
        seconds=time.perf_counter() - start,
        provenance={
            "preset": _preset_name(preset),
            "settings": settings.described(),
            "model": _name(model),
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
    evaluations: int | None = None,
    picture: Array | None = None,
    classes: Sequence[str] | None = None,
    original: NDArray | None = None,
    geometry: Geometry | None = None,
    device: torch.device | str | None = None,
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
        device: where batches go if the model does not tell.
        progress: called with the evaluations done and to do.

    >>> net = nn.Sequential(nn.Conv2d(1, 2, 3, stride=2), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    >>> found = explain(net, torch.rand(1, 9, 9), 1, evaluations=8)
    >>> found.coarse.shape, found.pixel_map.shape, found.label, found.source.layer
    ((4, 4), (9, 9), 'class 1', '0')
    """
    images = check.as_tensor("image", image)
    if images.ndim == 3:
        images = images[None]
    if images.ndim != 4 or len(images) != 1:
        raise ValueError(
            f"`image` must be one picture, C x H x W; got {check.shape(images)}. Explain the pictures of a batch "
            "one by one, or use usu.upsample."
        )
    settings = settings_of(EXPLAIN_DEFAULT if preset is None else preset)
    coarse = _coarse(model, images, target, source, layer, finer=settings.base == "layers")
    goal = coarse.targets[0] if coarse.targets else target
    shown = as_numpy(displayable(images[0]) if picture is None else picture)
    values = as_numpy(coarse.values[0]).astype(np.float64)
    upsampled = upsample(
        values,
        images[0],
        model,
        goal,
        preset=EXPLAIN_DEFAULT if preset is None else preset,
        evaluations=evaluations,
        finer=[level[0] for level in coarse.finer] or None,
        picture=shown,
        device=device,
        progress=progress,
    )
    index = upsampled.provenance["target"]
    if isinstance(index, int):
        coarse = replace(coarse, targets=(index,))
        label = classes[index] if classes is not None and index < len(classes) else f"class {index}"
    else:
        label = "no class asked for" if index is None else str(index)
    return Explanation(coarse, values, upsampled, shown, label, original, geometry)


@dataclass(frozen=True, eq=False)
class _Done:
    """One picture of a call, finished."""

    pixel_map: Tensor
    field: Tensor
    refined: Refined
    target: Any
    mass_error: float


def _one(job: Job, asked: Engine, settings: Settings, progress: Progress | None) -> _Done:
    lattice = job.image.shape[-2:]
    blank = torch.zeros(lattice, dtype=job.coarse.dtype, device=job.coarse.device)
    cells, _ = partition_of(job.coarse, blank, job.cells)
    asked, finer, spent = _finer(job, asked, settings, len(cells.sizes))
    targets = len(finer[0]) if finer else None
    scorer = Scorer(job, asked, settings, cells, progress, spent=spent, targets=targets)
    unscored = settings.scoring == "none"
    segments = np.zeros(lattice, np.int64) if unscored else settings.segmenter(job.picture, settings.parts)
    refined = refine(
        scorer,
        lambda labels, which, limit: split(
            labels, which, job.picture, settings.segmenter, settings.children, limit=limit
        ),
        segments,
        depth=settings.depth,
        threshold=settings.threshold,
        center=settings.center,
        temperature=settings.mixing,
        tolerance=settings.tolerance,
        kind=settings.heterogeneity,
        reach=settings.reach,
        evaluations=None if settings.evaluations is None else max(0, settings.evaluations - spent),
        cost=scorer.cost,
    )
    # a callable target may turn out to hold several
    several = job.several or len(refined.scores) > 1
    agree(job.coarse.reshape(-1, len(cells.sizes)).shape[0], len(refined.scores))
    field = refined.scores
    if settings.edges == "picture" and not unscored:
        field = follow_picture(field, job.picture)
    field = (field if several else field[0]).to(job.coarse.device)
    finer = tuple(level if several else level[0] for level in finer)
    result = spread(job.coarse, field, settings, cells=job.cells, finer=finer)
    error = _mass_error(result, job, field, cells, settings)
    reason = refined.stop_reason
    if settings.depth == 0 and scorer.spent == settings.evaluations:
        reason = StopReason.EVALUATIONS
    refined = replace(refined, evaluations=scorer.spent, stop_reason=reason)
    return _Done(result, field, refined, scorer.target, error)


def _finer(job: Job, asked: Engine, settings: Settings, cells: int) -> tuple[Engine, tuple[Tensor, ...], int]:
    """The engine with its target known, maps (T, h', w') of finer layers, and the evaluations they took."""
    if settings.base != "layers":
        return asked, (), 0
    if job.finer is not None and (job.finer or settings.scoring != "none"):
        lead = 1 + int(job.several and job.finer[0].ndim > 2) if job.finer else 0
        return asked, tuple(level if lead > 1 else level[None] for level in job.finer), 0
    module = None if job.finer is not None else module_of(asked.model)
    if module is not None and bool(job.coarse.detach().any()):
        found = finer_maps(asked, module, job.image, cells)
        if found.maps or settings.scoring != "none":
            return found.engine, tuple(level.to(job.coarse) for level in found.maps), 1
    if settings.scoring == "none" and bool(job.coarse.detach().any()):
        raise ValueError(
            f"`model` must be an nn.Module with layers finer than `coarse`, because without scores they alone decide; "
            f"got {_name(asked.model)}. Use preset='cell' or 'soft', or hand the maps in with `finer`."
        )
    return asked, (), 0


def _mass_error(result: Tensor, job: Job, field: Tensor, cells: Partition, settings: Settings) -> float:
    """Largest relative error of what the budget promises; a cell of no mass is measured against the mean mass.

    A total is measured against the mass of both signs, because they may cancel.
    """
    sums = cells.total(result.detach().reshape(-1, *cells.lattice))
    if isinstance(settings.budget, SoftPrior):
        flat = job.coarse.detach().double().reshape(-1, len(cells.sizes))
        wanted = (flat * cells.sizes).sum(1, keepdim=True).expand(len(sums), 1)
        sums = sums.sum(1, keepdim=True)
        scale = (flat * cells.sizes).abs().sum(1, keepdim=True).expand_as(sums)
    else:
        budgets = cell_budgets(
            job.coarse.detach().double(), field, cells=job.cells, budget=settings.budget, signed=settings.signed
        )
        wanted = budgets.reshape(-1, len(cells.sizes))
        mean = wanted.abs().mean(1, keepdim=True)
        scale = wanted.abs().where(wanted.abs() > 1e-9 * mean, mean)
    return float(((sums - wanted).abs() / scale.where(scale > 0, 1)).max())


def _coarse(model: Any, images: Tensor, target: Any, source: str | Array, layer: Any, *, finer: bool) -> CoarseMap:
    if not isinstance(source, str):
        values = check.as_tensor("source", source)
        if values.ndim != 2:
            raise ValueError(f"`source` must be one coarse map, h x w; got {check.shape(values)}. Pass a single map.")
        known = (target,) if isinstance(target, int) else None
        return CoarseMap(values[None], "", "made elsewhere", known, 0)
    return coarse_map(source, model, images, target, layer=layer, finer=finer)


def _preset_name(preset: str | Settings | None) -> str:
    if isinstance(preset, Settings):
        return next((name for name, known in PRESETS.items() if known == preset), "own settings")
    return preset or UPSAMPLE_DEFAULT


def _checked_settings(settings: Settings) -> None:
    """Ask now, before the model is run, what the stages would ask later."""
    check.choice("scoring", settings.scoring, ("sampled", "delete", "gradient", "unguided", "none"))
    check.choice("edges", settings.edges, ("segments", "picture"))
    check.choice("mode", settings.mode, ("delete", "keep", "both"))
    check.choice("fit", settings.fit, ("ridge", "kernel_shap"))
    fill_named(settings.fill)
    if not callable(settings.segmenter):
        raise TypeError(
            f"`segmenter` must be callable as (picture, parts, region=...); got {type(settings.segmenter).__name__}. "
            "Take one of usu.segment."
        )
    # one pixel is enough for the operator to look at its own settings
    pixel = torch.zeros(1, 1)
    redistribute(
        pixel, pixel, temperature=settings.temperature, potential=settings.potential, budget=settings.budget,
        signed=settings.signed, max_gain=settings.max_gain,
    )  # fmt: skip
    if settings.base is not None and not (isinstance(settings.base, str) and settings.base in ("bilinear", "layers")):
        got = repr(settings.base) if isinstance(settings.base, str) else type(settings.base).__name__
        raise ValueError(f"`base` must be 'bilinear', 'layers' or None; got {got}. Check the spelling.")
    if not 0 <= check.real_number("trace", settings.trace) <= 1e-7:
        raise ValueError(f"`trace` must lie between 0 and 1e-7, or it is no trace; got {settings.trace}. Use 1e-13.")
    for name, least in (("parts", 1), ("depth", 0), ("seed", 0)):
        value = getattr(settings, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"`{name}` must be a whole number of at least {least}; got {value!r}. Use the preset's.")
    wanted = settings.evaluations
    if wanted is None and settings.scoring == "sampled":
        raise ValueError("`evaluations` must be a number for sampled scores; got None. 300 is a good start.")
    if wanted is not None and (isinstance(wanted, bool) or not isinstance(wanted, int) or wanted < 1):
        raise ValueError(
            f"`evaluations` must be a whole number of at least 1; got {wanted!r}. For no evaluations use "
            "scoring='unguided'."
        )


def _as_preset(value: object) -> bool:
    return isinstance(value, str) and value == "preset"


def _name(model: object) -> str:
    kind = type(model)
    if isinstance(model, nn.Module):
        return f"{kind.__module__}.{kind.__qualname__}"
    return getattr(model, "__name__", kind.__qualname__)
