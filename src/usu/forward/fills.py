"""Fills: what a picture looks like when a part of it is taken away.

``keep`` says what survives: True (or 1) keeps the pixel, False (or 0) shows the fill, numbers between mix the two. A
fill is a function of a picture (C, H, W) that returns the picture with nothing left in it. A signal (C, L) and a volume
(C, D, H, W) are pictures, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from usu import _checks as check

#: A name, a value for every pixel (or one per channel), or any function of the picture.
Fill: TypeAlias = Literal["blur", "mean", "noise"] | float | Sequence[float] | Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Blur:
    """The picture out of focus: a Gaussian whose width is ``sigma`` times the shorter side; borders are repeated.

    It keeps colours and large shapes, so that taking a segment away leaves no new edges. 0.05 is 11 pixels of 224. Of a
    signal the side is the length, of a volume the second longest side, so that the few frames of a video are mixed.

    >>> Blur()(torch.full((1, 4, 4), 7.0)).round(decimals=3).unique()
    tensor([7.])
    """

    sigma: float = 0.05

    def __post_init__(self) -> None:
        check.positive_number("sigma", self.sigma)

    def __call__(self, image: Tensor) -> Tensor:
        """A product with one matrix per side; a wide kernel costs no more than a narrow one."""
        sigma = self.sigma * sorted(image.shape[1:])[-2:][0]
        work = image.double() if image.dtype == torch.float64 else image.float()
        for axis, side in enumerate(image.shape[1:-1], 1):
            work = (_gaussian(side, sigma, work) @ work.movedim(axis, -2)).movedim(-2, axis)
        return (work @ _gaussian(image.shape[-1], sigma, work).T).to(image.dtype)


@dataclass(frozen=True)
class Mean:
    """Every pixel is the mean colour.

    >>> Mean()(torch.tensor([[[1.0, 3.0]]]))
    tensor([[[2., 2.]]])
    """

    def __call__(self, image: Tensor) -> Tensor:
        """The channel means, as a picture."""
        return image.mean(_places(image), keepdim=True).expand_as(image)


@dataclass(frozen=True)
class Constant:
    """Every pixel is ``value``, one number or one per channel, in the units the model takes.

    >>> Constant(0.5)(torch.zeros(1, 1, 2))
    tensor([[[0.5000, 0.5000]]])
    """

    value: float | tuple[float, ...] = 0.0

    def __call__(self, image: Tensor) -> Tensor:
        """The value, as a picture."""
        values = image.new_tensor(self.value).reshape(-1, *[1] * (image.ndim - 1))
        if len(values) not in (1, len(image)):
            raise ValueError(f"`fill` must hold one number, or one per channel ({len(image)}); got {len(values)}.")
        return values.expand_as(image)


@dataclass(frozen=True)
class Noise:
    """Every pixel is the mean colour plus Gaussian noise of ``std`` times the channel's own standard deviation.

    A whole-number ``seed`` gives the same noise each time and on each device; a generator is drawn from.
    """

    std: float = 1.0
    seed: int | torch.Generator = 0

    def __post_init__(self) -> None:
        check.positive_number("std", self.std)

    def __call__(self, image: Tensor) -> Tensor:
        """Fresh pixels, drawn on the CPU."""
        generator = self.seed if isinstance(self.seed, torch.Generator) else torch.Generator().manual_seed(self.seed)
        drawn = torch.randn(image.shape, generator=generator, device=generator.device).to(image)
        spread = image.std(_places(image), keepdim=True, correction=0)
        return image.mean(_places(image), keepdim=True) + self.std * spread * drawn


@dataclass(frozen=True)
class Drop:
    """Nothing takes the place of what is hidden: a vision transformer's tokens of hidden patches are left out.

    For scores of an ``nn.Module`` whose patches have tokens; see `usu.sources.token_drop`. It asks what the model says
    without those patches, and not of a picture that looks otherwise there. A patch hidden in part shows ``rest`` there.
    """

    rest: Literal["blur", "mean", "noise"] | float = "blur"

    def __post_init__(self) -> None:
        fill_named(self.rest)

    def __call__(self, image: Tensor) -> Tensor:
        """Not of a picture: whoever hides parts of it must know of tokens."""
        raise ValueError("`fill` must make a picture here; got Drop(), which is for scores of vision transformers.")


def _places(image: Tensor) -> tuple[int, ...]:
    return tuple(range(1, image.ndim))


_NAMED: dict[str, Callable[[Tensor], Tensor]] = {"blur": Blur(), "mean": Mean(), "noise": Noise()}
FILLS = tuple(_NAMED)


def fill_named(fill: Fill) -> Callable[[Tensor], Tensor]:
    """The fill meant by a name, a number or several, or a callable.

    >>> fill_named("blur"), fill_named(0)
    (Blur(sigma=0.05), Constant(value=0.0))
    """
    if isinstance(fill, str):
        check.choice("fill", fill, FILLS)
        return _NAMED[fill]
    if callable(fill):
        return fill
    if isinstance(fill, (list, tuple)):
        return Constant(tuple(check.real_number("fill", value) for value in fill))
    if isinstance(fill, (int, float)):
        return Constant(check.real_number("fill", fill))
    raise TypeError(
        f"`fill` must be 'blur', 'mean', 'noise', a number, one number per channel or a callable; got "
        f"{type(fill).__name__}. See usu.fills."
    )


def filled(image: Tensor, fill: Fill) -> Tensor:
    """The picture (C, H, W) with nothing left in it, checked."""
    result = fill_named(fill)(image)
    if not isinstance(result, Tensor) or result.shape != image.shape:
        got = check.shape(result) if isinstance(result, Tensor) else type(result).__name__
        raise ValueError(f"`fill` must return a picture of the same shape ({check.shape(image)}); got {got}.")
    check.finite("fill", result)
    return result.detach().to(image)


def apply(image: Tensor, filled: Tensor, keep: Tensor) -> Tensor:
    """keep · image + (1 - keep) · filled: (C, H, W) and keep (..., H, W) give (..., C, H, W).

    Guarantees: exactly ``image`` where keep is True or 1, exactly ``filled`` where it is False or 0.

    >>> apply(torch.ones(1, 1, 2), torch.zeros(1, 1, 2), torch.tensor([[[True, False]]]))
    tensor([[[[1., 0.]]]])
    """
    dims = image.ndim - 1
    if keep.shape[-dims:] != image.shape[1:]:
        raise ValueError(
            f"`keep` must end with the picture's height and width ({check.shape(image[0])}); got {check.shape(keep)}."
        )
    if keep.is_floating_point():
        check.in_unit_interval("keep", keep)
    elif keep.dtype != torch.bool:
        raise TypeError(f"`keep` must be boolean or floating-point; got {keep.dtype}.")
    # exact at both ends, and ten times faster than `where` on a CPU
    return torch.lerp(filled, image, keep.unsqueeze(-1 - dims).to(image))


def _gaussian(side: int, sigma: float, like: Tensor) -> Tensor:
    """The blur along one side as a matrix (side, side); what falls off the border lands on the border's pixel."""
    radius = max(1, round(4 * sigma))
    offsets = torch.arange(-radius, radius + 1, device=like.device)
    weights = torch.softmax(-0.5 * (offsets / sigma) ** 2, 0).to(like.dtype)
    columns = (torch.arange(side, device=like.device)[:, None] + offsets).clamp(0, side - 1)
    return like.new_zeros(side, side).scatter_add_(1, columns, weights.expand(side, -1))
