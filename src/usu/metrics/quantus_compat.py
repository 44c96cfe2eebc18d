"""What Quantus 0.6.0 does otherwise: ``compat="quantus"`` of a metric gives its number for one image by itself.

- pixel_flipping: ``PixelFlipping(features_in_step=C·H·W / steps, perturb_baseline=fill)``, its curve and its area.
  Values are ranked; steps are one apart, so that the area grows with their number.
- monotonicity: ``MonotonicityCorrelation(features_in_step=C·H·W / steps, nr_samples=samples, perturb_baseline=fill)``.
  Values are ranked, a group's attributions are summed. Its own defaults are "uniform" and 100 samples; other fills
  repeat one number, which is computed once here.
- infidelity: ``Infidelity(perturb_patch_sizes=patch_sizes, perturb_baseline=fill)`` called with ``softmax=False`` (or
  True and link ``"probability"``). Raw; the mean over the patch sizes; a grid of patches, row by row, that stay filled,
  so that the k-th image lacks k of them; the map times what the fill took, Σ_c (image - fill). Its n_perturb_samples
  are one number, repeated.
- irof: ``IROF(perturb_baseline=fill, return_aggregate=False)`` with a constant fill: K minus the area under f_1 / f_0,
  ..., f_K / f_0 with one per step, not clipped, of K SLIC segments. It takes images of one channel only.
- sparseness: ``Sparseness()``: magnitudes over their maximum, plus 1e-7. (In a batch Quantus divides by the batch's
  maximum, and with ``normalise=False`` by nothing.)
- Ranking values: an (H, W) map is repeated for every channel and C·H·W values are ranked, equal ones as numpy's
  unstable sort leaves them: the red of a pixel may go steps before its blue, and another numpy, processor or float type
  may give another number. Quantus itself wants H·W to be a multiple of ``features_in_step``.
- Fills: ``"black"`` is the smallest value of the image, ``"white"`` the largest, ``"mean"`` the mean over all channels
  (of the image *as filled so far*, but for monotonicity), ``"uniform"`` numbers from [0, 1) as numpy gives them after
  ``numpy.random.seed(generator)``; or a number.
- Its areas call ``numpy.trapz``, which numpy 2.4 no longer has: there only its curves work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from usu import _checks as check
from usu.forward import Link, Model, Target
from usu.metrics.maps import Measured, aimed, checked_map, one_target, walk
from usu.types import Array, NDArray

#: Quantus' names of fills, beside "mean" and numbers.
QuantusFill: TypeAlias = Literal["black", "white", "uniform"]
#: What `Sparseness` adds to every pixel so as not to divide by zero.
SPARSENESS_SHIFT = 1e-7


def wanted(compat: str | None) -> bool:
    """Whether Quantus' number is asked for."""
    if compat is not None:
        check.choice("compat", compat, ("quantus",))
    return compat is not None


def flips(
    pixel_map: Array, image: Tensor, steps: int, fill: object, generator: torch.Generator | int
) -> tuple[Tensor, Tensor]:
    """Of pixel flipping: the values (C·H·W,), the most relevant first, and the image after the last step."""
    order = torch.from_numpy(np.argsort(-_values(pixel_map, len(image), steps)))
    flat = image.detach().cpu().double().flatten().clone()  # filled below; the caller's image is not
    size = len(order) // steps
    gone = flat[order].reshape(steps, size).sum(1)
    levels = falling_means(flat, gone, size) if fill == "mean" else _levels(image, fill, steps, generator)
    flat[order] = levels.repeat_interleave(size)
    return order, flat.reshape(image.shape).to(image)


def groups(
    pixel_map: Array, image: Tensor, steps: int, samples: int, fill: object, generator: torch.Generator | int
) -> tuple[Tensor, NDArray, Tensor]:
    """Of monotonicity: the group of each value (C·H·W,), each group's attribution, and what fills it each time."""
    values = np.abs(_values(pixel_map, len(image), steps))
    order = np.argsort(values)
    members = torch.empty(len(order), dtype=torch.int64)
    members[torch.from_numpy(order)] = torch.arange(steps).repeat_interleave(len(order) // steps)
    levels = _levels(image, fill, steps * samples, generator)
    # one more for the variant in which nothing is filled
    return members, values[order].reshape(steps, -1).sum(1), torch.cat([levels, levels[:1]]).to(image)


def slic_segments(image: Tensor) -> Array:
    """Of IROF: superpixels of the model's own input."""
    from skimage.segmentation import slic

    segments: Array = slic(image.permute(1, 2, 0).double().cpu().numpy(), start_label=0)
    return segments


@dataclass(frozen=True, eq=False)
class PatchChanges:
    """Of infidelity: what the model lost, patch by patch; the same for every map of an image."""

    sizes: tuple[int, ...]
    #: Per size (H, W): what the fill took from every pixel, Σ_c (image - fill).
    taken: tuple[Tensor, ...]
    #: Per size (n,): v = g(image) - g(image without the first k patches).
    values: tuple[Tensor, ...]
    evaluations: int

    def pairs(self, pixel_map: Array) -> list[tuple[Tensor, Tensor]]:
        """Per size u and v, (n,) each: u_k = Σ of map · taken over the first k patches."""
        field = checked_map(pixel_map, tuple(self.taken[0].shape))
        each = zip(self.sizes, self.taken, self.values, strict=True)
        return [(_patches(field * taken, side).sum(1).cumsum(0), values) for side, taken, values in each]


def patch_changes(
    image: Array, model: Model, target: Target = None, *, patch_sizes: Sequence[int] = (4,), fill: object = "black",
    link: Link = "logit",
) -> PatchChanges:  # fmt: skip
    """Ask the model Quantus' questions, once for all maps of an image; 1 + Σ_p H·W / p² evaluations."""
    asked, image = aimed(model, target, image, link)
    height, width = int(image.shape[-2]), int(image.shape[-1])
    if not patch_sizes:
        raise ValueError("`patch_sizes` must name at least one size; got none.")
    for side in patch_sizes:
        if height % check.whole_number("patch_sizes", side, least=1) or width % side:
            raise ValueError(f"`patch_sizes` must divide the image's sides ({height} x {width}); got {side}.")
    if not isinstance(fill, (int, float)):
        check.choice("fill", fill, ("black", "white", "mean"))
    pixels = image.detach().cpu().double()
    places = torch.arange(height * width).reshape(height, width)
    whole = one_target(asked.evaluate(image, 1, lambda _: image[None]))
    taken, values = [], []
    for side in patch_sizes:
        order = _patches(places, side)
        gone = pixels.flatten(1)[:, order].sum((0, 2))
        mean = fill == "mean"
        levels = falling_means(pixels, gone, len(pixels) * side**2) if mean else _levels(image, fill, len(order), 0)
        hidden = torch.empty_like(pixels[0])
        hidden.view(-1)[order] = levels[:, None].expand(order.shape)
        counts = torch.arange(1, len(order) + 1) * side**2
        filled = hidden.to(image).expand_as(image).contiguous()
        values.append(whole - walk(asked, image, filled, order.flatten(), counts))
        taken.append((pixels - hidden).sum(0))
    return PatchChanges(tuple(patch_sizes), tuple(taken), tuple(values), asked.meter.spent)


def infidelity(pixel_map: Array, changes: PatchChanges) -> Measured:
    """The mean over the patch sizes of E[(u - v)²]."""
    pairs = changes.pairs(pixel_map)
    value = float(np.mean([float((u - v).square().mean()) for u, v in pairs]))
    return Measured(value, changes.evaluations, torch.cat([torch.stack(pair, 1) for pair in pairs]).numpy())


def falling_means(pixels: Tensor, gone: Tensor, size: int) -> Tensor:
    """(n,): what "mean" fills with, step by step, when in each step ``size`` values of sum ``gone`` go."""
    total, levels = float(pixels.sum()), []
    for lost in gone.tolist():
        levels.append(total / pixels.numel())
        total += size * levels[-1] - lost
    return torch.tensor(levels, dtype=torch.float64)


def _values(pixel_map: Array, channels: int, steps: int) -> NDArray:
    """An (H, W) map divided by its largest |value|, repeated for every channel: (C·H·W,), to go in ``steps`` groups.

    The type of the numbers is kept: how numpy orders equal ones depends on it.
    """
    raw = check.as_numpy(pixel_map)
    count = channels * raw.size
    if count % check.whole_number("steps", steps, least=2, most=count):
        raise ValueError(f"`steps` must divide channels times pixels ({count}) with compat='quantus'; got {steps}.")
    scaled = raw / np.abs(raw).max() if raw.any() else raw
    return np.broadcast_to(scaled, (channels, *scaled.shape)).reshape(-1)


def _levels(image: Tensor, fill: object, count: int, generator: torch.Generator | int) -> Tensor:
    """(count,): the numbers that a fill's name means in this image."""
    work = image.double()
    named = {"black": work.min(), "white": work.max(), "mean": work.mean()}
    if fill == "uniform":
        if isinstance(generator, torch.Generator):
            raise TypeError("`generator` must be a seed with compat='quantus'; got a torch.Generator.")
        seed = check.whole_number("generator", generator, most=2**32 - 1)
        return torch.from_numpy(np.random.RandomState(seed).uniform(size=count))
    if isinstance(fill, (int, float)):
        level = check.real_number("fill", fill)
    else:
        check.choice("fill", fill, (*named, "uniform"))
        level = float(named[str(fill)])
    return torch.full((count,), level, dtype=torch.float64)


def _patches(field: Tensor, side: int) -> Tensor:
    """(H, W) -> (patches row by row, pixels of each)."""
    height, width = field.shape
    return field.reshape(height // side, side, width // side, side).transpose(1, 2).reshape(-1, side * side)
