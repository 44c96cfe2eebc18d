"""ROAD (Rong et al., 2022): remove pixels without leaving a trace of where they were, and debias by both orders.

`noisy_linear` fills the holes: missing pixels become what their neighbours say, and a little noise, so that a removed
region leaves neither an edge nor its shape behind. Its equations are solved by conjugate gradients with one multigrid
V-cycle as preconditioner: about ten steps whatever the size of the holes, in memory a few times the image's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from usu import _checks as check
from usu.forward import Link, Model, Target
from usu.metrics.maps import Measured, one_target, prepared, ranking
from usu.types import Array, ArrayT, NDArray

#: Stop when the next correction is smaller than this share of the channel's range.
_TOLERANCE = 1e-5
_MOST_STEPS = 200


def road(
    pixel_map: Array, image: Array, model: Model, target: Target = None, *,
    percentages: Sequence[float] = (20, 40, 60, 80), order: Literal["both", "most", "least"] = "both",
    noise: float = 0.01, link: Link = "probability", generator: torch.Generator | int = 0,
) -> Measured:  # fmt: skip
    """mean_p (g without the p % least relevant - g without the p % most relevant) / 2, holes filled by `noisy_linear`.

    The half is that of ROADCombined of pytorch-grad-cam, so that numbers can be compared. The orders ``"most"`` and
    ``"least"`` give the mean of g when the most (least) relevant pixels go; its numbers are these less g(image).

    Guarantees:
        ``"both"`` and ``"least"``: higher is better; ``"most"``: lower is better. For probabilities in [-1/2, 1/2] and
        [0, 1]. Only the order of the pixels matters. One evaluation per percentage, two for ``"both"``; one more if
        ``target`` is None. ``curve`` holds g per percentage: (n,), or (2, n) with the most relevant first.

    >>> brightest = lambda batch: batch.amax((1, 2, 3))[:, None]
    >>> image = torch.tensor([[[0.0, 0.0, 0.0, 1.0]]])
    >>> road(image[0], image, brightest, 0, percentages=[25, 50], noise=0, link="logit").value  # (1 - 0) / 2
    0.5
    """
    check.choice("order", order, ("both", "most", "least"))
    field, asked, image = prepared(pixel_map, image, model, target, link)
    drawn = check.generator("generator", generator)
    most_first = ranking(field, drawn)
    pixels = len(most_first)
    if pixels < 2:
        raise ValueError(f"`pixel_map` must have at least 2 pixels; got {pixels}.")
    if not len(percentages):
        raise ValueError("`percentages` must hold at least one number; got none.")
    for percentage in percentages:
        if not 0 < check.real_number("percentages", percentage) < 100:
            raise ValueError(f"`percentages` must lie between 0 and 100; got {percentage}.")
    # at least one goes and at least one stays
    counts = [min(pixels - 1, max(1, round(percentage / 100 * pixels))) for percentage in percentages]
    walks = {"both": (most_first, most_first.flip(0)), "most": (most_first,), "least": (most_first.flip(0),)}[order]
    removed = [walk[:count] for walk in walks for count in counts]
    # one seed per image: a chunk that is built again after memory ran out has the same noise
    seeds = torch.randint(2**31, (len(removed),), generator=drawn, device=drawn.device).tolist()

    def build(rows: slice) -> Tensor:
        images = []
        for gone, seed in zip(removed[rows], seeds[rows], strict=True):
            keep = torch.ones(len(most_first), dtype=torch.bool)
            keep[gone] = False
            images.append(noisy_linear(image, keep.reshape(field.shape), noise=noise, generator=seed))
        return torch.stack(images)

    curve = one_target(asked.evaluate(image, len(removed), build)).reshape(len(walks), -1)
    means = curve.mean(1).tolist()
    value = (means[1] - means[0]) / 2 if order == "both" else means[0]
    return Measured(value, asked.meter.spent, (curve if order == "both" else curve[0]).numpy())


def noisy_linear(image: ArrayT, keep: Array, *, noise: float = 0.01, generator: torch.Generator | int = 0) -> ArrayT:
    """Every missing pixel is the mean of its 8 neighbours, direct ones 1/6, diagonal ones 1/12; then noise is added.

    12 x_i = Σ_direct 2 x_j + Σ_diagonal x_j for every missing i; at the border, over the neighbours there are.

    Args:
        keep: (H, W) booleans, True where the pixel is known; at least one.
        noise: its standard deviation, in the units of the image.

    Guarantees:
        Known pixels are untouched. Without noise every missing pixel lies between the smallest and the largest known
        value of its channel, and within 1e-4 of their distance of the exact solution (in images at least 8 pixels
        high and wide). The noise of a missing pixel does not depend on which others are missing.

    >>> noisy_linear(np.array([[0.0, 9.0, 9.0, 3.0]]), np.array([[True, False, False, True]]), noise=0).round(3)
    array([[0., 1., 2., 3.]])
    """
    given = check.as_tensor("image", image)
    if given.ndim not in (2, 3):
        raise ValueError(f"`image` must be C x H x W or H x W; got {check.shape(given)}.")
    check.finite("image", given)
    known = check.any_tensor("keep", keep).cpu()
    if known.dtype != torch.bool or known.shape != given.shape[-2:]:
        size = " x ".join(map(str, given.shape[-2:]))
        raise ValueError(f"`keep` must hold one boolean per pixel ({size}); got {check.shape(known)} of {known.dtype}.")
    if not known.any():
        raise ValueError("`keep` must keep at least one pixel; got none.")
    check.real_number("noise", noise, least=0)

    result = given.detach().cpu().to(torch.promote_types(given.dtype, torch.float32)).numpy().copy()
    missing = ~known.numpy()
    if missing.any():
        solved = _harmonic(result.reshape(-1, *missing.shape), missing).reshape(result.shape)
        if noise:
            source = check.generator("generator", generator)
            drawn = torch.randn(result.shape, generator=source, device=source.device).cpu().numpy()
            solved += np.multiply(drawn, np.float32(noise), out=drawn)
        np.copyto(result, solved, where=missing)
    return check.like_input(image)(torch.from_numpy(result).to(given))  # type: ignore[no-any-return]


def _harmonic(pixels: NDArray, missing: NDArray) -> NDArray:
    """(C, H, W) with the missing pixels solved for. Single precision, in units of each channel's known range."""
    known = ~missing
    low = pixels.min((1, 2), keepdims=True, where=known, initial=np.inf)
    span = pixels.max((1, 2), keepdims=True, where=known, initial=-np.inf) - low
    span[span == 0] = 1
    grids = _grids(known, len(pixels))
    fine, r, z, x = grids[0], grids[0].r, grids[0].z, np.zeros_like(grids[0].r)
    x[fine.image] = _first_guess(((pixels - low) / span).astype(np.float32, copy=False), known)
    np.negative(fine.laplacian(x), out=r)
    _precondition(grids)
    p, product = z.copy(), float(np.vdot(r, z))
    for _ in range(_MOST_STEPS):
        if max(float(z.max()), -float(z.min())) < _TOLERANCE:
            break
        q = fine.laplacian(p)
        step = np.float32(product / float(np.vdot(p, q)))
        q *= step
        r -= q
        x += np.multiply(p, step, out=q)
        _precondition(grids)
        before, product = product, float(np.vdot(r, z))
        p *= np.float32(product / before)
        p += z
    else:
        raise ArithmeticError(f"`image` must let the imputation converge; got none in {_MOST_STEPS} steps.")
    # the exact solution is a mean of means: it cannot leave the known range
    solved: NDArray = np.clip(x + z, 0, 1)[fine.image] * span + low
    return solved


class _Grid:
    """The equations on one grid. A field is (C, H + 2, W + 2): images with even sides and a margin of zeros.

    The weights 1 2 1 / 2 4 2 / 1 2 1 are those of the equation with a 4 in the middle, which cancels: small whole
    numbers, so that nothing is lost to rounding, and a product of two passes along the sides. Sums are made in place:
    fresh memory costs more than they do.
    """

    def __init__(self, known: NDArray, channels: int) -> None:
        height, width = self.size = known.shape
        padded = height + height % 2 + 2, width + width % 2 + 2
        #: Where the image is in a field.
        self.image = ..., slice(1, 1 + height), slice(1, 1 + width)
        room: list[NDArray] = [np.zeros((channels, *padded), np.float32) for _ in range(4)]
        #: Given r, `_precondition` makes z.
        self.r, self.z, *self._scratch = room
        #: 1 where a pixel is missing; the other three are zero elsewhere.
        self.missing, image, whole = (np.zeros(padded, np.float32) for _ in range(3))
        self.missing[self.image], image[self.image], whole[1:-1, 1:-1] = ~known, 1, 1
        #: The sum of the weights inside the image.
        self.weight = self.missing * self.spread(image)[0]
        #: 1 / diagonal: one Jacobi step damps what only this grid sees to a third.
        self.jacobi = self.missing / np.maximum(self.weight - 4, 1)
        #: 1 / sum of the weights: for going to the coarser grid and back.
        self.blend = self.missing / np.maximum(self.spread(whole)[0], 1)

    def spread(self, field: NDArray) -> NDArray:
        """The weighted sum around every pixel, in scratch memory; the margin holds nothing of meaning."""
        _, height, width = self.r.shape
        flat, one, two = (some.reshape(-1, height * width) for some in (field, *self._scratch))
        # rows of pixels one after the other: one long sum is faster than one for each row
        np.add(flat[:, width:], flat[:, :-width], out=one[:, width:])
        np.add(one[:, 2 * width :], one[:, width:-width], out=two[:, 2 * width :])
        np.add(two[:, 2 * width + 1 :], two[:, 2 * width : -1], out=one[:, 2 * width + 1 :])
        np.add(one[:, 2 * width + 2 :], one[:, 2 * width + 1 : -1], out=two[:, width + 1 : -width - 1])
        return self._scratch[1]

    def laplacian(self, field: NDArray) -> NDArray:
        """12 x_i - Σ 2 x_j - Σ x_j at missing pixels, 0 elsewhere; in scratch memory."""
        around = self.spread(field)
        around *= self.missing
        np.subtract(np.multiply(self.weight, field, out=self._scratch[0]), around, out=around)
        return around

    def residual(self) -> NDArray:
        """r - A z, in scratch memory."""
        done = self.laplacian(self.z)
        np.subtract(self.r, done, out=done)
        return done

    def restrict(self, coarser: _Grid) -> None:
        """What is left becomes the coarser grid's r: the transpose of `prolong`."""
        left = self.residual()
        left *= self.blend
        around = self.spread(left)[:, 1:-1, 1:-1]
        np.multiply(_halved(around), coarser.missing[coarser.image], out=coarser.r[coarser.image])

    def prolong(self, coarser: _Grid) -> None:
        """The coarser grid's z is added to ours: every value to its 2 x 2 pixels, smoothed, which is bilinear."""
        field = self._scratch[1]
        field[...] = 0
        field[:, 1:-1, 1:-1] = coarser.z[coarser.image].repeat(2, axis=1).repeat(2, axis=2)
        around = self.spread(field)
        around *= self.blend
        self.z += around


def _grids(known: NDArray, channels: int) -> list[_Grid]:
    """From fine to coarse. A coarse cell is missing where all its pixels are; smaller gaps are left to the smoother."""
    grids = [_Grid(known, channels)]
    while max(known.shape) > 2 and not (known := _halved(known[None])[0] > 0).all():
        grids.append(_Grid(known, channels))
    return grids


def _precondition(grids: list[_Grid]) -> None:
    """z ≈ A⁻¹ r: smooth, solve what is left on the coarser grid, smooth. Symmetric, as conjugate gradients ask."""
    grid, *coarser = grids
    np.multiply(grid.jacobi, grid.r, out=grid.z)
    if coarser:
        grid.restrict(coarser[0])
        _precondition(coarser)
        grid.prolong(coarser[0])
    for _ in range(1 if coarser else 4):
        left = grid.residual()
        left *= grid.jacobi
        grid.z += left


def _first_guess(pixels: NDArray, known: NDArray) -> NDArray:
    """Missing pixels from the same image at half the size, where fewer are missing."""
    if known.all():
        return pixels
    count, *sums = _halved(np.concatenate([known[None], pixels * known]))
    half = _first_guess(sums / np.maximum(count, 1), count > 0).repeat(2, axis=1).repeat(2, axis=2)
    return np.where(known, pixels, half[:, : known.shape[0], : known.shape[1]])


def _halved(fields: NDArray) -> NDArray:
    """(C, h, w) -> the sum over every 2 x 2 pixels; an odd side has nothing behind its end."""
    _, height, width = fields.shape
    if height % 2 or width % 2:
        fields = np.pad(fields, ((0, 0), (0, height % 2), (0, width % 2)))
    rows = fields[:, 0::2] + fields[:, 1::2]
    return rows[..., 0::2] + rows[..., 1::2]  # type: ignore[no-any-return]
