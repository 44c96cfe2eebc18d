"""Hierarchical watershed, with higra."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from usu import _checks as check
from usu.errors import MissingExtraError
from usu.segment.segmenter import answer, each_pixel, question
from usu.types import NDArray


@dataclass(frozen=True)
class Watershed:
    """Basins of the colour gradient, joined in order of their area, depth (``"dynamics"``) or volume.

    Exact edges and no seeds; a picture without any gradient has one basin and stays one segment. Needs the extra
    ``higra``.

    Guarantees: the same picture gives the same segments; connected; at most ``parts``.

    >>> halves = np.zeros((8, 8, 3))
    >>> halves[:, 4:] = 1
    >>> len(np.unique(Watershed()(halves, 2)))
    2
    """

    by: Literal["area", "dynamics", "volume"] = "area"

    def __post_init__(self) -> None:
        check.choice("by", self.by, ("area", "dynamics", "volume"))

    def __call__(self, picture: NDArray, parts: int, *, region: NDArray | None = None) -> NDArray:
        """Cut ``picture``, or the ``region`` of it, into about ``parts`` basins."""
        try:
            import higra
        except ImportError:
            raise MissingExtraError("higra", "higra", "The hierarchical watershed") from None
        from skimage.color import rgb2lab
        from skimage.measure import label

        picture, parts, region = question(picture, parts, region)
        labels = np.full(region.shape, -1, dtype=np.int64)
        colour = (rgb2lab(picture) if picture.shape[-1] == 3 else 100 * picture)[region]
        if len(colour) == 1:
            return each_pixel(region)
        ends = _edges(region)
        step = np.linalg.norm(colour[ends[0]] - colour[ends[1]], axis=1)
        # the tree needs a connected graph: a chain of bridges through the first pixels of the region's pieces, which
        # are higher than any edge of the picture
        piece = label(region, connectivity=1)[region]  # type: ignore[no-untyped-call]
        first = np.unique(piece, return_index=True)[1]
        loose = np.stack([first[:-1], first[1:]])
        ends = np.concatenate([ends, loose], axis=1)
        step = np.concatenate([step, np.full(loose.shape[1], step.max(initial=0) + 1)])
        graph = higra.UndirectedGraph(len(colour))
        graph.add_edges(*ends)
        grow = getattr(higra, f"watershed_hierarchy_by_{self.by}")
        tree, altitude = grow(graph, step)
        cut = higra.HorizontalCutExplorer(tree, altitude).horizontal_cut_from_num_regions(parts)
        labels[region] = cut.labelisation_leaves(tree)
        return answer(labels, parts, region)


def _edges(region: NDArray) -> NDArray:
    """2 x E: the pairs of neighbours along a dimension inside the region, as positions among its pixels."""
    position = each_pixel(region)
    axes = reversed(range(region.ndim))
    pairs = [np.stack([np.delete(position, end, axis).ravel() for end in (-1, 0)]) for axis in axes]
    ends = np.concatenate(pairs, axis=1)
    return ends[:, (ends >= 0).all(axis=0)]
