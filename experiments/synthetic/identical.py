"""Distinct truths, one bilinear map: found by search.

A kernel sees the coarse map alone. Objects whose cells hold the same number of pixels have the same interpolated map,
wherever in their cells those pixels are. The search draws shapes at random, takes the nearest of another kind in the
space of coarse maps, and moves it until its bilinear map is the same to 1e-3.

The model is the one whose reasons are known exactly: it adds up the picture. The Shapley value of a pixel is its
brightness, so with a black background the truth's cell means *are* its coarse explanation, and USU asks that model.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

import numpy as np
import torch
from experiments.synthetic.coarse import cell_means

import usu

#: Corners.
KINDS = {"circle": None, "triangle": 3, "square": 4}
#: No polygon reaches farther than the triangle, 1.56 radii.
REACH = 1.6
#: Largest difference between two bilinear maps, in units of their maximum.
TOLERANCE = 1e-3
#: Two truths are distinct if they share at most this much (intersection over union).
OVERLAP = 0.6
CANDIDATES = 3000
#: Moves tried to bring a candidate closer, and their first length in pixels.
MOVES, STEP = 120, 1.5


@dataclass(frozen=True)
class Polygon:
    """A circle or regular polygon: centre and radius (that of the circle of its area) in pixels, turned by an angle."""

    kind: str
    y: float
    x: float
    radius: float
    turn: float

    def fits(self, size: int) -> bool:
        """Does all of it lie in the picture?"""
        return REACH * self.radius <= min(self.y, self.x) and max(self.y, self.x) <= size - REACH * self.radius

    def drawn(self, size: int) -> np.ndarray:
        """Its pixels, (size, size)."""
        field = np.zeros((size, size), dtype=bool)
        # thousands are drawn, so only where there can be something
        low, high = ((np.array([self.y, self.x]) + sign * REACH * self.radius).astype(int) for sign in (-1, 1))
        (top, left), (bottom, right) = low.clip(0, size), (high + 1).clip(0, size)
        y, x = np.mgrid[top:bottom, left:right] + 0.5
        y, x = y - self.y, x - self.x
        n = KINDS[self.kind]
        if n is None:
            field[top:bottom, left:right] = np.hypot(y, x) <= self.radius
            return field
        # n pairs of triangles, each pair of area apothem² · tan(π / n), make the polygon
        apothem = self.radius * np.sqrt(np.pi / (n * np.tan(np.pi / n)))
        angles = self.turn + 2 * np.pi * np.arange(n) / n
        field[top:bottom, left:right] = np.all([y * np.sin(a) + x * np.cos(a) <= apothem for a in angles], axis=0)
        return field


@dataclass(frozen=True, eq=False)
class Twins:
    """Objects of different kinds that interpolation cannot tell apart, and how far apart USU puts them."""

    polygons: tuple[Polygon, ...]
    truths: np.ndarray
    #: (n, grid, grid), (n, S, S), (n, S, S).
    coarse: np.ndarray
    bilinear: np.ndarray
    usu: np.ndarray

    @property
    def bilinear_gap(self) -> float:
        """The largest difference between two of the bilinear maps, over their maximum."""
        return _largest(self.bilinear, lambda one, other: np.abs(one - other).max()) / self.bilinear.max()

    @property
    def usu_gap(self) -> float:
        """The smallest share of mass that two of USU's maps put in different places."""
        return -_largest(self.usu, lambda one, other: -np.abs(one - other).sum() / (one.sum() + other.sum()))

    @property
    def overlap(self) -> float:
        """The largest intersection over union of two of the truths."""
        return _shared(self.truths)

    def records(self, number: int = 0) -> list[dict[str, object]]:
        """One per object, with what holds for the group."""
        group = {"bilinear_gap": self.bilinear_gap, "usu_gap": self.usu_gap, "overlap": self.overlap}
        return [
            {"group": number, **asdict(polygon), "grid": len(self.coarse[0]), "pixels": int(truth.sum()), **group}
            for polygon, truth in zip(self.polygons, self.truths, strict=True)
        ]


def light(batch: torch.Tensor) -> torch.Tensor:
    """The model: the sum of the picture, one logit. Against black, a pixel's Shapley value is its brightness."""
    return batch.flatten(1).sum(1, keepdim=True)


def search(
    *,
    size: int = 224,
    grid: int = 7,
    wanted: int = 1,
    candidates: int = CANDIDATES,
    tolerance: float = TOLERANCE,
    overlap: float = OVERLAP,
    seed: int = 0,
) -> list[Twins]:
    """Up to ``wanted`` groups of one object of each kind, largest objects first; fewer where no more are found.

    ``tolerance`` is on the bilinear maps of a group, ``overlap`` the most that two of its truths may share.
    """
    random = np.random.default_rng(seed)
    drawn = [_any(kind, size, grid, random) for kind in KINDS for _ in range(-(-candidates // len(KINDS)))]
    maps = np.stack([_means(polygon.drawn(size), grid) for polygon in drawn])
    found: list[Twins] = []
    for number in np.argsort([-polygon.radius for polygon in drawn]):
        group = [drawn[number]]
        for kind in (kind for kind in KINDS if kind != drawn[number].kind):
            rivals = [i for i, polygon in enumerate(drawn) if polygon.kind == kind]
            nearest = min(rivals, key=lambda i: np.abs(maps[i] - maps[number]).max())
            moved = _closer(drawn[nearest], maps[number], size, grid, tolerance, random)
            if moved is None:
                break
            group.append(moved)
        if len(group) == len(KINDS) and _shared(np.stack([one.drawn(size) for one in group])) <= overlap:
            twins = _explained(tuple(group), size, grid)
            if twins.bilinear_gap <= tolerance:  # each is near the first; near each other, too?
                found.append(twins)
        if len(found) == wanted:
            break
    return found


def _any(kind: str, size: int, grid: int, random: np.random.Generator) -> Polygon:
    """About as large as a cell, and whole."""
    radius = min(size / grid * random.uniform(0.2, 0.9), 0.3 * size)
    y, x = random.uniform(REACH * radius, size - REACH * radius, 2)
    return Polygon(kind, y, x, radius, random.uniform(0, 2 * np.pi))


def _closer(
    polygon: Polygon, goal: np.ndarray, size: int, grid: int, tolerance: float, random: np.random.Generator
) -> Polygon | None:
    """The polygon, moved, resized and turned until its coarse map is the goal's; None if it does not get there.

    Bilinear values are means of coarse ones, so coarse maps that agree make bilinear maps that agree.
    """
    limit = tolerance * goal.max() / 4  # a bilinear maximum is at least a quarter of the coarse one
    gap, step = np.abs(_means(polygon.drawn(size), grid) - goal).max(), STEP
    for move in range(MOVES):
        if gap <= limit:
            return polygon
        if move == MOVES // 4 and gap > 0.02:  # whoever spans several cells hardly ever gets there
            return None
        dy, dx, dr, turn = random.normal(size=4) * step
        trial = replace(
            polygon, y=polygon.y + dy, x=polygon.x + dx, radius=max(1.0, polygon.radius + dr / 4),
            turn=polygon.turn + turn / polygon.radius,
        )  # fmt: skip
        new = np.abs(_means(trial.drawn(size), grid) - goal).max()
        if new <= gap and trial.fits(size):
            polygon, gap = trial, new
        else:
            step = max(0.1, 0.95 * step)
    return None


def _explained(polygons: tuple[Polygon, ...], size: int, grid: int) -> Twins:
    """What bilinear and the paper's pipeline make of each."""
    truths = np.stack([polygon.drawn(size) for polygon in polygons])
    coarse = np.stack([_means(truth, grid) for truth in truths])
    maps = [
        usu.upsample(values, truth[None].astype(np.float32), light, 0, preset="paper").pixel_map
        for values, truth in zip(coarse, truths, strict=True)
    ]
    return Twins(polygons, truths, coarse, usu.interpolate(coarse, (size, size), "bilinear"), np.stack(maps))


def _means(truth: np.ndarray, grid: int) -> np.ndarray:
    return cell_means(torch.from_numpy(truth)[None], grid)[0].numpy()


def _shared(truths: np.ndarray) -> float:
    return _largest(truths, lambda one, other: (one & other).sum() / (one | other).sum())


def _largest(fields: np.ndarray, measure) -> float:
    return max(float(measure(fields[i], fields[j])) for i in range(len(fields)) for j in range(i))
