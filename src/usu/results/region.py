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
        for ring in _rings(self.keep):
            part = int(parts[int(ring[0].imag), int(ring[0].real)])
            polygons.setdefault(part, []).append([[int(corner.real), int(corner.imag)] for corner in ring])
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


def _rings(keep: NDArray) -> list[list[complex]]:
    """Closed lines of corners x + iy with the inside on the right hand, that bend at every corner.

    Each begins at the top left corner of its first pixel, row by row: a part's outer line before its holes.
    """
    inside = np.pad(keep, 1)
    steps: dict[tuple[complex, complex], None] = {}  # along the border of one pixel: from a corner, in a direction
    for direction in (1, -1, -1j, 1j):
        left = -1j * direction
        beside = np.roll(inside, (-int(left.imag), -int(left.real)), (0, 1))
        for y, x in np.argwhere(inside & ~beside).tolist():
            steps[complex(x - 0.5, y - 0.5) + (left - direction) / 2, direction] = None
    rings = []
    while steps:
        corner, direction = next(iter(steps))
        ring, done = [corner], [(corner, direction)]
        while (corner := corner + direction) != ring[0]:
            # where two pixels meet at a corner, turn right: the parts stay apart
            turns = (1j * direction, direction, -1j * direction)
            following = next(turn for turn in turns if (corner, turn) in steps)
            if following != direction:
                ring.append(corner)
            direction = following
            done.append((corner, direction))
        for step in done:
            del steps[step]
        rings.append([*ring, corner])
    return rings
