"""Tiles: the segmenter that does not look at the picture."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from usu.operator.cells import interval_of
from usu.segment.segmenter import answer, bounding_box, question
from usu.types import NDArray


@dataclass(frozen=True)
class Tiles:
    """Nearly square tiles, at most ``parts`` of them, over the region's bounding box.

    >>> Tiles()(np.zeros((2, 4, 3)), 2).tolist()
    [[0, 0, 1, 1], [0, 0, 1, 1]]
    """

    def __call__(self, picture: NDArray, parts: int, *, region: NDArray | None = None) -> NDArray:
        """Tiles of ``region``; a tile that the region cuts in two counts as two."""
        picture, parts, region = question(picture, parts, region)
        box = bounding_box(region)
        height, width = region[box].shape
        down = min(max(1, round((parts * height / width) ** 0.5)), height, parts)
        across = min(parts // down, width)
        down = min(parts // across, height)
        rows, columns = (interval_of(*axis, torch.device("cpu")) for axis in ((height, down), (width, across)))
        tile = np.full(region.shape, -1, dtype=np.int64)
        tile[box] = rows.numpy()[:, None] * across + columns.numpy()
        return answer(tile, parts, region)
