"""Infidelity (Yeh et al., 2019): does the attribution inside a block tell how much the output changes without it?

The costly part does not depend on the map: `block_changes` asks the model once per picture, `infidelity_of` compares
any number of maps with its answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np
import torch
from torch import Tensor

from usu import _checks as check
from usu.forward import Model
from usu.forward.fills import Fill, filled
from usu.forward.outputs import Link, Target
from usu.metrics.blocks import SIDES, Blocks, random_blocks
from usu.metrics.curves import falling_means, level_as_quantus, one_target, walk
from usu.metrics.measurement import Measured
from usu.metrics.passes import asked, checked_map, dice
from usu.types import Array


def infidelity(
    pixel_map: Array,
    image: Array,
    model: Model,
    target: Target = None,
    *,
    blocks: int = 200,
    sides: Sequence[float] = SIDES,
    fill: Fill | Literal["black", "white"] | None = None,
    link: Link = "logit",
    scaling: Literal["optimal", "raw"] | None = None,
    compat: Literal["quantus"] | None = None,
    patch_sizes: Sequence[int] = (4,),
    generator: torch.Generator | int = 0,
) -> Measured:
    """min_β E[(βu - v)²] / E[v²] = 1 - E[uv]² / (E[u²] E[v²]), u_i = Σ of the map in block i, v_i = g - g without it.

    Args:
        pixel_map: (H, W), higher = more relevant.
        image: (C, H, W), as the model takes it.
        blocks: how many random squares are taken out, one at a time.
        sides: their sides as shares of the picture's shorter side, equally often.
        fill: what takes a block's place; see `usu.fills`. None is ``"mean"``, and ``"black"`` with ``compat``.
        link: what of the output is compared. An attribution is a sum, and logits are what adds up.
        scaling: ``"optimal"`` (None) gives the map the scale that suits it best; ``"raw"`` is E[(u - v)²], which
            grows with the square of the map: a map divided by its maximum is rewarded for being spiky.
        compat: ``"quantus"`` gives the number of Quantus 0.6.0, ``Infidelity(perturb_patch_sizes=patch_sizes,
            perturb_baseline=fill)`` called with ``softmax=False`` (or True and link ``"probability"``). It is raw and
            differs by:

            - the blocks: a grid of patches, row by row, that stay filled, so the k-th picture lacks k patches.
            - the map: multiplied by what the fill changed in the picture, Σ_c (image - fill), before it is summed.
            - the fills: ``"black"`` is the smallest value of the picture, ``"white"`` the largest, ``"mean"`` the mean
              of all its values *as filled so far*; or a number.
            - n_perturb_samples: Quantus computes the same number that often; here it is computed once.
        patch_sizes: sides of the patches in pixels; the mean over them is taken (``compat`` only). Quantus fails where
            they do not divide the picture's sides.
        generator: draws the positions of the blocks.

    Guarantees:
        Lower is better. Scaling ``"optimal"``: in [0, 1], the same for the map times any number but 0; a map of zeros
        scores 1, and so does any map where the model's output never changes, because nothing was explained. ``"raw"``
        and ``compat``: from 0, without bound, not scale-invariant. ``blocks`` + 1 evaluations (``compat``: 1 +
        Σ_p H·W / p²), one more if ``target`` is None. ``curve`` is (n, 2): u and v of every block.

    >>> total = lambda batch: batch.sum((1, 2, 3))[:, None]
    >>> picture = torch.arange(64.0).reshape(1, 8, 8)
    >>> infidelity(5 * picture[0], picture, total, 0, fill=0).value < 1e-9  # attribution ∝ effect: nothing is wrong
    True
    """
    if compat is not None:
        check.choice("compat", compat, ("quantus",))
        if scaling == "optimal":
            raise ValueError(
                "`scaling` must be 'raw' (or None) with compat='quantus', whose number is raw; got 'optimal'. "
                "Leave out `compat`."
            )
        patches = patch_changes(
            image, model, target, patch_sizes=patch_sizes, fill="black" if fill is None else fill, link=link
        )
        pairs = patches.pairs(pixel_map)
        value = float(np.mean([_raw(u, v) for u, v in pairs]))
        evaluations = patches.evaluations
    else:
        how = "mean" if fill is None else cast(Fill, fill)
        changes = block_changes(
            image, model, target, blocks=blocks, sides=sides, fill=how, link=link, generator=generator
        )
        pairs = [(changes.blocks.sums(checked_map(pixel_map, changes.size)), changes.values)]
        value = infidelity_of(pixel_map, changes, scaling=scaling or "optimal")
        evaluations = changes.evaluations
    curve = torch.cat([torch.stack(pair, 1) for pair in pairs]).numpy()
    return Measured(value, evaluations, curve)


@dataclass(frozen=True, eq=False)
class BlockChanges:
    """What the model lost with each block of a picture: the same for every map of it."""

    blocks: Blocks
    #: (n,) v = g(picture) - g(picture without the block), in float64 on the CPU.
    values: Tensor
    #: Height and width of the picture.
    size: tuple[int, int]
    evaluations: int


def block_changes(
    image: Array,
    model: Model,
    target: Target = None,
    *,
    blocks: int = 200,
    sides: Sequence[float] = SIDES,
    fill: Fill = "mean",
    link: Link = "logit",
    generator: torch.Generator | int = 0,
) -> BlockChanges:
    """Ask the model about random blocks, once for all maps of a picture; settings as in `infidelity`.

    Guarantees:
        ``blocks`` + 1 evaluations, one more if ``target`` is None.
    """
    question, picture, spent = asked(model, target, image, link)
    size = int(picture.shape[-2]), int(picture.shape[-1])
    drawn = random_blocks(size, blocks, sides=sides, generator=dice(generator))
    hidden = filled(picture, fill)
    whole = one_target(question.evaluate(picture, 1, lambda _: picture[None]))
    values = question.evaluate(picture, blocks, lambda rows: drawn.hidden(picture, hidden, rows))
    return BlockChanges(drawn, whole - one_target(values), size, 1 + blocks + spent)


def infidelity_of(pixel_map: Array, changes: BlockChanges, *, scaling: Literal["optimal", "raw"] = "optimal") -> float:
    """The infidelity of one map, given the model's answers. No evaluations.

    >>> two = Blocks(torch.tensor([0, 0]), torch.tensor([0, 1]), torch.tensor([1, 1]))
    >>> changes = BlockChanges(two, torch.tensor([1.0, 0.0]).double(), (1, 2), evaluations=3)
    >>> infidelity_of(np.array([[3.0, 0.0]]), changes), infidelity_of(np.array([[3.0, 0.0]]), changes, scaling="raw")
    (0.0, 2.0)
    """
    check.choice("scaling", scaling, ("optimal", "raw"))
    field, v = checked_map(pixel_map, changes.size), changes.values
    if scaling == "raw":
        return _raw(changes.blocks.sums(field), v)
    # in units of the largest value, so that no square overflows or vanishes
    peak, loudest = field.abs().max(), v.abs().max()
    if not (peak > 0 and loudest > 0):
        return 1.0
    u, v = changes.blocks.sums(field / peak), v / loudest
    squares = float(u @ u) * float(v @ v)
    # rounding may leave the interval by a hair; a map that is zero inside every block has told nothing
    return min(1.0, max(0.0, 1 - float(u @ v) ** 2 / squares)) if squares > 0 else 1.0


@dataclass(frozen=True, eq=False)
class PatchChanges:
    """What the model lost, patch by patch, in Quantus' way: the same for every map of a picture."""

    sizes: tuple[int, ...]
    #: Per size (H, W): what the fill took from every pixel, Σ_c (image - fill).
    taken: tuple[Tensor, ...]
    #: Per size (n,): v = g(picture) - g(picture without the first k patches).
    values: tuple[Tensor, ...]
    evaluations: int

    def pairs(self, pixel_map: Array) -> list[tuple[Tensor, Tensor]]:
        """Per size u and v, (n,) each: u_k = Σ of map · taken over the first k patches."""
        field = checked_map(pixel_map, tuple(self.taken[0].shape))
        sums = [
            _patches(field * taken, side).sum(1).cumsum(0) for side, taken in zip(self.sizes, self.taken, strict=True)
        ]
        return list(zip(sums, self.values, strict=True))


def patch_changes(
    image: Array,
    model: Model,
    target: Target = None,
    *,
    patch_sizes: Sequence[int] = (4,),
    fill: object = "black",
    link: Link = "logit",
) -> PatchChanges:
    """Ask the model Quantus' questions, once for all maps of a picture; settings as in `infidelity`.

    Guarantees:
        1 + Σ_p H·W / p² evaluations, one more if ``target`` is None.
    """
    question, picture, spent = asked(model, target, image, link)
    height, width = int(picture.shape[-2]), int(picture.shape[-1])
    sides = _checked_patches(patch_sizes, height, width)
    if not isinstance(fill, (int, float)):
        check.choice("fill", fill, ("black", "white", "mean"))
    pixels = picture.detach().cpu().double()
    places = torch.arange(height * width).reshape(height, width)
    whole = one_target(question.evaluate(picture, 1, lambda _: picture[None]))
    taken, values = [], []
    for side in sides:
        order = _patches(places, side)
        if fill == "mean":
            gone = pixels.flatten(1)[:, order].sum((0, 2))
            levels = falling_means(pixels, gone, len(pixels) * order.shape[1])
        else:
            levels = torch.full((len(order),), cast(float, level_as_quantus(picture, fill)), dtype=torch.float64)
        hidden = torch.empty(height * width, dtype=torch.float64)
        hidden[order.flatten()] = levels.repeat_interleave(side * side)
        hidden = hidden.reshape(height, width)
        counts = torch.arange(1, len(order) + 1) * side * side
        filled_in = hidden.to(picture).expand_as(picture).contiguous()
        values.append(whole - walk(question, picture, filled_in, order.flatten(), counts, insert=False))
        taken.append((pixels - hidden).sum(0))
    return PatchChanges(sides, tuple(taken), tuple(values), 1 + sum(len(v) for v in values) + spent)


def _patches(field: Tensor, side: int) -> Tensor:
    """(H, W) -> (patches row by row, pixels of each)."""
    height, width = field.shape
    return field.reshape(height // side, side, width // side, side).transpose(1, 2).reshape(-1, side * side)


def _checked_patches(patch_sizes: Sequence[int], height: int, width: int) -> tuple[int, ...]:
    if not patch_sizes:
        raise ValueError("`patch_sizes` must name at least one size; got none. (4,) is Quantus' default.")
    for side in patch_sizes:
        if isinstance(side, bool) or not isinstance(side, int) or side < 1 or height % side or width % side:
            raise ValueError(
                f"`patch_sizes` must be whole numbers that divide the picture's sides ({height} x {width}); got "
                f"{side!r}. Quantus fails on others, too."
            )
    return tuple(patch_sizes)


def _raw(u: Tensor, v: Tensor) -> float:
    return float((u - v).square().mean())
