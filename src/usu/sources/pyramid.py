"""The conserved pyramid: a coarse map handed down from layer to layer, no cell ever losing mass to another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from usu import _checks as check
from usu.operator.cells import interval_of
from usu.operator.interpolate import interpolate
from usu.operator.redistribute import redistribute
from usu.sources.coarse_map import finite, notes_on
from usu.sources.formulas import FORMULAS
from usu.sources.layers import Heard, candidates, find_layer, grid_of, listen
from usu.sources.passes import Goals, Target, checked_pictures, in_chunks, one_each, score_of, with_gradients
from usu.types import Array


@dataclass(frozen=True, eq=False)
class Level:
    """One resolution of a pyramid."""

    #: The layer whose gradient x activation gave the scores; the last level's is the picture, "".
    layer: str
    #: (B, h, w), float64: how much of the coarse map's mass is here. On the last level that is the pixel map.
    mass: Tensor
    #: (B, h, w) in [0, 1], by which the level above was shared out; None for the first.
    scores: Tensor | None


@dataclass(frozen=True, eq=False)
class Pyramid:
    """A coarse map and what became of it, from the coarsest layer to the pixels."""

    levels: tuple[Level, ...]
    #: Why these layers.
    reason: str
    #: The class explained in each picture; None where the target was a callable.
    targets: tuple[int, ...] | None
    #: Forward passes counted in pictures; each came with one backward pass.
    evaluations: int
    #: What a person should know before believing the map.
    notes: tuple[str, ...] = ()

    @property
    def pixel_map(self) -> Tensor:
        """(B, H, W), float64: a density per pixel, as `usu.redistribute` returns it."""
        return self.levels[-1].mass


def pyramid(
    model: nn.Module,
    images: Array,
    target: Target = None,
    *,
    layers: Sequence[str | nn.Module] | None = None,
    source: Literal["gradcam", "hirescam", "layercam"] = "gradcam",
    temperature: float = 0.3,
    base: Literal["bilinear"] | None = "bilinear",
    chunk: int = 16,
) -> Pyramid:
    """Redistribute the last layer's map over the layer before it, that over the one before, and so on to the pixels.

    Every step is `usu.redistribute` with the finer layer's positive gradient x activation as scores,
    relu(sum over channels of G_c · A_c); for the pixels it is gradient x picture. All of it from one pass.

    An experiment, kept because it costs so little: in the project's first measurements (20 pictures, and 8 others with
    these settings) it ranked pixels worse than bilinear does. Nothing is claimed of it but that it conserves.

    Args:
        model: an ``nn.Module``; left exactly as it was found.
        images: (B, C, H, W), as the model takes them.
        target: as in `usu.gradcam`.
        layers: names or modules, in any order, of different resolutions; None takes the last layer of each resolution.
        source: the formula of the coarsest map.
        temperature: of the potential.
        base: ``"bilinear"`` smooths the seams between cells; None leaves them.
        chunk: pictures per pass; bounds the memory.

    Guarantees:
        D1 from every level to the next, to 1e-12: a cell's mass is the sum of the finer cells in it. So the total is
        kept. One forward and one backward pass per picture.

    >>> model = nn.Sequential(nn.Conv2d(1, 1, 1, bias=False), nn.AvgPool2d(2), nn.Conv2d(1, 1, 1, bias=False),
    ...                       nn.AdaptiveAvgPool2d(1), nn.Flatten())
    >>> with torch.no_grad(): _ = model[0].weight.fill_(1.0), model[2].weight.fill_(1.0)
    >>> picture = torch.zeros(1, 1, 4, 4)
    >>> picture[..., 0, 0] = 4  # one bright pixel: A = 1 in the first of 2 x 2 cells, w = 1/4
    >>> found = pyramid(model, picture, base=None, temperature=1e-3)
    >>> [tuple(level.mass.shape) for level in found.levels]
    [(1, 2, 2), (1, 4, 4)]
    >>> found.levels[0].mass.tolist()
    [[[1.0, 0.0], [0.0, 0.0]]]
    >>> round(float(found.pixel_map[0, 0, 0]), 6)  # all of the cell's mass
    1.0
    """
    pictures = checked_pictures("The pyramid", model, images, chunk)
    goals = one_each(target, len(pictures))
    check.choice("source", source, tuple(FORMULAS))
    if base is not None:
        check.choice("base", base, ("bilinear",))
    check.positive_number("temperature", temperature)
    asked = None if layers is None else _checked_layers(model, layers)
    seen: list[tuple[_Seen, ...]] = []
    classes: list[int] = []
    with with_gradients(model, pictures) as home:
        for leaf, wanted in in_chunks(pictures, goals, chunk, home):
            found, named = _one_pass(model, leaf, wanted, asked, source)
            if asked is None:  # the other chunks take the same layers
                asked = dict(find_layer(model, one.layer) for one in found if one.layer)
            seen.append(found)
            classes += named
    together = [
        _Seen(
            parts[0].layer,
            finite(torch.cat([one.coarse for one in parts])),
            finite(torch.cat([one.product for one in parts])),
        )
        for parts in zip(*seen, strict=True)
    ]
    told = ", ".join(f"{one.size[0]} x {one.size[1]}" for one in together[:-1])
    return Pyramid(
        levels=_handed_down(together, (pictures.shape[2], pictures.shape[3]), temperature, base),
        reason=f"{'the last layer of each resolution' if layers is None else 'asked for'} ({told})",
        targets=None if callable(goals) else tuple(classes),
        evaluations=len(pictures),
        notes=notes_on(together[0].coarse, relu=True),
    )


@dataclass(frozen=True, eq=False)
class _Seen:
    """What one layer says, signed, (B, h, w)."""

    layer: str
    #: By the formula of the source, should this be the coarsest layer.
    coarse: Tensor
    #: Gradient x activation, should it be a finer one.
    product: Tensor

    @property
    def size(self) -> tuple[int, int]:
        return self.coarse.shape[1], self.coarse.shape[2]


def _one_pass(
    model: nn.Module, leaf: Tensor, goals: Goals, asked: dict[str, nn.Module] | None, source: str
) -> tuple[tuple[_Seen, ...], list[int]]:
    """What the layers say, from coarse to fine, the picture last; a forward and one backward pass to the picture."""
    found: dict[object, _Seen] = {}
    answered: set[object] = set()

    def tell(heard: Heard) -> None:
        # the hook below must not hold the tensor it hangs on: a circle would keep the whole graph
        name, grid = heard.name, grid_of(heard, leaf)
        activation = grid.arrange(heard.output.detach())
        key = (grid.height, grid.width) if asked is None else name
        if asked is not None:  # one that the target does not look at says nothing, but it was asked for
            found[key] = _seen(name, activation, torch.zeros_like(activation), source)

        def look(gradient: Tensor) -> None:
            slope = grid.arrange(gradient)
            # the way back meets the last layer first; a ViT's last ones have no gradient at their patches
            if key not in answered and bool(slope.count_nonzero()):
                answered.add(key)
                found[key] = _seen(name, activation, slope, source)

        heard.output.register_hook(look)

    modules = candidates(model) if asked is None else asked
    with listen(model, modules, leaf, only_grids=asked is None, tell=tell):
        output = model(leaf.clone())
    score, classes = score_of(output, goals, len(leaf))
    (slope,) = torch.autograd.grad(score, [leaf], allow_unused=True)
    ordered = sorted(found.values(), key=lambda one: one.size[0] * one.size[1])
    size = (leaf.shape[2], leaf.shape[3])
    if asked is None:
        ordered = _growing(ordered, size)
    elif len(ordered) < len(asked) or _growing(ordered, size) != ordered:
        told = ", ".join(f"{one.layer} of {one.size[0]} x {one.size[1]}" for one in ordered) or "none that ran"
        raise ValueError(
            f"`layers` must all run and be of different resolutions, each coarser than the picture; got {told}. "
            "Name one layer for each resolution."
        )
    if not ordered:
        raise ValueError(
            "`model` must have a layer coarser than the picture through which the target can be changed; got none. "
            "Name some with `layers`."
        )
    picture = _seen("", leaf.detach(), torch.zeros_like(leaf) if slope is None else slope, source)
    return (*ordered, picture), classes


def _seen(layer: str, activation: Tensor, slope: Tensor, source: str) -> _Seen:
    return _Seen(layer, FORMULAS[source](activation, slope), FORMULAS["hirescam"](activation, slope))


def _growing(ordered: Sequence[_Seen], size: tuple[int, int]) -> list[_Seen]:
    """Those that are finer than the one before in both directions, and coarser than the picture."""
    kept: list[_Seen] = []
    for one in ordered:
        before = kept[-1].size if kept else (0, 0)
        if before[0] < one.size[0] < size[0] and before[1] < one.size[1] < size[1]:
            kept.append(one)
    return kept


def _handed_down(
    seen: Sequence[_Seen], size: tuple[int, int], temperature: float, base: str | None
) -> tuple[Level, ...]:
    top, *finer = seen
    density = top.coarse.relu().double()
    mass = density * _pixels(top.size, size, density.device)
    levels = [Level(top.layer, mass, None)]
    for one in finer:
        scores = _scaled(one.product.relu().double())
        prior = interpolate(mass, one.size, "bilinear") if base else None
        mass = redistribute(mass, scores, temperature=temperature, base=prior, coarse_is="mass")
        levels.append(Level(one.layer, mass, scores))
    return tuple(levels)


def _pixels(grid: tuple[int, int], size: tuple[int, int], device: torch.device) -> Tensor:
    """How many pixels each cell of the grid holds, (h, w)."""
    rows, columns = (
        torch.bincount(interval_of(pixels, cells, device), minlength=cells).double()
        for pixels, cells in zip(size, grid, strict=True)
    )
    return rows[:, None] * columns


def _scaled(positive: Tensor) -> Tensor:
    """To [0, 1]: each picture's scores divided by their largest, so that a layer without gradient leaves no trace.

    Quantiles, ranks and roots in its place were tried on eight pictures and made no difference worth a setting.
    """
    top = positive.flatten(1).amax(1)[:, None, None]
    return positive / top.where(top > 0, 1)


def _checked_layers(model: nn.Module, layers: Sequence[str | nn.Module]) -> dict[str, nn.Module]:
    if not isinstance(layers, (list, tuple)) or not layers:
        raise TypeError(
            f"`layers` must be a list of names or modules; got {type(layers).__name__}. "
            "Leave it None to have them chosen."
        )
    return dict(find_layer(model, layer) for layer in layers)
