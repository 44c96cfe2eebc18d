"""ROAD (Rong et al., 2022): remove pixels without leaving a trace of where they were, and debias by both orders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from usu import _checks as check
from usu.forward import Model
from usu.forward.calls import Link, Target
from usu.metrics.imputation import noisy_linear
from usu.metrics.maps import ranking
from usu.metrics.passes import Measured, one_target, prepared
from usu.types import Array


def road(
    pixel_map: Array, image: Array, model: Model, target: Target = None, *,
    percentages: Sequence[float] = (20, 40, 60, 80), order: Literal["both", "most", "least"] = "both",
    noise: float = 0.01, link: Link = "probability", generator: torch.Generator | int = 0,
) -> Measured:  # fmt: skip
    """mean_p (g without the p % least relevant - g without the p % most relevant) / 2, holes filled by `noisy_linear`.

    The half is that of ROADCombined of pytorch-grad-cam, so that numbers can be compared.

    Args:
        percentages: of the pixels that are removed, each from the whole image, above 0 and below 100.
        order: ``"most"`` and ``"least"`` give the mean of g over the percentages when the most (least) relevant pixels
            are removed; pytorch-grad-cam's numbers are these less g(image), and its percentiles are what stays.
        noise: as in `noisy_linear`; ``generator`` draws it.

    Guarantees:
        ``"both"`` and ``"least"``: higher is better; ``"most"``: lower is better. For probabilities in [-1/2, 1/2] and
        [0, 1]. Only the order of the pixels matters: any increasing transformation of the map leaves the value as it
        is. One evaluation per percentage, two for ``"both"``; one more if ``target`` is None. ``curve`` holds g per
        percentage: (n,), or (2, n) with the most relevant first.

    >>> brightest = lambda batch: batch.amax((1, 2, 3))[:, None]
    >>> image = torch.tensor([[[0.0, 0.0, 0.0, 1.0]]])
    >>> road(image[0], image, brightest, 0, percentages=[25, 50], noise=0, link="logit").value  # (1 - 0) / 2
    0.5
    """
    check.choice("order", order, ("both", "most", "least"))
    field, asked, image, spent = prepared(pixel_map, image, model, target, link)
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
    return Measured(value, len(removed) + spent, (curve if order == "both" else curve[0]).numpy())
