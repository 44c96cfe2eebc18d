"""One call of the pipeline as one job per picture: which map, which target, which picture belong together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from usu import _checks as check
from usu._checks import as_numpy
from usu.types import Array, NDArray


@dataclass(frozen=True, eq=False)
class Job:
    """One picture of a call."""

    coarse: Tensor
    image: Tensor
    picture: NDArray
    target: Any
    cells: Array | None
    #: Maps of finer layers, with the leading dimensions of ``coarse``; None: nobody brought any.
    finer: tuple[Tensor, ...] | None
    #: Whether the result has a leading dimension of targets.
    several: bool


def jobs(
    coarse: Tensor,
    images: Tensor,
    target: Any,
    picture: Array | None,
    cells: Array | None,
    finer: Sequence[Array] | None = None,
    *,
    batched: bool,
) -> list[Job]:
    """One job per picture, with shapes checked against each other."""
    if images.ndim != 4:
        raise ValueError(
            f"`image` must be C x H x W or B x C x H x W; got {check.shape(images[0])}. Pass what the model takes."
        )
    inner = 1 if cells is not None else 2
    lead = coarse.shape[: coarse.ndim - inner] if coarse.ndim >= inner else None
    count = len(images)
    if lead is None or len(lead) > 1 + batched or (batched and (not lead or lead[0] != count)):
        grid = "K" if cells is not None else "h x w"
        wanted = f"{count} x {grid} or {count} x T x {grid}" if batched else f"{grid} or T x {grid}"
        raise ValueError(f"`coarse` must be {wanted} for this `image`; got {check.shape(coarse)}. One map per picture.")
    _cover(coarse, images, cells)
    targets = _per_picture(target, count, batched=batched)
    agree(lead[-1] if len(lead) == 1 + batched else 1, _alike(targets))
    levels = None if finer is None else _levels(finer, tuple(lead))
    shown = [None] * count if picture is None else list(_pictures(picture, images, batched=batched))
    return [
        Job(
            coarse=coarse[i] if batched else coarse,
            image=images[i],
            picture=as_numpy(displayable(images[i])) if shown[i] is None else shown[i],  # type: ignore[arg-type]
            target=targets[i],
            cells=cells,
            finer=None if levels is None else tuple(level[i] if batched else level for level in levels),
            several=len(lead) == 1 + batched or isinstance(targets[i], (list, tuple)),
        )
        for i in range(count)
    ]


def _levels(finer: Sequence[Array], lead: tuple[int, ...]) -> list[Tensor]:
    """Maps of finer layers, one beside every coarse map."""
    if not isinstance(finer, (list, tuple)):
        raise TypeError(f"`finer` must be a list of maps; got {type(finer).__name__}. Wrap a single map: [it].")
    levels = [check.as_tensor("finer", level) for level in finer]
    for level in levels:
        if level.ndim != len(lead) + 2 or tuple(level.shape[:-2]) != lead:
            wanted = " x ".join([*map(str, lead), "h'", "w'"])
            raise ValueError(
                f"`finer` must hold maps of {wanted}, one beside every map of `coarse`; got {check.shape(level)}. "
                "Leave it out to have the model asked."
            )
        check.finite("finer", level)
    return levels


def _per_picture(target: Any, count: int, *, batched: bool) -> list[Any]:
    if isinstance(target, (np.ndarray, Tensor)):
        target = target.tolist()
    if not batched or target is None or callable(target) or not isinstance(target, (list, tuple)):
        return [target] * count
    if len(target) != count:
        raise ValueError(
            f"`target` must have one entry per picture ({count}); got {len(target)}. For several targets per picture "
            "pass a list of lists."
        )
    return list(target)


def _cover(coarse: Tensor, images: Tensor, cells: Array | None) -> None:
    """Every coarse value needs a place in the picture."""
    (height, width), size = images.shape[-2:], check.shape(images[0, 0])
    if cells is None and (coarse.shape[-2] > height or coarse.shape[-1] > width):
        raise ValueError(
            f"`coarse` must be no finer than `image` ({size}); got {check.shape(coarse)}. "
            "Every cell needs a pixel; pass a larger picture, or give the cells with `cells`."
        )
    labels = None if cells is None else check.any_tensor("cells", cells)
    if labels is not None and tuple(labels.shape) != (height, width):
        raise ValueError(
            f"`cells` must give every pixel of `image` ({size}) one label; got {check.shape(labels)}. "
            "The pictures of a batch share them."
        )


def _alike(targets: list[Any]) -> int:
    """How many targets each picture has; 0 where they are not in a list."""
    counts = [len(goal) if isinstance(goal, (list, tuple)) else 0 for goal in targets]
    if len(set(counts)) > 1:
        got = ", ".join(f"a list of {n}" if n else "no list" for n in counts)
        raise ValueError(
            f"`target` must have the same form for every picture, one class or equally many in a list; got {got}. "
            "Give pictures with other numbers of targets a call of their own."
        )
    return counts[0]


def agree(maps: int, targets: int) -> None:
    """One map or one target may serve several of the other; several of both go in pairs."""
    if maps > 1 and targets > 1 and maps != targets:
        raise ValueError(
            f"`coarse` must hold one map for all targets or one for each of the {targets}; got {maps}. "
            "Leave out maps or targets."
        )


def _pictures(picture: Array, images: Tensor, *, batched: bool) -> NDArray:
    shown = as_numpy(picture)
    shown = shown if batched else shown[None]
    if shown.ndim != 4 or shown.shape[:3] != (len(images), *images.shape[-2:]) or shown.shape[3] != 3:
        raise ValueError(
            f"`picture` must be H x W x 3 with the height and width of `image` ({check.shape(images[0, 0])}), one per "
            f"picture; got {' x '.join(map(str, shown.shape[1:]))}. Resize it, or leave it out."
        )
    return shown


def displayable(image: Tensor) -> Tensor:
    """H x W x 3 in [0, 1] by min-max, from whatever the model takes."""
    field = image.detach().float()
    field = field if len(field) == 3 else field.mean(0, keepdim=True).expand(3, -1, -1)
    low, high = field.amin(), field.amax()
    return ((field - low) / (high - low).clamp(min=1e-12)).permute(1, 2, 0)
