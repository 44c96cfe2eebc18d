"""What a coarse explanation of a trained model is: its input gradient, or its Grad-CAM, seen through a grid.

The paper's attribution is A = d score / d x, and its penalty is |A|²; so the map that is coarsened is |A|
(``"magnitude"``). ``"square"`` is the penalty's own reading. ``"product"``, |A · x|, is offered too, but it is small
where the picture is dark whatever the model does, so on these pictures it flatters every model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import torch
from experiments.synthetic.networks import CAM_LAYER
from torch import Tensor, nn

import usu

Attribution: TypeAlias = Literal["magnitude", "square", "product"]
GRIDS = (4, 7, 14)
#: Of gradient and picture, both (N, S, S).
ATTRIBUTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "magnitude": lambda gradient, image: gradient.abs(),
    "square": lambda gradient, image: gradient.square(),
    "product": lambda gradient, image: (gradient * image).abs(),
}
SOURCES = ("gradient", "gradcam")
#: Pictures per pass.
CHUNK = 32


def coarse_maps(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    grid: int,
    *,
    source: Literal["gradient", "gradcam"] = "gradient",
    attribution: Attribution = "magnitude",
) -> Tensor:
    """Densities (N, grid, grid) in float64: the mean over each cell, so mass times cells is the sum of the pixel map.

    Grad-CAM's own grid (28 x 28 at 224) is spread over the pixels as it is before it is averaged, so its mass is kept
    for every ``grid``. It needs `networks.cnn`.
    """
    if source == "gradient":
        return cell_means(pixel_attributions(model, images, labels, attribution=attribution), grid)
    if source == "gradcam":
        found = usu.gradcam(model, images, labels.tolist(), layer=CAM_LAYER).values.double()
        return cell_means(usu.interpolate(found, images.shape[-2:], "nearest"), grid)
    raise ValueError(f"`source` must be one of {', '.join(SOURCES)}; got {source!r}. Check the spelling.")


def pixel_attributions(
    model: nn.Module, images: Tensor, labels: Tensor, *, attribution: Attribution = "magnitude"
) -> Tensor:
    """The map (N, S, S) in float64 whose cell sums the coarse map holds: the truth an upsampler should find again."""
    if attribution not in ATTRIBUTIONS:
        raise ValueError(
            f"`attribution` must be one of {', '.join(ATTRIBUTIONS)}; got {attribution!r}. Check the spelling."
        )
    return ATTRIBUTIONS[attribution](input_gradients(model, images, labels).double(), images[:, 0].double())


def input_gradients(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """d score_label / d x, (N, S, S). Only of the input: the parameters' gradients stay as they are."""
    parts = []
    for batch, targets in zip(images.split(CHUNK), labels.split(CHUNK), strict=True):
        leaf = batch.detach().clone().requires_grad_()
        with torch.enable_grad():
            # pictures do not see each other, so the gradient of the sum is every picture's own
            score = model(leaf).gather(1, targets[:, None]).sum()
        parts.append(torch.autograd.grad(score, leaf)[0][:, 0])
    return torch.cat(parts)


def cell_means(fields: Tensor, grid: int) -> Tensor:
    """The mean of (N, S, S) over every cell, (N, grid, grid) in float64; cells are those of `usu.redistribute`."""
    rows, columns = (_belongs(pixels, grid) for pixels in fields.shape[-2:])
    sums = rows @ fields.double() @ columns.T
    return sums / torch.outer(rows.sum(1), columns.sum(1))


def _belongs(pixels: int, cells: int) -> Tensor:
    """(cells, pixels): 1 where the centre of the pixel, (i + 0.5) / pixels, lies in the cell."""
    cell = (2 * torch.arange(pixels) + 1) * cells // (2 * pixels)
    return (cell == torch.arange(cells)[:, None]).double()
