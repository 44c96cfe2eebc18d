"""What a caller hands in, checked: which coarse map, which target and which picture belong together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from usu import _checks as check
from usu._checks import as_numpy
from usu.models import Loaded
from usu.models.libraries import Known
from usu.models.pictures import Geometry, Picture, as_bytes, find, read, seen, taken
from usu.operator.cells import Partition, partition_of
from usu.sources.coarse import CoarseMap
from usu.types import Array, NDArray


@dataclass(frozen=True, eq=False)
class Input:
    """One picture of a call, and all that belongs to it."""

    #: (h, w), (T, h, w) for several targets, or (..., K) with ``cells``.
    coarse: Tensor
    #: (C, H, W), as the model takes it.
    image: Tensor
    #: H x W x 3 in [0, 1], as a person sees it.
    picture: NDArray
    target: Any = None
    cells: Array | None = None
    #: Maps of finer layers, with the leading dimensions of ``coarse``; None: nobody brought any.
    finer: tuple[Tensor, ...] | None = None
    #: Whether the result has a leading dimension of targets.
    several: bool = False

    @cached_property
    def empty(self) -> bool:
        """Is there no mass to redistribute?"""
        return not bool(self.coarse.detach().any())

    @cached_property
    def partition(self) -> Partition:
        """The cells of the coarse map on the picture."""
        blank = torch.zeros(self.image.shape[-2:], dtype=self.coarse.dtype, device=self.coarse.device)
        return partition_of(self.coarse, blank, self.cells)[0]


@dataclass(frozen=True, eq=False)
class Call:
    """All that was handed to `usu.upsample`, a picture at a time."""

    inputs: list[Input]
    batched: bool
    #: Back to the library, dtype and device of the coarse map.
    back: Callable[[Tensor], Any]


def call_of(
    coarse: Array | CoarseMap,
    image: Array,
    target: Any,
    *,
    picture: Array | None = None,
    cells: Array | None = None,
    finer: Sequence[Array] | None = None,
) -> Call:
    """One input per picture, with shapes checked against each other."""
    if isinstance(coarse, CoarseMap):
        coarse, target, finer = _unpacked(coarse, image, target, finer)
    values, images = check.as_tensor("coarse", coarse), check.as_tensor("image", image)
    check.finite("coarse", values)
    check.finite("image", images)
    if images.ndim not in (3, 4):
        raise ValueError(
            f"`image` must be C x H x W or B x C x H x W; got {check.shape(images)}. Signals, volumes and videos are "
            "not supported yet."
        )
    batched = images.ndim == 4
    stack = images if batched else images[None]
    inner = 1 if cells is not None else 2
    lead = values.shape[: values.ndim - inner] if values.ndim >= inner else None
    count = len(stack)
    if lead is None or len(lead) > 1 + batched or (batched and (not lead or lead[0] != count)):
        grid = "K" if cells is not None else "h x w"
        wanted = f"{count} x {grid} or {count} x T x {grid}" if batched else f"{grid} or T x {grid}"
        raise ValueError(f"`coarse` must be {wanted} for this `image`; got {check.shape(values)}.")
    _check_cover(values, stack, cells)
    targets = _per_picture(target, count, batched=batched)
    agree(lead[-1] if len(lead) == 1 + batched else 1, _alike(targets))
    levels = None if finer is None else _levels(finer, tuple(lead))
    shown = None if picture is None else _pictures(picture, stack, batched=batched)
    inputs = [
        Input(
            coarse=values[i] if batched else values,
            image=stack[i],
            picture=as_numpy(displayable(stack[i])) if shown is None else shown[i],
            target=targets[i],
            cells=cells,
            finer=None if levels is None else tuple(level[i] if batched else level for level in levels),
            several=len(lead) == 1 + batched or isinstance(targets[i], (list, tuple)),
        )
        for i in range(count)
    ]
    return Call(inputs, batched, check.like_input(coarse))


@dataclass(frozen=True, eq=False)
class Pictured:
    """One picture as the model takes it, and as a person sees it where that is known."""

    #: (C, H, W).
    image: Tensor
    #: H x W x 3 in [0, 1]: what the model sees, and the whole of it, in which the former sits by ``geometry``.
    picture: NDArray | None = None
    original: NDArray | None = None
    geometry: Geometry | None = None


def pictured(image: Any, known: Known) -> Pictured:
    """What the model takes, made from whatever is handed in.

    A tensor, or an array (C, H, W), is what the model takes already. A path, a Pillow image, a `Picture` and an array
    (H, W, 3) of bytes are prepared as the model wants it.
    """
    found: Picture | None = None
    if isinstance(image, (str, Path)):
        found = read(image)
    elif isinstance(image, Picture):
        found = image
    elif hasattr(image, "getexif"):  # Pillow, which need not be imported for this
        found = taken(image)
    elif isinstance(image, np.ndarray) and image.ndim == 3 and image.shape[2] == 3 and _is_seen(image):
        found = Picture(Path("array"), as_bytes(image), (image.shape[0], image.shape[1]))
    if found is None:
        return Pictured(_one_image(image))
    if known.prepare is None:
        raise ValueError(
            "`prepare` must say how a picture becomes the model's input, because the model "
            f"({type(known.model).__name__}) does not; got None. Pass torchvision's weights, timm's data config, a "
            "processor of transformers, a usu.models.Preparation or a function of pixels; or hand in a tensor."
        )
    tensor, geometry = known.prepare(found.pixels)
    return Pictured(tensor, seen(found.unit, geometry), found.unit, geometry)


def each_of(images: Any) -> tuple[Iterator[Any], int]:
    """Pictures one after the other, and how many there are; 0 where nobody knows."""
    if isinstance(images, (str, Path)):
        files = find(images)
        return iter(files), len(files)
    if isinstance(images, (Tensor, np.ndarray)):
        if images.ndim != 4:
            raise ValueError(f"`images` must be a batch, B x C x H x W; got {check.shape(torch.as_tensor(images))}.")
        return iter(images), len(images)
    dataset = getattr(images, "dataset", images)  # a DataLoader counts its batches
    return _flattened(images), len(dataset) if hasattr(dataset, "__len__") else 0


def _flattened(images: Any) -> Iterator[Any]:
    for entry in images:
        first = entry[0] if isinstance(entry, (list, tuple)) else entry  # (images, labels)
        if isinstance(first, Tensor) and first.ndim == 4:
            yield from first
        else:
            yield first


def _is_seen(array: NDArray) -> bool:
    """Is it height x width x colours, and not channels x height x width?"""
    return array.dtype == np.uint8 or array.shape[0] not in (1, 3)


def _one_image(image: Any) -> Tensor:
    tensor = check.as_tensor("image", image)
    if tensor.ndim == 4 and len(tensor) == 1:
        return tensor[0]
    if tensor.ndim != 3:
        raise ValueError(
            f"`image` must be one picture, C x H x W; got {check.shape(tensor)}. Explain the pictures of a batch "
            "with usu.explain_many, or use usu.upsample."
        )
    return tensor


def model_of(model: Any) -> Any:
    """The model itself, also where the whole of `usu.models.load` was handed in."""
    if isinstance(model, Loaded):
        return model.model
    inner = getattr(model, "model", None)  # of a pipeline of transformers
    return inner if hasattr(model, "image_processor") and isinstance(inner, torch.nn.Module) else model


def agree(maps: int, targets: int) -> None:
    """One map or one target may serve several of the other; several of both go in pairs."""
    if maps > 1 and targets > 1 and maps != targets:
        raise ValueError(f"`coarse` must hold one map for all targets or one for each of the {targets}; got {maps}.")


def displayable(image: Tensor) -> Tensor:
    """H x W x 3 in [0, 1] by min-max, from whatever the model takes."""
    field = image.detach().float()
    field = field if len(field) == 3 else field.mean(0, keepdim=True).expand(3, -1, -1)
    low, high = field.amin(), field.amax()
    return ((field - low) / (high - low).clamp(min=1e-12)).permute(1, 2, 0)


def _unpacked(found: CoarseMap, image: Array, target: Any, finer: Any) -> tuple[Tensor, Any, Any]:
    """A source's maps with what the source knows besides, for one picture or for a batch."""
    goals, levels = found.targets if target is None else target, found.finer or None if finer is None else finer
    if getattr(image, "ndim", 4) == 4:
        return found.values, goals, levels
    if len(found.values) > 1:  # several classes of one picture
        return found.values, goals if target is not None or goals is None else list(goals), levels
    goals = goals[0] if target is None and goals else goals
    return found.values[0], goals, [level[0] for level in levels] if finer is None and levels else levels


def _levels(finer: Sequence[Array], lead: tuple[int, ...]) -> list[Tensor]:
    """Maps of finer layers, one beside every coarse map."""
    if not isinstance(finer, (list, tuple)):
        raise TypeError(f"`finer` must be a list of maps; got {type(finer).__name__}.")
    levels = [check.as_tensor("finer", level) for level in finer]
    for level in levels:
        if level.ndim != len(lead) + 2 or tuple(level.shape[:-2]) != lead:
            wanted = " x ".join([*map(str, lead), "h'", "w'"])
            raise ValueError(
                f"`finer` must hold maps of {wanted}, one beside every map of `coarse`; got {check.shape(level)}."
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


def _check_cover(coarse: Tensor, images: Tensor, cells: Array | None) -> None:
    """Every coarse value needs a place in the picture."""
    size = images.shape[-2:]
    if cells is not None:
        check.labels("cells", cells, size=size)
    elif coarse.shape[-2] > size[0] or coarse.shape[-1] > size[1]:
        raise ValueError(f"`coarse` must be no finer than `image` ({size[0]} x {size[1]}); got {check.shape(coarse)}.")


def _alike(targets: list[Any]) -> int:
    """How many targets each picture has; 0 where they are not in a list."""
    counts = [len(goal) if isinstance(goal, (list, tuple)) else 0 for goal in targets]
    if len(set(counts)) > 1:
        got = ", ".join(f"a list of {n}" if n else "no list" for n in counts)
        raise ValueError(
            f"`target` must have the same form for every picture, one class or equally many in a list; got {got}."
        )
    return counts[0]


def _pictures(picture: Array, images: Tensor, *, batched: bool) -> NDArray:
    shown = as_numpy(picture)
    shown = shown if batched else shown[None]
    if shown.ndim != 4 or shown.shape[:3] != (len(images), *images.shape[-2:]) or shown.shape[3] != 3:
        raise ValueError(
            f"`picture` must be H x W x 3 with the height and width of `image` ({check.shape(images[0, 0])}), one per "
            f"picture; got {' x '.join(map(str, shown.shape[1:]))}."
        )
    return shown
