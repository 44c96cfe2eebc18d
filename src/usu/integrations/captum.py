"""Captum's attributions: of a layer, and of superpixels. They are tensors, so captum itself is not imported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from usu import _checks as check
from usu.forward import Model
from usu.forward.calls import Target
from usu.integrations.arrays import from_superpixels
from usu.pipeline import upsample
from usu.settings import Settings
from usu.types import Array


def interpolate(
    attribution: Tensor, image: Tensor, model: Model, target: Target | Sequence[Target] = None, *,
    preset: str | Settings | None = None, evaluations: int | None = None, picture: Array | None = None,
) -> Tensor:  # fmt: skip
    """In the place of ``LayerAttribution.interpolate(attribution, size)``: mass follows the model, none is lost.

    Args:
        attribution: (B, C, h, w) of a layer, e.g. ``LayerGradCam(model, layer).attribute(image, target=target)``. The
            channels are added up, because the mass at a place is that of all of them.
        target: as in `usu.upsample`. (Captum's tuples, which index outputs of more dimensions, are callables here.)

    Returns:
        (B, 1, H, W) in the dtype and on the device of ``attribution``, signed and not scaled.

    Guarantees:
        With the default preset every cell of the layer keeps its mass: its value times its pixels.

    >>> image, bright = torch.zeros(1, 1, 4, 4), lambda batch: batch.sum((1, 2, 3))[:, None]
    >>> image[..., 2:] = 1
    >>> pixels = interpolate(torch.tensor([[[[1.0]]]]), image, bright, 0, evaluations=32)
    >>> tuple(pixels.shape), round(float(pixels.sum()), 4), bool(pixels[0, 0, 0, 3] > pixels[0, 0, 0, 0])
    ((1, 1, 4, 4), 16.0, True)
    """
    if not isinstance(attribution, Tensor) or attribution.ndim != 4:
        raise ValueError(f"`attribution` must be of one layer, B x C x h x w; got {_got(attribution)}.")
    _batch(image, len(attribution))
    result = upsample(attribution.sum(1), image, model, target, preset=preset, evaluations=evaluations, picture=picture)
    return result.pixel_map[:, None]


def redistribute_features(
    attribution: Tensor, feature_mask: Tensor, image: Tensor, model: Model, target: Target | Sequence[Target] = None, *,
    coarse_is: Literal["mass", "density"] = "mass", preset: str | Settings | None = None,
    evaluations: int | None = None, picture: Array | None = None,
) -> Tensor:  # fmt: skip
    """FeatureAblation, KernelShap, Lime, ShapleyValues on a ``feature_mask``: a feature's value, shared out inside it.

    Captum repeats a feature's value on all its pixels and channels. Here it becomes, by default, the sum over the
    feature's pixels; those of a Shapley attribution add up to the model's output minus that of the empty picture.

    Args:
        attribution: (B, C, H, W) as captum returns it, or, from ``return_input_shape=False``, (B, K): value k is
            feature k's.
        feature_mask: as captum takes it, broadcast to (B, C, H, W): any integers, the same in every channel.
        coarse_is: ``"mass"``, or ``"density"``: captum's value is the mean over a feature's pixels, not their sum.
        preset: segments should be finer than features: raise ``parts`` for many features.

    Guarantees:
        With the default preset no mass leaves its feature.
    """
    if not isinstance(attribution, Tensor) or attribution.ndim not in (2, 4):
        raise ValueError(f"`attribution` must be B x C x H x W, or B x K, one per feature; got {_got(attribution)}.")
    _batch(image, len(attribution))
    labels = _labels(feature_mask, image)
    given = target.tolist() if isinstance(target, Tensor) else target
    goals: list[Any] = list(given) if isinstance(given, (list, tuple)) else [given] * len(image)
    if len(goals) != len(image):
        raise ValueError(f"`target` must be one for all or one per picture ({len(image)}); got {len(goals)}.")
    maps = []
    for index, (values, where) in enumerate(zip(attribution, labels, strict=True)):
        if values.ndim > 1:
            values, where = _repeated(values, where)
        coarse, cells = from_superpixels(values, where, coarse_is=coarse_is)
        maps.append(upsample(
            coarse, image[index], model, goals[index], cells=cells, preset=preset, evaluations=evaluations,
            picture=None if picture is None else picture[index],
        ).pixel_map)  # fmt: skip
    return torch.stack(maps)[:, None]


def _got(value: object) -> str:
    return check.shape(value) if isinstance(value, Tensor) else type(value).__name__


def _batch(image: object, count: int) -> None:
    if not isinstance(image, Tensor) or image.ndim != 4 or len(image) != count:
        raise ValueError(f"`image` must be the batch that was explained, {count} x C x H x W; got {_got(image)}.")


def _labels(feature_mask: Tensor, image: Tensor) -> Tensor:
    """(B, H, W)."""
    try:
        labels = feature_mask.expand(image.shape)
    except (RuntimeError, AttributeError):
        wanted = check.shape(image)
        raise ValueError(f"`feature_mask` must broadcast to `image`, {wanted}; got {_got(feature_mask)}.") from None
    if bool((labels != labels[:, :1]).any()):
        raise ValueError("`feature_mask` must be the same in every channel; got features of single channels.")
    return labels[:, 0]


def _repeated(attribution: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """(K,), the value that a feature's pixels have in common, and the features counted from 0."""
    known, places = torch.unique(labels, return_inverse=True)
    where, flat = places.expand(attribution.shape).flatten(), attribution.detach().flatten()
    values = flat.new_zeros(len(known)).scatter_(0, where, flat)
    if not torch.equal(values[where], flat):
        raise ValueError("`attribution` must have one value per feature of `feature_mask`; got several for one.")
    return values, places
