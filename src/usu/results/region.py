"""A map's strongest region: the fewest pixels that hold a share of its evidence, as others' tools read regions."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from usu import _checks as check
from usu.types import NDArray


@dataclass(frozen=True, eq=False)
class Region:
    """Pixels that hold a share of a map's evidence; x runs to the right, y downwards, from the top left corner."""

    #: H x W, True inside.
    keep: NDArray
    #: The share of the evidence that is inside: as asked for, and the last pixel more.
    share: float

    @property
    def area(self) -> float:
        """The part of the picture that is inside."""
        return float(self.keep.mean())

    @property
    def box(self) -> tuple[int, ...]:
        """(top, left, bottom, right) around all of it, the last two exclusive; all 0 for an empty region.

        Of a signal or a volume, where it begins and where it ends along each dimension.
        """
        places = np.nonzero(self.keep)
        if not len(places[0]):
            return (0,) * (2 * len(places))
        return (*(int(along.min()) for along in places), *(int(along.max()) + 1 for along in places))

    def rle(self) -> dict[str, Any]:
        """COCO's run lengths: down the columns, pixels outside and inside by turns, beginning outside. Not of a volume.

        >>> Region(np.array([[False, True], [False, True]]), 1.0).rle()
        {'size': [2, 2], 'counts': [2, 2]}
        """
        if self.keep.ndim > 2:
            raise ValueError("`keep` must be H x W or L to have run lengths; got D x H x W. Take `keep`.")
        flat = np.concatenate([[False], self.keep.ravel(order="F"), [False]])
        ends = np.flatnonzero(np.diff(flat.astype(np.int8)))
        last = [] if len(ends) and ends[-1] == self.keep.size else [self.keep.size]
        counts = [int(b - a) for a, b in pairwise([0, *ends.tolist(), *last])]
        return {"size": list(self.keep.shape), "counts": counts}

    def geojson(self) -> dict[str, Any]:
        """A GeoJSON feature: one closed line along the pixels' borders for each part and each hole.

        The lines run along whole pixels, so that their area is the number of pixels inside.
        """
        if self.keep.ndim != 2:
            raise ValueError(f"`keep` must be H x W to have outlines; got {self.keep.ndim} dimensions. Take `keep`.")
        from skimage.measure import label

        parts, polygons = label(self.keep, connectivity=1), dict[int, list[Any]]()  # type: ignore[no-untyped-call]
        for ring in sorted(_rings(self.keep), key=_turning, reverse=True):  # a part's outer line before its holes
            polygons.setdefault(int(parts[_inner_pixel(ring)]), []).append(ring)
        return {
            "type": "Feature",
            "properties": {"share": self.share, "area": self.area},
            "geometry": {"type": "MultiPolygon", "coordinates": list(polygons.values())},
        }


def region_of(field: NDArray, share: float = 0.5) -> Region:
    """The fewest pixels that hold ``share`` of the map's positive evidence; pixels as strong as the last come along.

    >>> found = region_of(np.array([[4.0, 3.0], [2.0, 1.0]]), 0.6)
    >>> found.keep.tolist(), found.share
    ([[True, True], [False, False]], 0.7)
    """
    check.real_number("share", share, least=0, most=1)
    values = np.maximum(np.nan_to_num(np.asarray(field, dtype=np.float64)), 0)
    total = values.sum()
    if total <= 0 or share == 0:
        return Region(np.zeros(values.shape, dtype=bool), 0.0)
    falling = np.sort(values, axis=None)[::-1]
    last = min(int(np.searchsorted(np.cumsum(falling), share * total * (1 - 1e-12))), len(falling) - 1)
    keep = (values >= falling[last]) & (values > 0)
    return Region(keep, float(values[keep].sum() / total))


def _rings(keep: NDArray) -> list[list[list[int]]]:
    """Closed lines of [x, y] corners with the inside on the right hand, y downwards, that bend at every corner."""
    inside = np.pad(keep, 1)
    # a step goes from a corner to the next; on top of a pixel to the right, beneath it to the left, and so on
    steps: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for (dy, dx), start, end in (
        ((-1, 0), (0, 0), (1, 0)),
        ((1, 0), (1, 1), (0, 1)),
        ((0, -1), (0, 1), (0, 0)),
        ((0, 1), (1, 0), (1, 1)),
    ):
        beside = np.roll(inside, (-dy, -dx), (0, 1))
        for y, x in np.argwhere(inside & ~beside).tolist():
            corner = (x - 1 + start[0], y - 1 + start[1])
            steps.setdefault(corner, []).append((x - 1 + end[0], y - 1 + end[1]))
    rings = []
    while steps:
        first = next(iter(steps))
        ring, at, before = [first], first, (0, 0)
        while True:
            choices = steps[at]
            # where two pixels meet at a corner, turn right: the parts stay apart
            right = (at[0] - before[1], at[1] + before[0])
            following = choices.pop(choices.index(right) if right in choices else 0)
            if not choices:
                del steps[at]
            before, at = (following[0] - at[0], following[1] - at[1]), following
            ring.append(at)
            if at == first:
                break
        # of corners in a row only the ends
        bends = [
            b for a, b, c in zip([ring[-2], *ring], ring[:-1], ring[1:], strict=False)
            if (b[0] - a[0], b[1] - a[1]) != (c[0] - b[0], c[1] - b[1])
        ]  # fmt: skip
        rings.append([list(corner) for corner in [*bends, bends[0]]])
    return rings


def _turning(ring: list[list[int]]) -> float:
    """The area inside, positive for a part and negative for a hole."""
    return sum(a[0] * b[1] - b[0] * a[1] for a, b in pairwise(ring)) / 2


def _inner_pixel(ring: list[list[int]]) -> tuple[int, int]:
    """Row and column of the pixel on the right hand of the ring's first step."""
    (x0, y0), (x1, y1) = ring[0], ring[1]
    dx, dy = np.sign(x1 - x0), np.sign(y1 - y0)
    # half a pixel along and half a pixel to the right: its middle
    return int(y0 + (dy + dx) / 2), int(x0 + (dx - dy) / 2)
