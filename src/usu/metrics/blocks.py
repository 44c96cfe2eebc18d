"""Random square blocks of several sizes: what infidelity takes out of a picture.

They know nothing of cells or segments: every position on the pixel lattice is as likely as any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from usu import _checks as check

#: Sides of the blocks, as shares of the picture's shorter side.
SIDES = (1 / 16, 1 / 8, 1 / 4, 3 / 8)


@dataclass(frozen=True, eq=False)
class Blocks:
    """Squares inside a picture: block i is ``side[i]`` pixels wide, from row ``top[i]``, column ``left[i]``."""

    #: (n,) whole numbers on the CPU.
    top: Tensor
    left: Tensor
    side: Tensor

    def __len__(self) -> int:
        return len(self.side)

    def sums(self, field: Tensor) -> Tensor:
        """Σ of a field (H, W) over each block: (n,). Four values of the running sums each, however large the blocks.

        >>> Blocks(torch.tensor([0, 1]), torch.tensor([0, 1]), torch.tensor([2, 1])).sums(torch.ones(2, 2).double())
        tensor([4., 1.], dtype=torch.float64)
        """
        total = torch.nn.functional.pad(field.double().cumsum(0).cumsum(1), (1, 0, 1, 0))
        bottom, right = self.top + self.side, self.left + self.side
        return total[bottom, right] - total[self.top, right] - total[bottom, self.left] + total[self.top, self.left]

    def hidden(self, image: Tensor, filled: Tensor, rows: slice) -> Tensor:
        """Pictures (n, C, H, W), each with one of the blocks in ``rows`` taken from ``filled``."""
        corners = torch.stack([self.top, self.left, self.side], 1)[rows].tolist()
        batch = image.expand(len(corners), *image.shape).clone()
        for picture, (top, left, side) in zip(batch, corners, strict=True):
            part = ..., slice(top, top + side), slice(left, left + side)
            picture[part] = filled[part]
        return batch


def random_blocks(
    size: tuple[int, int], count: int, *, sides: Sequence[float] = SIDES, generator: torch.Generator
) -> Blocks:
    """``count`` blocks inside a picture of ``size`` (H, W): each side equally often (in turns), positions uniform.

    Args:
        sides: shares of the shorter side, at most 1; rounded to pixels, at least one.

    >>> random_blocks((32, 64), 4, generator=torch.Generator().manual_seed(0)).side
    tensor([ 2,  4,  8, 12])
    """
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ValueError(f"`blocks` must be a whole number of at least 1; got {count!r}. 200 is the default.")
    if not sides:
        raise ValueError("`sides` must name at least one size; got none. (1/16, 1/8, 1/4, 3/8) is the default.")
    lengths = []
    for share in sides:
        if not 0 < check.real_number("sides", share) <= 1:
            raise ValueError(
                f"`sides` must be shares of the shorter side, above 0, at most 1; got {share}. Divide by it."
            )
        lengths.append(max(1, round(share * min(size))))
    side = torch.tensor(lengths).repeat(-(-count // len(lengths)))[:count]
    u = torch.rand(2, count, dtype=torch.float64, generator=generator, device=generator.device).cpu()
    room = torch.stack([size[0] - side + 1, size[1] - side + 1])
    top, left = (u * room).long()
    return Blocks(top, left, side)
