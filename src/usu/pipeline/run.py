"""`upsample`: coarse map + picture + model -> segments -> scores -> one redistribution.

And how much of the map would stay with other random groups: what the posterior of this one run says of it.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from usu.errors import UsuWarning
from usu.forward import Engine, Model, Progress, Target
from usu.forward import engine as engine_of
from usu.forward.digest import versions
from usu.forward.engine import RuntimeName
from usu.forward.fills import Drop
from usu.inputs import Input, agree, call_of, model_name, model_of
from usu.operator.cells import Labels, boxes, partition_of
from usu.operator.interpolate import resized
from usu.operator.redistribute import SoftPrior, cell_budgets
from usu.pipeline.halves import (
    AT_ONCE,
    Certainty,
    Scored,
    field_of,
    finer_of,
    map_of,
    scores_of,
)
from usu.refine.loop import share_of_largest, unit_scale
from usu.results import Upsampled
from usu.score.groups import Effects, few_threads
from usu.settings import Settings, settings_of
from usu.sources.cams import CoarseMap
from usu.types import Array, ArrayT, NDArray

#: Maps that are drawn for a glance, and for the stability that is told; and the longest side they are drawn at, in 1, 2
#: and 3 dimensions: the top 5 % of a map do not need every pixel.
_GLANCE, _DRAWS, _SIDES = 12, 48, (4096, 64, 32)


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


def sentence(certainty: Certainty, wanted: float) -> str:
    """What a person should know of a map that another seed would change; nothing where it is stable enough.

    >>> sentence(Certainty(1 / 3, torch.zeros(1), ((600, 0.8), (1200, 0.9))), 0.85)
    'About 50 % of the highlighted pixels would be others with another seed; 1200 evaluations would make it about 5 %.'
    """
    if certainty.stability >= wanted:
        return ""
    now = f"About {_changing(certainty.stability)} of the highlighted pixels would be others with another seed"
    evaluations, later = max(certainty.outlook, key=lambda found: found[1], default=(0, 0.0))
    if later < certainty.stability + 0.05:  # more of the same would not help
        return f"{now}."
    return f"{now}; {evaluations} evaluations would make it about {_changing(later)}."


def blunter(settings: Settings) -> str:
    """What a person should know of a map that was made of few evaluations; nothing where they were enough.

    >>> blunter(settings_of("soft", evaluations=100))
    '100 evaluations are enough for about 25 segments; from 120 on the map is made of 60, and finer.'
    """
    if settings.segments >= settings.parts:
        return ""
    return (
        f"{settings.evaluations} evaluations are enough for about {settings.segments} segment"
        f"{'s' * (settings.segments > 1)}; "
        f"from {2 * settings.parts} on the map is made of {settings.parts}, and finer."
    )


def _changing(iou: float) -> str:
    """The part of a set that is not in another of equal size, from their IoU."""
    return f"{(1 - iou) / (1 + iou):.0%}".replace("%", " %")


def expected_stability(
    effects: Effects,
    labels: NDArray,
    given: Input,
    settings: Settings,
    finer: Sequence[Tensor],
    *,
    times: int = 1,
    draws: int = _DRAWS,
) -> float:
    """The expected IoU of the 5 % highest pixels of two runs' maps, with ``times`` as many groups as this one.

    Runs are simulated from the posterior (`usu.score.posterior.repeat`) and made into maps as this run's effects are.
    """
    found = _maps(effects.repeats(draws, times=times), labels, given, settings, finer)
    return float(np.mean([mean_iou(maps[:, t]) for maps in found for t in range(maps.shape[1])]))


def stability_so_far(
    effects: Effects, labels: NDArray, given: Input, settings: Settings, finer: Sequence[Tensor]
) -> float:
    """The same at a glance; where that is enough for the settings, as it would be told: luck ends no run."""
    seen = expected_stability(effects, labels, given, settings, finer, draws=_GLANCE)
    return seen if seen < settings.stability else expected_stability(effects, labels, given, settings, finer)


def certainty_of(scored: Scored, given: Input, settings: Settings, finer: Sequence[Tensor]) -> Certainty:
    """Stability and standard errors of a finished map; where the stability is below the settings', also an outlook."""
    effects, labels = scored.effects, scored.segments[-1]
    if effects is None:
        raise ValueError("`scored` must have a posterior; got scores without.")
    outlook = []
    with few_threads(len(effects.varied)):
        stability = expected_stability(effects, labels, given, settings, finer)
        spread = torch.cat([maps.std(0) for maps in _maps(effects.draws(_GLANCE), labels, given, settings, finer)])
        # of longer runs that have more segments this one knows nothing
        same = settings.segments == settings.parts
        for times in (2, 4, 8) if stability < settings.stability and same else ():
            more = expected_stability(effects, labels, given, settings, finer, times=times, draws=_GLANCE)
            outlook.append((times * len(effects.groups), more))
            if more >= settings.stability:
                break
    stderr = resized(spread, given.size).to(given.coarse.dtype)
    several = given.several or len(stderr) > 1
    return Certainty(stability, stderr if several else stderr[0], tuple(outlook))


def _maps(
    effects: Tensor, labels: NDArray, given: Input, settings: Settings, finer: Sequence[Tensor]
) -> Iterator[Tensor]:
    """Effects (n, T, P) as maps (n, t, h, w), small enough to be quick, of a few targets at a time."""
    step = -(-max(labels.shape) // _SIDES[labels.ndim - 1])
    apart = (slice(None, None, step),) * labels.ndim
    small = np.ascontiguousarray(labels[apart])
    shown = torch.from_numpy(np.ascontiguousarray(given.picture)).double().movedim(-1, 0)
    pool: Any = getattr(functional, f"adaptive_avg_pool{labels.ndim}d")
    picture = pool(shown, small.shape).movedim(0, -1).clamp(0, 1).numpy()
    cells = given.cells
    if isinstance(cells, Labels):  # the boxes of a signal or a volume
        cells = boxes(cells.grid or (), small.shape)
    elif cells is not None:
        cells = cells[apart]
    coarse, layers = given.maps.cpu().double(), [level.cpu() for level in finer]
    together = max(1, AT_ONCE // (len(effects) * small.size))
    for some in torch.arange(effects.shape[1]).split(together):

        def own(maps: Tensor, dims: int, some: Tensor = some) -> Tensor:
            return maps[some] if maps.ndim > dims and len(maps) > 1 else maps

        field = segment_scores(effects[:, some], labels, settings)[..., torch.from_numpy(small)]
        field = field_of(field.flatten(0, 1), picture, settings).reshape(field.shape)
        levels = [own(level, small.ndim) for level in layers]
        yield map_of(own(coarse, coarse.ndim - 1), field, settings, cells=cells, finer=levels)


def segment_scores(effects: Tensor, labels: NDArray, settings: Settings) -> Tensor:
    """Effects (..., P) of a level as scores in [0, 1]; a segment that was left out (NaN) gets the lowest."""
    filled = effects.where(~effects.isnan(), effects.nan_to_num(nan=torch.inf).amin(-1, keepdim=True))
    if settings.scale == "range":
        return unit_scale(filled)(filled)
    densities = filled / torch.from_numpy(np.bincount(labels.ravel()))
    return share_of_largest(densities)(densities)


def tops(maps: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """(n, pixels) booleans: exactly the part ``share`` of highest pixels of each map; equal ones are drawn by lot.

    >>> tops(torch.tensor([[[1.0, 3.0], [2.0, 0.0]]]), 0.5, torch.Generator().manual_seed(0)).tolist()
    [[False, True, True, False]]
    """
    flat = maps.flatten(1)
    lots = torch.randperm(flat.shape[1], generator=generator).to(flat.device)
    order = flat[:, lots].argsort(dim=1, descending=True, stable=True)[:, : max(1, round(share * flat.shape[1]))]
    return torch.zeros_like(flat, dtype=torch.bool).scatter_(1, lots[order], True)


def mean_iou(maps: Tensor, *, share: float = 0.05) -> float:
    """The mean IoU of the highest pixels of any two of these maps (n, H, W).

    >>> maps = torch.tensor([[[3.0, 2.0, 1.0, 0.0]], [[3.0, 1.0, 2.0, 0.0]], [[3.0, 2.0, 0.0, 0.0]]])
    >>> round(mean_iou(maps, share=0.5), 6)  # one of three, both, and one of three
    0.555556
    """
    chosen = tops(maps, share, torch.Generator().manual_seed(0)).double()
    both = (chosen @ chosen.T)[torch.triu(torch.ones(len(maps), len(maps), dtype=torch.bool), 1)]
    return float((both / (2 * chosen[0].sum() - both)).mean())
