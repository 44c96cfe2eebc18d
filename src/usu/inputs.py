"""What a caller hands in, checked: which coarse map, which target and which picture belong together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from usu import _checks as check
from usu._checks import as_numpy
from usu.forward.calls import convolution_dims
from usu.models.load import Loaded
from usu.models.pictures import Geometry, Picture, as_bytes, find, opened, prepared, taken
from usu.operator.cells import Labels, Partition, boxes, partition_of
from usu.segment.segmenter import MOST_CHANNELS
from usu.sources.cams import CoarseMap
from usu.types import Array, NDArray


@dataclass(frozen=True, eq=False)
class Input:
    """One picture of a call, and all that belongs to it."""

    #: (h, w), (T, h, w) for several targets, or (..., K) with ``cells``.
    coarse: Tensor
    #: (C, H, W), as the model takes it; (C, L) of a signal, (C, D, H, W) of a volume.
    image: Tensor
    #: H x W x 3 in [0, 1], as a person sees it; L x channels, D x H x W x channels.
    picture: NDArray
    target: Any = None
    #: None on the grid of a picture.
    cells: Array | Labels | None = None
    #: Maps of finer layers, with the leading dimensions of ``coarse``; None: nobody brought any.
    finer: tuple[Tensor, ...] | None = None
    #: Whether the result has a leading dimension of targets.
    several: bool = False
    #: H x W, L or D x H x W.
    size: tuple[int, ...] = field(init=False)
    #: The coarse maps, (n, h, w) or, with labels, (n, K); without their graph.
    maps: Tensor = field(init=False)
    #: Is there no mass to redistribute?
    empty: bool = field(init=False)

    def __post_init__(self) -> None:
        size, plain = tuple(self.image.shape[1:]), self.coarse.detach()
        inner = len(size) if self.cells is None or isinstance(self.cells, Labels) else 1
        object.__setattr__(self, "size", size)
        object.__setattr__(self, "maps", plain.reshape(-1, *plain.shape[-inner:]))
        object.__setattr__(self, "empty", not bool(plain.any()))

    @cached_property
    def partition(self) -> Partition:
        """The cells of the coarse map on the picture."""
        blank = torch.zeros(self.size, dtype=self.coarse.dtype, device=self.coarse.device)
        return partition_of(self.coarse, blank, self.cells)[0]


def call_of(
    coarse: Array | CoarseMap, image: Array, target: Any, *, model: object = None, picture: Array | None = None,
    cells: Array | None = None, finer: Sequence[Array] | None = None,
) -> tuple[list[Input], bool, Callable[[Tensor], Any]]:  # fmt: skip
    """One input per picture, checked; whether they are a batch; and the way back to the coarse map's library and dtype.

    ``model`` tells a signal's batch from a picture and a picture's from a volume, see `dims_of`; a source's map knows.
    """
    images = check.as_tensor("image", image)
    dims = coarse.values.ndim - 1 if isinstance(coarse, CoarseMap) else dims_of(images, model)
    batched = images.ndim == dims + 2
    if isinstance(coarse, CoarseMap):
        coarse, target, finer = _unpacked(coarse, target, finer, batched=batched)
    values = check.as_tensor("coarse", coarse)
    check.finite("coarse", values)
    check.finite("image", images)
    if images.ndim not in (dims + 1, dims + 2):
        raise ValueError(f"`image` must be {_FORMS[dims - 1]} or B x {_FORMS[dims - 1]}; got {check.shape(images)}.")
    stack = images if batched else images[None]
    size = tuple(stack.shape[2:])
    inner = 1 if cells is not None else dims
    lead = values.shape[: values.ndim - inner] if values.ndim >= inner else None
    count = len(stack)
    if lead is None or len(lead) > 1 + batched or (batched and (not lead or lead[0] != count)):
        grid = "K" if cells is not None else _FORMS[dims - 1].removeprefix("C x ").lower()
        wanted = f"{count} x {grid} or {count} x T x {grid}" if batched else f"{grid} or T x {grid}"
        raise ValueError(f"`coarse` must be {wanted} for this `image`; got {check.shape(values)}.")
    own = _cells(values, size, cells)
    targets, several_targets = _per_picture(target, count, batched=batched)
    agree(lead[-1] if len(lead) == 1 + batched else 1, several_targets)
    levels = None if finer is None else _levels(finer, tuple(lead), dims)
    shown = None if picture is None else _pictures(picture, stack, batched=batched)
    several, inputs = len(lead) == 1 + batched or several_targets > 0, []
    for i, one in enumerate(values if batched else [values]):
        finer_maps = None if levels is None else tuple(level[i] if batched else level for level in levels)
        seen_as = as_numpy(displayable(stack[i])) if shown is None else shown[i]
        inputs.append(Input(one, stack[i], seen_as, targets[i], own, finer_maps, several))
    return inputs, batched, check.like_input(coarse)


#: A signal, a picture, a volume.
_FORMS = ("C x L", "C x H x W", "C x D x H x W")


def dims_of(image: Tensor, model: object) -> int:
    """1 for a signal (C, L), 2 for a picture (C, H, W), 3 for a volume (C, D, H, W), each alone or in a batch.

    Where both could be, the model's first convolution decides, and without one three or four are a picture's.

    >>> dims_of(torch.zeros(1, 1, 9), torch.nn.Conv1d(1, 1, 3)), dims_of(torch.zeros(1, 1, 9), None)
    (1, 2)
    """
    if image.ndim == 5:
        return 3
    found = convolution_dims(model)
    if image.ndim not in (3, 4):  # where it is neither two nor five, the model says what it should have been
        return found or (1 if image.ndim == 2 else 2)
    return found if found is not None and image.ndim in (found + 1, found + 2) else 2


@dataclass(frozen=True, eq=False)
class Pictured:
    """One picture as the model takes it, (C, H, W), and as a person sees it, H x W x 3 in [0, 1]."""

    image: Tensor
    picture: NDArray
    #: Of a file or pixels: the whole of it, in which ``picture`` sits by ``geometry``.
    original: NDArray | None = None
    geometry: Geometry | None = None


def pictured(image: Any, known: Loaded) -> Pictured:
    """What the model takes, made from whatever is handed in.

    A tensor, or an array (C, H, W), is what the model takes already; so is every array for a model of signals or
    volumes. A path, a Pillow image, a `Picture` and an array (H, W, 3) of bytes are prepared as the model wants it.
    """
    if isinstance(image, (str, Path)):
        found = opened(Path(image))
    elif isinstance(image, Picture):
        found = image
    elif hasattr(image, "getexif"):  # Pillow, which need not be imported for this
        found = taken(image)
    elif isinstance(image, np.ndarray) and image.ndim == 3 and image.shape[2] == 3 and _is_seen(image, known.model):
        found = Picture(Path("array"), as_bytes(image), (image.shape[0], image.shape[1]))
    else:
        tensor = _one_image(image, known.model)
        return Pictured(tensor, as_numpy(displayable(tensor)))
    tensor, geometry, view = prepared(found, known.prepare)
    return Pictured(tensor, view, found.unit, geometry)


def each_of(images: Any, model: object = None) -> tuple[Iterator[Any], int]:
    """Pictures one after the other, and how many there are; 0 where nobody knows."""
    if isinstance(images, (str, Path)):
        files = find(images)
        return iter(files), len(files)
    if isinstance(images, (Tensor, np.ndarray)):
        batch = torch.as_tensor(images)
        dims = dims_of(batch, model)
        if batch.ndim != dims + 2:
            raise ValueError(f"`images` must be a batch, B x {_FORMS[dims - 1]}; got {check.shape(batch)}.")
        return iter(images), len(images)
    dataset = getattr(images, "dataset", images)  # a DataLoader counts its batches
    return _flattened(images, model), len(dataset) if hasattr(dataset, "__len__") else 0


def _flattened(images: Any, model: object) -> Iterator[Any]:
    for entry in images:
        first = entry[0] if isinstance(entry, (list, tuple)) else entry  # (images, labels)
        batch = isinstance(first, Tensor) and first.ndim == dims_of(first, model) + 2
        yield from first if batch else [first]


def _is_seen(array: NDArray, model: object) -> bool:
    """Is it height x width x colours, and not channels x height x width?"""
    return convolution_dims(model) in (None, 2) and (array.dtype == np.uint8 or array.shape[0] not in (1, 3))


def _one_image(image: Any, model: object) -> Tensor:
    tensor = check.as_tensor("image", image)
    dims = dims_of(tensor, model)
    if tensor.ndim == dims + 2 and len(tensor) == 1:
        return tensor[0]
    if tensor.ndim != dims + 1:
        raise ValueError(
            f"`image` must be one {('signal', 'picture', 'volume')[dims - 1]}, {_FORMS[dims - 1]}; got "
            f"{check.shape(tensor)}. Explain the pictures of a batch with usu.explain_many, or use usu.upsample."
        )
    return tensor


def model_of(model: Any) -> Any:
    """The model itself, also where the whole of `usu.models.load` was handed in."""
    if isinstance(model, Loaded):
        return model.model
    inner = getattr(model, "model", None)  # of a pipeline of transformers
    return inner if hasattr(model, "image_processor") and isinstance(inner, torch.nn.Module) else model


def model_name(model: object) -> str:
    """For manifests and sentences."""
    kind = type(model)
    if isinstance(model, torch.nn.Module):
        return f"{kind.__module__}.{kind.__qualname__}"
    return getattr(model, "__name__", kind.__qualname__)


def agree(maps: int, targets: int) -> None:
    """One map or one target may serve several of the other; several of both go in pairs."""
    if maps > 1 and targets > 1 and maps != targets:
        raise ValueError(f"`coarse` must hold one map for all targets or one for each of the {targets}; got {maps}.")


def displayable(image: Tensor) -> Tensor:
    """(*size, channels) in [0, 1] by min-max, from whatever the model takes.

    Of a picture H x W x 3. A signal and a volume keep their channels; more than 16 become their mean.
    """
    field = image.detach().float()
    if len(field) > MOST_CHANNELS or (field.ndim == 3 and len(field) != 3):
        field = field.mean(0, keepdim=True)
    low, high = field.amin(), field.amax()
    shown = ((field - low) / (high - low).clamp(min=1e-12)).movedim(0, -1)
    return shown.expand(-1, -1, 3) if field.ndim == 3 else shown


def _unpacked(found: CoarseMap, target: Any, finer: Any, *, batched: bool) -> tuple[Tensor, Any, Any]:
    """A source's maps with what the source knows besides, for one picture or for a batch."""
    goals, levels = found.targets if target is None else target, found.finer or None if finer is None else finer
    if batched:
        return found.values, goals, levels
    if len(found.values) > 1:  # several classes of one picture
        return found.values, goals if target is not None or goals is None else list(goals), levels
    goals = goals[0] if target is None and goals else goals
    return found.values[0], goals, [level[0] for level in levels] if finer is None and levels else levels


def _levels(finer: Sequence[Array], lead: tuple[int, ...], dims: int) -> list[Tensor]:
    """Maps of finer layers, one beside every coarse map."""
    if not isinstance(finer, (list, tuple)):
        raise TypeError(f"`finer` must be a list of maps; got {type(finer).__name__}.")
    levels = [check.as_tensor("finer", level) for level in finer]
    for level in levels:
        if level.ndim != len(lead) + dims or tuple(level.shape[:-dims]) != lead:
            wanted = " x ".join([*map(str, lead), *(("l'",), ("h'", "w'"), ("d'", "h'", "w'"))[dims - 1]])
            raise ValueError(
                f"`finer` must hold maps of {wanted}, one beside every map of `coarse`; got {check.shape(level)}."
            )
        check.finite("finer", level)
    return levels


def _per_picture(target: Any, count: int, *, batched: bool) -> tuple[list[Any], int]:
    """What each picture is asked about, and how many targets each has; 0 where they are not in a list."""
    if isinstance(target, (np.ndarray, Tensor)):
        target = target.tolist()
    targets = list(target) if batched and isinstance(target, (list, tuple)) else [target] * count
    if len(targets) != count:
        raise ValueError(
            f"`target` must have one entry per picture ({count}); got {len(targets)}. For several targets per picture "
            "pass a list of lists."
        )
    counts = [len(goal) if isinstance(goal, (list, tuple)) else 0 for goal in targets]
    if len(set(counts)) > 1:
        got = ", ".join(f"a list of {n}" if n else "no list" for n in counts)
        raise ValueError(
            f"`target` must have the same form for every picture, one class or equally many in a list; got {got}."
        )
    return targets, counts[0]


def _cells(coarse: Tensor, size: tuple[int, ...], cells: Array | None) -> Array | Labels | None:
    """Every coarse value needs a place in the picture; a grid that is none of a picture's is made of boxes."""
    if cells is not None:
        check.labels("cells", cells, size=size)
        return cells
    grid = coarse.shape[-len(size) :]
    if any(few > many for few, many in zip(grid, size, strict=True)):
        many = " x ".join(map(str, size))
        raise ValueError(f"`coarse` must be no finer than `image` ({many}); got {check.shape(coarse)}.")
    return None if len(size) == 2 else boxes(grid, size, coarse.device)


def _pictures(picture: Array, images: Tensor, *, batched: bool) -> NDArray:
    shown, flat = as_numpy(picture), images.ndim == 4
    shown = shown if batched else shown[None]
    if shown.shape[:-1] != (len(images), *images.shape[2:]) or (flat and shown.shape[-1] != 3):
        wanted = "H x W x 3 with the height and width" if flat else "the size and then channels, with the size"
        raise ValueError(
            f"`picture` must be {wanted} of `image` ({check.shape(images[0, 0])}), one per picture; got "
            f"{' x '.join(map(str, shown.shape[1:]))}."
        )
    return shown
