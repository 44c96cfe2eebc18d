"""Segments that the user brings: a label map, or a stack of regions as SAM returns them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from usu.segment.segmenter import Segmenter, Slic, connected, label_map, question, relabel
from usu.types import NDArray

_SLIC = Slic()


@dataclass(frozen=True, eq=False)
class Given:
    """The user's ``labels`` for the whole picture; inside a region, where they say nothing more, ``inner`` cuts on.

    >>> Given(np.array([[7, 7], [7, 2]]))(np.zeros((2, 2, 3)), 5).tolist()  # whatever parts says
    [[1, 1], [1, 0]]
    """

    labels: NDArray
    inner: Segmenter = _SLIC

    def __post_init__(self) -> None:
        labels = relabel(label_map("labels", self.labels, least=0))
        labels.flags.writeable = False
        object.__setattr__(self, "labels", labels)

    def __call__(self, picture: NDArray, parts: int, *, region: NDArray | None = None) -> NDArray:
        """The given labels (whatever ``parts`` says), or the inner segmenter's for a ``region``."""
        if region is not None:
            return self.inner(picture, parts, region=region)
        picture, _, _ = question(picture, parts, region)
        if picture.shape[:-1] != self.labels.shape:
            raise ValueError(
                f"`labels` must have the picture's size {picture.shape[:-1]}; got {self.labels.shape}. "
                "Resize and crop them exactly as the picture, with nearest-neighbour."
            )
        return np.array(self.labels)


def from_labels(labels: NDArray, *, inner: Segmenter = _SLIC) -> Given:
    """A segmenter from an H x W integer label map; labels may have gaps, segments need not be connected.

    >>> from_labels(np.array([[5, 5, 9]])).labels.tolist()
    [[0, 0, 1]]
    """
    return Given(labels, inner)


def from_masks(regions: NDArray | Sequence[NDArray], *, inner: Segmenter = _SLIC) -> Given:
    """A segmenter from N x H x W boolean regions that may overlap and leave gaps, as SAM gives them.

    Completed to a partition: where regions overlap the smaller one wins (the earlier one, if they are equally large),
    uncovered pixels become one segment for each connected piece. Regions that are empty or wholly hidden vanish.

    >>> dog, nose = np.array([[1, 1, 1, 0]]) > 0, np.array([[0, 1, 0, 0]]) > 0
    >>> from_masks([nose, dog]).labels.tolist()
    [[1, 0, 1, 2]]
    """
    stack = np.asarray(regions)
    if not 2 <= stack.ndim <= 4 or 0 in stack.shape[1:]:
        raise ValueError(f"`regions` must be N x H x W; got shape {stack.shape}.")
    if stack.dtype != bool:
        raise TypeError(f"`regions` must be boolean; got {stack.dtype}. Compare first, e.g. `regions > 0.5`.")
    labels = np.full(stack.shape[1:], -1, dtype=np.int64)
    # painted over each other from large to small, and among equals from last to first
    for n in np.lexsort((-np.arange(len(stack)), -stack.sum(axis=tuple(range(1, stack.ndim))))):
        labels[stack[n]] = n
    bare = connected(np.where(labels < 0, 0, -1))
    return Given(np.where(labels < 0, bare + len(stack), labels), inner)
