"""`explain`: a coarse map from a source, upsampled, with what a person should know of it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from usu import _checks as check
from usu._checks import as_numpy
from usu.errors import UsuWarning
from usu.forward import Model, Progress, Target
from usu.forward.digest import weights_digest
from usu.inputs import displayable, model_of
from usu.models.pictures import Geometry
from usu.pipeline.run import upsample
from usu.results import Explanation
from usu.settings import EXPLAIN_DEFAULT, Settings, settings_of
from usu.sources.cams import coarse_map
from usu.sources.coarse import CoarseMap
from usu.types import Array, NDArray

#: A target less probable than this, and not among so many likeliest classes, may be a wrong index.
TINY, LIKELIEST = 1e-3, 5


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
        raise ValueError(
            f"`image` must be one picture, C x H x W; got {check.shape(images)}. Explain the pictures of a batch "
            "one by one, or use usu.upsample."
        )
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
    weights = weights_digest(model) if isinstance(model, nn.Module) else None
    upsampled = replace(upsampled, provenance={**upsampled.provenance, "weights": weights})
    index = upsampled.provenance["target"]
    if isinstance(index, int):
        coarse = replace(coarse, targets=(index,))
        label = classes[index] if classes is not None and index < len(classes) else f"class {index}"
    else:
        label = "no class asked for" if index is None else str(index)
    name = source if isinstance(source, str) else "own map"
    return Explanation(
        coarse, values, upsampled, shown, (label,), original, geometry, instead=instead, source_name=name
    )


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


def _coarse(model: Any, images: Tensor, target: Any, source: str | Array, layer: Any, *, finer: bool) -> CoarseMap:
    if not isinstance(source, str):
        values = check.as_tensor("source", source)
        if values.ndim != 2:
            raise ValueError(f"`source` must be one coarse map, h x w; got {check.shape(values)}.")
        known = (target,) if isinstance(target, int) else None
        return CoarseMap(values[None], "", "made elsewhere", known, 0)
    return coarse_map(source, model, images, target, layer=layer, finer=finer)
