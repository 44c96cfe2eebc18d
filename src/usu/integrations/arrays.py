"""Methods that hand out arrays (LIME, SHAP, RISE, XRAI, any saliency map): their numbers as coarse maps and cells.

Nothing is imported. What comes out is a density, a value per pixel, for `usu.upsample` or `usu.redistribute`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from usu import _checks as check
from usu.operator.cells import Grid
from usu.types import Array, ArrayT


class Superpixels(NamedTuple):
    """One value per cell, and the cell of each pixel: ``usu.upsample(coarse, image, model, cells=cells)``."""

    #: (K,) or (T, K), as a density: a cell's mass is its value times its pixels.
    coarse: Any
    #: (H, W), labels 0 to K-1.
    cells: Any


def from_superpixels(
    values: Array | Mapping[int, float] | Iterable[tuple[int, float]], labels: Array, *,
    coarse_is: Literal["mass", "density"] = "mass",
) -> Superpixels:  # fmt: skip
    """Values of superpixels (LIME, SHAP, feature ablation) as cells with a density: a_k = v_k / pixels of k.

    Args:
        values: pairs (label, value) or a mapping, as in LIME's ``explanation.local_exp[target]``, where a label without
            a value counts as zero; or an array (K,) or (T, K) in which value k belongs to label k.
        labels: (H, W) integers, any of them: LIME's ``explanation.segments``. Cells are numbered by ascending label.
        coarse_is: what a value is. ``"mass"``: the whole superpixel's, as a LIME weight, a Shapley value or the effect
            of ablating it are. ``"density"``: every pixel's.

    >>> labels = np.array([[1, 1, 7], [1, 1, 7]])
    >>> coarse, cells = from_superpixels([(7, 3.0), (1, -2.0)], labels)
    >>> coarse.tolist(), cells.tolist()
    ([-0.5, 1.5], [[0, 0, 1], [0, 0, 1]])
    """
    check.choice("coarse_is", coarse_is, ("mass", "density"))
    where = check.labels("labels", labels, least=None)
    if where.ndim != 2:
        raise ValueError(f"`labels` must be H x W; got {check.shape(where)}.")
    known, cells, sizes = torch.unique(where, return_inverse=True, return_counts=True)
    plain = isinstance(labels, np.ndarray)
    if isinstance(values, (np.ndarray, Tensor)):
        given, back = check.as_tensor("values", values), check.like_input(values)
        coarse = _of_array(given, known.to(given.device), lossless=coarse_is == "mass")
    else:
        coarse = _of_pairs(values, known.tolist()).to(known.device)
        back = check.like_input(coarse.numpy() if plain else coarse)
    check.finite("values", coarse)
    if coarse_is == "mass":
        coarse = coarse / sizes.to(coarse)
    return Superpixels(back(coarse), cells.numpy() if plain else cells)


def from_heatmap(heatmap: Array) -> Superpixels:
    """A map (H, W) that is constant on regions (XRAI, SHAP's partitions, captum on superpixels) as these regions.

    Touching pixels (by a side) of equal value are one cell, and their value its density. Round the map first if its
    regions are constant only up to rounding.

    >>> coarse, cells = from_heatmap(np.array([[2.0, 0.0, 2.0], [2.0, 0.0, 2.0]]))
    >>> coarse.tolist(), cells.tolist()  # equal, but apart
    ([2.0, 0.0, 2.0], [[0, 1, 2], [0, 1, 2]])
    """
    from skimage.measure import label

    field = check.as_tensor("heatmap", heatmap)
    if field.ndim != 2:
        raise ValueError(f"`heatmap` must be H x W; got {check.shape(field)}. Sum over channels first.")
    check.finite("heatmap", field)
    levels = torch.unique(field.detach(), return_inverse=True)[1].cpu().numpy()
    regions = label(levels, background=-1, connectivity=1).astype(np.int64) - 1  # type: ignore[no-untyped-call]
    first = np.unique(regions, return_index=True)[1]
    coarse = check.like_input(heatmap)(field.flatten()[torch.from_numpy(first).to(field.device)])
    plain = isinstance(heatmap, np.ndarray)
    return Superpixels(coarse, regions if plain else torch.from_numpy(regions).to(field.device))


def from_saliency(saliency: ArrayT, grid: tuple[int, int]) -> ArrayT:
    """A saliency map at pixel resolution on a coarse grid: the mean of each cell, so that every cell keeps its mass.

    For a finished RISE map, whose detail is the blur of its own upsampling, take the grid it was made with.

    >>> from_saliency(np.array([[1.0, 3.0, 0.0, 0.0]]), (1, 2)).tolist()
    [[2.0, 0.0]]
    """
    field = check.as_tensor("saliency", saliency)
    if field.ndim < 2:
        raise ValueError(f"`saliency` must be (..., H, W); got {check.shape(field)}.")
    check.finite("saliency", field)
    height, width = int(field.shape[-2]), int(field.shape[-1])
    if not (1 <= grid[0] <= height and 1 <= grid[1] <= width):
        raise ValueError(f"`grid` must be from 1 x 1 to {height} x {width}, as `saliency`; got {grid[0]} x {grid[1]}.")
    cells = Grid(grid, (height, width), field.device)
    means = cells.total(field.reshape(-1, height, width)) / cells.sizes
    return check.like_input(saliency)(means.reshape(*field.shape[:-2], *grid))  # type: ignore[no-any-return]


def from_rise(grids: ArrayT, values: Array, *, survival: float | None = None, centred: bool = False) -> ArrayT:
    """RISE at the resolution of its random grids: S = Σ_i f_i · g_i / (N · p), instead of their blurred upsamplings.

    Args:
        grids: (N, h, w), 1 where a cell was kept, 0 where it was not.
        values: (N,) what the model said of each picture, or (N, T) for several targets.
        survival: the probability p that a cell is kept; None takes the share that was.
        centred: subtract the mean of ``values`` first. RISE's own map has that mean in every cell, however little a
            cell matters; without it the map is signed and small where nothing happens.

    Returns:
        (h, w), or (T, h, w). RISE's random shift blurs the cells' borders: leave it out, or use `from_saliency`.

    >>> grids = np.array([[[1.0, 0.0]], [[0.0, 1.0]]])  # left kept, right kept
    >>> from_rise(grids, np.array([0.8, 0.2])).tolist()
    [[0.8, 0.2]]
    """
    keep = check.as_tensor("grids", grids)
    said = check.as_tensor("values", values, like=keep)
    if keep.ndim != 3:
        raise ValueError(f"`grids` must be N x h x w; got {check.shape(keep)}.")
    check.in_unit_interval("grids", keep)
    if said.ndim not in (1, 2) or len(said) != len(keep):
        raise ValueError(f"`values` must have one row for each of the {len(keep)} grids; got {check.shape(said)}.")
    check.finite("values", said)
    kept = float(keep.double().mean()) if survival is None else check.positive_number("survival", survival)
    if not 0 < kept <= 1:
        raise ValueError(f"`survival` must be a share of cells in (0, 1]; got {kept}.")
    weights = said.double() - said.double().mean(0) if centred else said.double()
    result = torch.einsum("n...,nhw->...hw", weights, keep.double()) / (len(keep) * kept)
    return check.like_input(grids)(result)  # type: ignore[no-any-return]


def _of_array(values: Tensor, known: Tensor, *, lossless: bool) -> Tensor:
    """The values of the labels there are; value k belongs to label k."""
    low, high = int(known[0]), int(known[-1])
    if values.ndim not in (1, 2) or low < 0 or high >= values.shape[-1]:
        raise ValueError(
            f"`values` must be (K,) or (T, K) with one value for each label, counted from 0; got {check.shape(values)} "
            f"for labels from {low} to {high}. Subtract labels.min(), or pass pairs (label, value)."
        )
    lost = values.detach().clone()
    lost[..., known] = 0
    if lossless and bool(lost.any()):
        which = int(lost.nonzero()[0, -1])
        raise ValueError(f"`values` must be zero for a superpixel without pixels; got a mass for label {which}.")
    return values[..., known]


def _of_pairs(values: Mapping[int, float] | Iterable[tuple[int, float]], known: list[int]) -> Tensor:
    try:
        pairs = {int(label): float(value) for label, value in dict(values).items()}
    except (TypeError, ValueError):
        wanted = "an array, pairs (label, value) or a mapping, such as LIME's local_exp[target]"
        raise TypeError(f"`values` must be {wanted}; got {type(values).__name__}.") from None
    for label in pairs.keys() - set(known):
        raise ValueError(f"`values` must be of labels that some pixel has; got a value for label {label}.")
    return torch.tensor([pairs.get(label, 0.0) for label in known], dtype=torch.float64)
