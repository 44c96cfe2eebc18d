"""Infidelity (Yeh et al., 2019): does the attribution inside a block tell how much the output changes without it?

`block_changes` asks the model, once per image; `infidelity_of` compares any number of maps with its answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor

from usu import _checks as check
from usu.forward import Link, Model, Target
from usu.forward.fills import Fill, filled
from usu.metrics import quantus_compat
from usu.metrics.maps import Measured, aimed, checked_map, one_target
from usu.types import Array

#: Sides of the blocks, as shares of the image's shorter side.
SIDES = (1 / 16, 1 / 8, 1 / 4, 3 / 8)


def infidelity(
    pixel_map: Array, image: Array, model: Model, target: Target = None, *, blocks: int = 200,
    sides: Sequence[float] = SIDES, fill: Fill | Literal["black", "white"] | None = None, link: Link = "logit",
    scaling: Literal["optimal", "raw"] | None = None, compat: Literal["quantus"] | None = None,
    patch_sizes: Sequence[int] = (4,), generator: torch.Generator | int = 0,
) -> Measured:  # fmt: skip
    """min_β E[(βu - v)²] / E[v²] = 1 - E[uv]² / (E[u²] E[v²]), u_i = Σ of the map in block i, v_i = g - g without it.

    Args:
        blocks: random squares, taken out one at a time. Fill None is ``"mean"``, and ``"black"`` with ``compat``.
        sides: of the squares, as shares of the image's shorter side, equally often; at least one pixel.
        link: logits, because an attribution is a sum and they are what adds up.
        scaling: ``"optimal"`` (None) gives the map the scale that suits it best; ``"raw"`` is E[(u - v)²], which
            rewards a map divided by its maximum for being spiky.
        patch_sizes: sides of Quantus' patches in pixels (``compat`` only); they must divide the image's sides.

    Guarantees:
        Lower is better. ``"optimal"``: in [0, 1], whatever the scale; 1 for a map of zeros, and where the output never
        changes. ``"raw"`` and ``compat``: without bound, not scale-invariant. ``blocks`` + 1 evaluations (``compat``:
        1 + Σ_p H·W / p²), one more if ``target`` is None. ``curve`` is (n, 2): u and v of every block.

    >>> total = lambda batch: batch.sum((1, 2, 3))[:, None]
    >>> image = torch.rand(1, 8, 8)
    >>> infidelity(5 * image[0], image, total, 0, fill=0).value < 1e-9  # attribution ∝ effect: nothing is wrong
    True
    """
    if quantus_compat.wanted(compat):
        if scaling == "optimal":
            raise ValueError("`scaling` must be 'raw' or None with compat='quantus'; got 'optimal'.")
        how = "black" if fill is None else fill
        patches = quantus_compat.patch_changes(image, model, target, patch_sizes=patch_sizes, fill=how, link=link)
        return quantus_compat.infidelity(pixel_map, patches)
    ours = cast(Fill, "mean" if fill is None else fill)
    changes = block_changes(image, model, target, blocks=blocks, sides=sides, fill=ours, link=link, generator=generator)
    value = infidelity_of(pixel_map, changes, scaling=scaling or "optimal")
    u = changes.blocks.sums(checked_map(pixel_map))
    return Measured(value, changes.evaluations, torch.stack([u, changes.values], 1).numpy())


@dataclass(frozen=True, eq=False)
class Blocks:
    """Squares inside an image: block i is ``side[i]`` wide, from ``top[i]`` and ``left[i]``; (n,) whole numbers."""

    top: Tensor
    left: Tensor
    side: Tensor

    def sums(self, field: Tensor) -> Tensor:
        """Σ of a field (H, W) over each block: (n,). Four values of the running sums each, however large the blocks."""
        total = torch.nn.functional.pad(field.double().cumsum(0).cumsum(1), (1, 0, 1, 0))
        bottom, right = self.top + self.side, self.left + self.side
        return total[bottom, right] - total[self.top, right] - total[bottom, self.left] + total[self.top, self.left]

    def hidden(self, image: Tensor, filled: Tensor, rows: slice) -> Tensor:
        """Images (n, C, H, W), each with one of the blocks in ``rows`` taken from ``filled``."""
        corners = torch.stack([self.top, self.left, self.side], 1)[rows].tolist()
        batch = image.expand(len(corners), *image.shape).clone()
        for one, (top, left, side) in zip(batch, corners, strict=True):
            part = ..., slice(top, top + side), slice(left, left + side)
            one[part] = filled[part]
        return batch


def random_blocks(
    size: tuple[int, int], count: int, *, sides: Sequence[float] = SIDES, generator: torch.Generator
) -> Blocks:
    """``count`` blocks inside an image of ``size`` (H, W): each side equally often, positions uniform."""
    check.whole_number("blocks", count, least=1)
    if not sides or not min(check.real_number("sides", share, most=1, least=0) for share in sides) > 0:
        raise ValueError(f"`sides` must be at least one number above 0; got {tuple(sides)}.")
    lengths = torch.tensor([max(1, round(share * min(size))) for share in sides])
    side = lengths.repeat(-(-count // len(lengths)))[:count]
    u = torch.rand(2, count, dtype=torch.float64, generator=generator, device=generator.device).cpu()
    top, left = (u * torch.stack([size[0] - side + 1, size[1] - side + 1])).long()
    return Blocks(top, left, side)


@dataclass(frozen=True, eq=False)
class BlockChanges:
    """What the model lost with each block of an image: the same for every map of it."""

    blocks: Blocks
    #: (n,) v = g(image) - g(image without the block), in float64 on the CPU.
    values: Tensor
    #: Height and width of the image.
    size: tuple[int, int]
    evaluations: int


def block_changes(
    image: Array, model: Model, target: Target = None, *, blocks: int = 200, sides: Sequence[float] = SIDES,
    fill: Fill = "mean", link: Link = "logit", generator: torch.Generator | int = 0,
) -> BlockChanges:  # fmt: skip
    """Ask the model about random blocks, once for all maps of an image; settings and cost as in `infidelity`."""
    asked, image = aimed(model, target, image, link)
    size = int(image.shape[-2]), int(image.shape[-1])
    drawn = random_blocks(size, blocks, sides=sides, generator=check.generator("generator", generator))
    hidden = filled(image, fill)
    whole = one_target(asked.evaluate(image, 1, lambda _: image[None]))
    values = asked.evaluate(image, blocks, lambda rows: drawn.hidden(image, hidden, rows))
    return BlockChanges(drawn, whole - one_target(values), size, asked.meter.spent)


def infidelity_of(pixel_map: Array, changes: BlockChanges, *, scaling: Literal["optimal", "raw"] = "optimal") -> float:
    """The infidelity of one map, given the model's answers. No evaluations.

    >>> two = Blocks(torch.tensor([0, 0]), torch.tensor([0, 1]), torch.tensor([1, 1]))
    >>> changes = BlockChanges(two, torch.tensor([1.0, 0.0]).double(), (1, 2), evaluations=3)
    >>> infidelity_of(torch.tensor([[3.0, 0.0]]), changes, scaling="raw")  # (2² + 0²) / 2
    2.0
    """
    check.choice("scaling", scaling, ("optimal", "raw"))
    field, v = checked_map(pixel_map, changes.size), changes.values
    if scaling == "raw":
        return float((changes.blocks.sums(field) - v).square().mean())
    # in units of the largest value, so that no square overflows or vanishes
    peak, loudest = field.abs().max(), v.abs().max()
    if not (peak > 0 and loudest > 0):
        return 1.0
    u, v = changes.blocks.sums(field / peak), v / loudest
    squares = float(u @ u) * float(v @ v)
    # rounding may leave the interval by a hair; a map that is zero inside every block has told nothing
    return min(1.0, max(0.0, 1 - float(u @ v) ** 2 / squares)) if squares > 0 else 1.0
