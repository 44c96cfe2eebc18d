"""How much of a map would stay with other random groups: from the posterior of this one run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d, interpolate

from usu.inputs import Input
from usu.pipeline.halves import Scored, field_of, map_of
from usu.refine import share_of_largest, unit_scale
from usu.score.bayesian import Effects
from usu.score.posterior import iou_with_first
from usu.settings import Settings
from usu.types import NDArray

#: Maps that are drawn, and the longest side they are drawn at: the top 5 % of a map do not need every pixel.
_DRAWS, _SIDE = 12, 64


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


def _changing(iou: float) -> str:
    """The part of a set that is not in another of equal size, from their IoU."""
    return f"{(1 - iou) / (1 + iou):.0%}".replace("%", " %")


def expected_stability(
    effects: Effects, labels: NDArray, given: Input, settings: Settings, finer: Sequence[Tensor], *, times: int = 1
) -> float:
    """The expected IoU of the 5 % highest pixels of this run's map and another's, with ``times`` as many groups.

    Runs are simulated from the posterior (`usu.score.posterior.repeat`) and made into maps as this run's effects are.
    """
    every = torch.cat([effects.mean[None], effects.repeats(_DRAWS, times=times)])
    if times > 1:  # neither of the two is this run
        every = every[1:]
    maps = _maps(every, labels, given, settings, finer)
    return float(np.mean([iou_with_first(maps[:, t]) for t in range(maps.shape[1])]))


def certainty_of(scored: Scored, given: Input, settings: Settings, finer: Sequence[Tensor]) -> Certainty:
    """Stability and standard errors of a finished map; where the stability is below the settings', also an outlook."""
    effects, labels = scored.effects, scored.segments[-1]
    if effects is None:
        raise ValueError("`scored` must have a posterior; got scores without.")
    stability = expected_stability(effects, labels, given, settings, finer)
    spread = _maps(effects.draws(_DRAWS), labels, given, settings, finer).std(0)
    size = (int(given.image.shape[-2]), int(given.image.shape[-1]))
    stderr = interpolate(spread[:, None], size, mode="bilinear", align_corners=False)[:, 0].to(given.coarse.dtype)
    outlook = []
    if stability < settings.stability:
        for times in (2, 4, 8):
            more = expected_stability(effects, labels, given, settings, finer, times=times)
            outlook.append((times * len(effects.groups), more))
            if more >= settings.stability:
                break
    several = given.several or len(stderr) > 1
    return Certainty(stability, stderr if several else stderr[0], tuple(outlook))


def _maps(effects: Tensor, labels: NDArray, given: Input, settings: Settings, finer: Sequence[Tensor]) -> Tensor:
    """Effects (n, T, P) as maps (n, T, h, w), small enough to be quick."""
    step = -(-max(labels.shape) // _SIDE)
    small = labels[::step, ::step]
    shown = torch.from_numpy(np.ascontiguousarray(given.picture)).double().movedim(-1, 0)
    picture = adaptive_avg_pool2d(shown, small.shape).movedim(0, -1).clamp(0, 1).numpy()
    filled = effects.where(~effects.isnan(), effects.nan_to_num(nan=torch.inf).amin(-1, keepdim=True))
    if settings.scale != "range":
        densities = filled / torch.from_numpy(np.bincount(labels.ravel()))
        scores = share_of_largest(densities)(densities)
    else:
        scores = unit_scale(filled)(filled)
    field = scores[..., torch.from_numpy(np.ascontiguousarray(small))]
    field = field_of(field.flatten(0, 1), picture, settings).reshape(field.shape)
    cells = None if given.cells is None else given.cells[::step, ::step]
    inner = 1 if given.cells is not None else 2
    coarse = given.coarse.detach().cpu().double()
    coarse = coarse if coarse.ndim > inner else coarse[None]
    return map_of(coarse, field, settings, cells=cells, finer=[level.cpu() for level in finer])
