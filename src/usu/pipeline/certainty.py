"""How much of the map would stay with other random groups: what the posterior of one run says of its map."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from usu.inputs import Input
from usu.operator.cells import Labels, boxes
from usu.operator.interpolate import resized
from usu.pipeline.halves import AT_ONCE, Scored, field_of, map_of
from usu.refine.loop import share_of_largest, unit_scale
from usu.score.groups import Effects, few_threads
from usu.settings import Settings
from usu.types import NDArray

#: Maps that are drawn for a glance, and for the stability that is told; and the longest side they are drawn at, in 1, 2
#: and 3 dimensions: the top 5 % of a map do not need every pixel.
_GLANCE, _DRAWS, _SIDES = 12, 48, (4096, 64, 32)


@dataclass(frozen=True, eq=False)
class Certainty:
    """What the posterior of one run says of its map."""

    #: The expected IoU of the 5 % highest pixels between this run and another, over the targets.
    stability: float
    #: (T, H, W) or (H, W): the standard deviation of each pixel's value.
    stderr: Tensor
    #: More evaluations, and the stability they let expect; empty where it is high already.
    outlook: tuple[tuple[int, float], ...] = ()


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

    >>> blunter(Settings(parts=60, per_segment=4, evaluations=100))
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
