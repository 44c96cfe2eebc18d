"""Models whose pixel Shapley values are known in closed form, so that the coarse map truly sums the truth.

    score_c(x) = Σ_i w_c(i) · h(x_i)   gives   φ_i = w_c(i) · (h(x_i) - h(r_i))   against a reference picture r,

because a pixel's contribution is the same whoever joined before it. Nothing else is assumed of the model; with a coarse
map made of sums of φ, D1 says that every cell's mass is the truth's: the lower bounds Δ⁺ and Δ⁻ on alpha and beta
errors vanish for USU (and for nearest, which is D1 too), and do not for kernels that reach across cell borders.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from experiments.synthetic.coarse import GRIDS, cell_means
from experiments.synthetic.shapes import Pictures
from torch import Tensor, nn
from torch.nn import functional

import usu

#: Only what is brighter counts: above every plain background and below every shape that decides.
KNEE = 0.5
#: Weights are 1 ± this, smooth, so that φ differs inside a shape and no segment is exactly flat.
UNEVEN = 0.5
#: Side of the grid of random numbers that the weights are smoothed from.
LUMPS = 6
#: `usu.upsamplers` that read no picture.
UPSAMPLERS = tuple(
    usu.upsamplers.by_name(name) for name in ("nearest", "bilinear", "bicubic", "lanczos3", "usu", "usu-iwmr-area")
)


class Additive(nn.Module):
    """score_c(x) = Σ_i w_c(i) · max(0, x_i - knee); ``weights`` (classes, S, S)."""

    def __init__(self, weights: Tensor, knee: float = KNEE) -> None:
        super().__init__()
        self.register_buffer("weights", weights)
        self.knee = knee

    def forward(self, images: Tensor) -> Tensor:
        """Scores (N, classes) of pictures (N, 1, S, S)."""
        return torch.einsum("nhw,chw->nc", self.bend(images[:, 0]).to(self.weights), self.weights)

    def bend(self, pixels: Tensor) -> Tensor:
        """What a pixel is worth before it is weighted."""
        return (pixels - self.knee).clamp(min=0)


def additive(size: int = 224, classes: int = 3, *, seed: int = 0) -> Additive:
    """A model with smooth positive weights around 1, in float64."""
    generator = torch.Generator().manual_seed(seed)
    lumps = 2 * torch.rand(1, classes, LUMPS, LUMPS, generator=generator, dtype=torch.float64) - 1
    smooth = functional.interpolate(lumps, (size, size), mode="bilinear", align_corners=False)[0]
    return Additive(1 + UNEVEN * smooth)


def shapley(model: Additive, images: Tensor, labels: Tensor, reference: Tensor | float = 0.0) -> Tensor:
    """φ (N, S, S) in float64: exact, and Σ φ = score(x) - score(reference)."""
    pixels = images[:, 0].double()
    gain = model.bend(pixels) - model.bend(torch.as_tensor(reference, dtype=torch.float64).expand_as(pixels))
    return model.weights[labels] * gain


def segment_scores(values: Tensor, segments: Tensor) -> Tensor:
    """The mean of φ over every segment, as a field in [0, 1]: what deleting a segment measures, per pixel of it."""
    flat, own = values.double().flatten(), segments.flatten().long()
    count = own.bincount()
    means = torch.zeros(len(count), dtype=torch.float64).index_add(0, own, flat) / count.clamp(min=1)
    low, high = means[count > 0].min(), means[count > 0].max()
    scaled = (means - low) / (high - low) if high > low else torch.full_like(means, 0.5)
    return scaled[segments.long()]


@dataclass(frozen=True)
class Bound:
    """One picture, grid and upsampler; everything as a share of the picture's mass, Σ φ."""

    picture: int
    grid: int
    upsampler: str
    #: Σ over cells of Δ⁺ and Δ⁻: no operator with these masses can have smaller alpha and beta errors.
    excess: float
    deficit: float
    alpha: float
    beta: float
    #: Is some value below zero? Then the proposition, which is about non-negative maps, does not speak of this map.
    negative: bool


def bounds(
    pictures: Pictures,
    *,
    grids: Iterable[int] = GRIDS,
    upsamplers: Iterable[usu.upsamplers.Upsampler] = UPSAMPLERS,
    seed: int = 0,
) -> list[Bound]:
    """Mass bounds and errors of every upsampler on an additive model.

    Those that read scores get exact ones of the true outline, an oracle: the bounds depend on masses alone.
    """
    model = additive(pictures.images.shape[-1], seed=seed)
    values = shapley(model, pictures.images, pictures.labels)
    return [
        _bound(number, truth, segment_scores(truth, shape), grid, upsampler)
        for number, (truth, shape) in enumerate(zip(values, pictures.truths, strict=True))
        for grid in grids
        for upsampler in upsamplers
    ]


def _bound(number: int, truth: Tensor, scores: Tensor, grid: int, upsampler: usu.upsamplers.Upsampler) -> Bound:
    pixel_map = upsampler(cell_means(truth[None], grid)[0], scores, scores)
    errors = usu.alpha_beta_errors(pixel_map, truth)
    imbalance = usu.mass_imbalance(pixel_map, truth, (grid, grid))
    shares = [float(part.sum() / truth.sum()) for part in (imbalance.excess, imbalance.deficit, *errors)]
    return Bound(number, grid, upsampler.name, *shares, negative=bool((pixel_map < 0).any()))
