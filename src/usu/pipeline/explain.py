"""`explain` and `explain_many`: a coarse map from a source, upsampled, with what a person should know of it."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from usu import _checks as check
from usu._checks import as_numpy
from usu.errors import UsuWarning
from usu.forward import Progress, Target
from usu.forward.digest import weights_digest
from usu.inputs import each_of, model_of, pictured
from usu.models.libraries import known
from usu.models.load import Loaded, resolve_target
from usu.pipeline.run import upsample
from usu.results import Explanation
from usu.settings import EXPLAIN_DEFAULT, Settings, settings_of
from usu.sources import LAYER_SOURCES
from usu.sources.cams import CoarseMap, coarse_map
from usu.types import Array, NDArray

#: What was explained, and how: `logging.getLogger("usu")`.
LOG = logging.getLogger("usu")
#: A target less probable than this, and not among so many likeliest classes, may be a wrong index.
TINY, LIKELIEST = 1e-3, 5


def explain(
    model: Any,
    image: Any,
    target: Target | str | Sequence[str] = None,
    *,
    source: str | Array = "gradcam",
    layer: str | nn.Module | None = None,
    top: int | None = None,
    preset: str | Settings | None = None,
    evaluations: int | Literal["auto"] | None = None,
    prepare: Any = None,
    picture: Array | None = None,
    classes: Sequence[str] | None = None,
    progress: Progress | bool | None = None,
) -> Explanation:
    """Why the model said what it said about one picture: a coarse map from a source, upsampled.

    Args:
        model: an ``nn.Module`` (sources need gradients); what `usu.models.load` returned; a
            ``transformers.pipeline("image-classification")``; any callable if ``source`` is a map of your own.
        image: what the model takes, (C, H, W) or (1, C, H, W), a signal or a volume as in `upsample`; or a path, a
            Pillow image or an array (H, W, 3), which is prepared as the model says, or ``prepare``.
        target: class index or name, several of them, a callable on the output, or None for the model's top class.
        source: ``"gradcam"``, ``"hirescam"``, ``"layercam"``, ``"attention_rollout"`` or ``"gradient_attention"``; or a
            coarse map (h, w) made elsewhere.
        layer: where the first three look; None takes the last spatial layer and says why.
        top: the so many likeliest classes instead of a target. Several classes are read from the same passes.
        preset: as in `usu.upsample`; None is ``"soft"``: the total is kept and follows the model most faithfully.
            Any other choice: `Settings`.
        evaluations: see `usu.upsample`; the source's own pass is counted apart.
        prepare: how pictures become the model's input, where the model does not say: torchvision's weights, timm's data
            config, a processor of transformers, a `usu.models.Preparation`, or a function of pixels.
        picture: H x W x 3 in [0, 1], for segments and figures; else what ``image`` shows, by min-max where it is a
            tensor.
        classes: names, for targets and for the label of the result; else those the model knows.
        progress: True shows a line on standard error; or a function, called with the evaluations done and to do.

    Where a source finds no evidence for the target, what is known is shown instead, and a `usu.errors.UsuWarning`,
    ``instead`` of the result, its manifest and its figure say so: the evidence against the target where there is some,
    otherwise the scores on a coarse map of ones. A warning also says that the target's probability is tiny.

    >>> net = nn.Sequential(nn.Conv2d(1, 2, 3, stride=2), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    >>> with torch.no_grad(): _ = net[0].weight.fill_(1.0), net[0].bias.fill_(0.0)
    >>> found = explain(net, torch.rand(1, 9, 9), "cat", classes=["dog", "cat"], evaluations=8)
    >>> found.coarse.shape, found.pixel_map.shape, found.label, found.source.layer
    ((4, 4), (9, 9), 'cat', '0')
    """
    settings = settings_of(preset, default=EXPLAIN_DEFAULT, evaluations=evaluations)
    about = model if isinstance(model, Loaded) and prepare is None else known(model, prepare)
    given = pictured(image, about)
    names = about.classes if classes is None else tuple(classes)
    goal: Any = resolve_target(target, names) if isinstance(target, str) else target
    if isinstance(goal, (list, tuple)):
        goal = [resolve_target(one, names) if isinstance(one, str) else one for one in goal]
    if isinstance(source, str) and source in LAYER_SOURCES:
        layer = about.layer if layer is None else layer
    coarse = coarse_of(about.model, given.image[None], goal, source, layer, top, finer=settings.base == "layers")
    shown = given.picture if picture is None else as_numpy(picture)
    values, finer, instead = shown_of(coarse, settings)
    coarse = replace(coarse, notes=remarks_on(coarse, instead))
    for remark in coarse.notes:
        warnings.warn(remark, UsuWarning, stacklevel=2)
    several = list(coarse.targets) if coarse.targets and len(coarse.targets) > 1 else None
    goal, told = several or (coarse.targets[0] if coarse.targets else goal), line_of(progress)
    upsampled = upsample(
        values, given.image, about.model, goal, preset=settings, finer=finer, picture=shown, progress=told
    )
    weights = weights_digest(about.model) if isinstance(about.model, nn.Module) else None
    upsampled = replace(upsampled, provenance={**upsampled.provenance, "weights": weights})
    found, labels = upsampled.provenance["target"], []
    for index in found if isinstance(found, list) else [found]:
        if isinstance(index, int):
            labels.append(names[index] if names is not None and index < len(names) else f"class {index}")
        else:
            labels.append("no class asked for" if index is None else index)
    if isinstance(found, (list, int)):
        coarse = replace(coarse, targets=tuple(found) if isinstance(found, list) else (found,))
    made = Explanation(
        coarse, values, upsampled, shown, tuple(labels), given.original, given.geometry, instead=instead,
        source_name=source if isinstance(source, str) else "own map",
    )  # fmt: skip
    LOG.info("%r", made)
    return made


def explain_many(
    model: Any,
    images: Any,
    target: Target | str | Sequence[str] = None,
    *,
    source: str | Array = "gradcam",
    layer: str | nn.Module | None = None,
    top: int | None = None,
    preset: str | Settings | None = None,
    evaluations: int | Literal["auto"] | None = None,
    prepare: Any = None,
    classes: Sequence[str] | None = None,
    progress: bool = False,
) -> Iterator[Explanation]:
    """`explain` for many pictures, one after the other, as they are asked for.

    Args:
        model: and all other arguments: as in `explain`; the target is the same for all pictures.
        images: a batch (B, C, H, W); a folder, a glob or a list of paths; or anything that gives pictures or batches
            one after the other, such as a DataLoader, of whose (images, labels) the first is taken.
        progress: True shows a line on standard error with the pictures done.

    >>> net = nn.Sequential(nn.Conv2d(1, 2, 3, stride=2), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    >>> with torch.no_grad(): _ = net[0].weight.fill_(1.0)
    >>> [found.evaluations for found in explain_many(net, torch.rand(2, 1, 9, 9), evaluations=8)]
    [8, 8]
    """
    pictures, count = each_of(images, model_of(model))
    told = line_of(progress, what="pictures")
    for done, image in enumerate(pictures):
        told(done, count)
        yield explain(
            model, image, target, source=source, layer=layer, top=top, preset=preset, evaluations=evaluations,
            prepare=prepare, classes=classes,
        )  # fmt: skip
        told(done + 1, count)


def line_of(progress: Progress | bool | None, what: str = "evaluations") -> Progress:
    """Who is told of progress: a function of the caller's, or a line on standard error that is written anew."""

    def told(done: int, total: int) -> None:
        bar = "#" * (30 * done // total) if total else ""
        if progress is True:
            sys.stderr.write(f"\r[{bar:<30}] {done} of {total or '?'} {what}" + "\n" * (done == total))
            sys.stderr.flush()

    return progress if callable(progress) else told


def shown_of(coarse: CoarseMap, settings: Settings) -> tuple[NDArray, list[Tensor] | None, str | None]:
    """The maps to upsample, of finer layers (None: nobody looked), and what they are where the source's is zero."""
    every = [_one_shown(coarse, settings, row) for row in range(len(coarse.values))]
    if len(every) == 1:
        return every[0]
    reasons = dict.fromkeys(instead for _, _, instead in every if instead is not None)
    # a class without evidence has nothing to say of finer places either
    levels = [
        torch.stack([level[row] if every[row][1] else torch.ones_like(level[row]) for row in range(len(every))])
        for level in coarse.finer
    ]
    return np.stack([values for values, _, _ in every]), levels or None, "; ".join(reasons) or None


def _one_shown(coarse: CoarseMap, settings: Settings, row: int) -> tuple[NDArray, list[Tensor] | None, str | None]:
    values, finer, instead = coarse.values[row], [level[row] for level in coarse.finer], None
    if not values.any():
        if coarse.signed is not None and coarse.only_negative[row]:
            values, instead = coarse.signed[row], "the evidence against the target"
        elif settings.scoring != "none":
            values, finer, instead = torch.ones_like(values), [], "the scores alone, on a coarse map of ones"
        elif any(bool(level.any()) for level in finer):
            values, instead = torch.ones_like(values), "the finer layers alone, on a coarse map of ones"
    plain = values.detach().cpu().double().numpy().copy()  # the source keeps its own
    return plain, finer if finer or (instead and settings.scoring != "none") else None, instead


def remarks_on(coarse: CoarseMap, instead: str | None) -> tuple[str, ...]:
    """What a person should know before believing the result."""
    notes = coarse.notes
    if instead is not None:
        why = notes[0] if notes else "The coarse map is zero everywhere."
        notes = (f"{why} Shown instead: {instead}.", *notes[1:])
    doubts = [
        f"The model gives class {goal.number} a probability of {goal.probability:.1g} here and finds "
        f"{goal.likelier} classes likelier. Is it the class you mean?"
        for goal in coarse.goals
        if goal.probability is not None and goal.probability < TINY and goal.likelier >= LIKELIEST
    ]
    return (*notes, *doubts)


def coarse_of(
    model: Any, images: Tensor, target: Any, source: str | Array, layer: Any, top: int | None, *, finer: bool
) -> CoarseMap:
    """The source's maps, or the map that was handed in as one."""
    if not isinstance(source, str):
        values = check.as_tensor("source", source)
        if values.ndim != images.ndim - 2:
            raise ValueError(
                f"`source` must be one coarse map, {('l', 'h x w', 'd x h x w')[images.ndim - 3]}; got "
                f"{check.shape(values)}."
            )
        if top is not None:
            raise ValueError(f"`top` must be None for a map of your own; got {top}. Name the classes with `target`.")
        several = [target] if isinstance(target, int) else target if isinstance(target, list) else None
        every = torch.stack([values] * len(several or [0]))
        return CoarseMap(every, "", "made elsewhere", None if several is None else tuple(several), 0)
    if not isinstance(target, list) or source in LAYER_SOURCES:
        return coarse_map(source, model, images, target, top=top, layer=layer, finer=finer)
    # several classes of one picture, asked for one by one
    parts = [coarse_map(source, model, images, one, layer=layer, finer=finer) for one in target]
    first = parts[0]
    return replace(
        first,
        values=torch.cat([part.values for part in parts]),
        targets=None if first.targets is None else tuple(part.targets[0] for part in parts if part.targets),
        evaluations=sum(part.evaluations for part in parts),
        notes=tuple(dict.fromkeys(note for part in parts for note in part.notes)),
        signed=None if first.signed is None else torch.cat([part.signed for part in parts if part.signed is not None]),
        goals=tuple(goal for part in parts for goal in part.goals),
    )
