"""Tiles: the segmenter that does not look at the picture; the windows of a signal, the boxes of a volume."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from usu.operator.cells import boxes
from usu.segment.segmenter import answer, bounding_box, question
from usu.types import NDArray


@dataclass(frozen=True)
class Tiles:
    """Nearly square tiles, at most ``parts`` of them, over the region's bounding box: of a signal, equal windows.

    >>> Tiles()(np.zeros((2, 4, 3)), 2).tolist(), Tiles()(np.zeros((4, 1)), 2).tolist()
    ([[0, 0, 1, 1], [0, 0, 1, 1]], [0, 0, 1, 1])
    """

    def __call__(self, picture: NDArray, parts: int, *, region: NDArray | None = None) -> NDArray:
        """Tiles of ``region``; a tile that the region cuts in two counts as two."""
        picture, parts, region = question(picture, parts, region)
        box = bounding_box(region)
        tile = np.full(region.shape, -1, dtype=np.int64)
        tile[box] = boxes(_numbers(region[box].shape, parts), region[box].shape).labels().numpy()
        return answer(tile, parts, region)


def _numbers(size: tuple[int, ...], parts: int) -> list[int]:
    """Tiles along each side of a size: nearly cubes, at most ``parts`` in all."""
    numbers, left = [1] * len(size), parts
    for axis, side in enumerate(size[:-1]):
        length = (prod(size[axis:]) / left) ** (1 / (len(size) - axis))
        numbers[axis] = min(max(1, round(side / length)), side, left)
        left //= numbers[axis]
    numbers[-1] = min(left, size[-1])
    for axis in reversed(range(len(size) - 1)):  # what rounding and short sides left over
        others = prod(numbers) // numbers[axis]
        numbers[axis] = min(parts // others, size[axis])
    return numbers
