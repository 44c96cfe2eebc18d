"""What the model says when pixels go in the order of the map.

Deletion, insertion, pixel flipping, IROF: one walk along the ranking, read as an area. Half deletion: half of every
cell goes. Monotonicity correlation: groups of equal rank go alone.
"""

from __future__ import annotations

from typing import Literal, cast

import numpy as np
import torch
from torch import Tensor

from usu import _checks as check
from usu.forward import Link, Model, Target
from usu.forward.fills import Fill, filled
from usu.metrics import quantus_compat
from usu.metrics.maps import Measured, cuts, dense_cells, group_means, prepared, ranking, variants, walk
from usu.operator.budgets import rank_within
from usu.operator.cells import Labels
from usu.types import Array, NDArray

#: Of deletion and insertion, as functions and in tables: few, because tables have many maps.
STEPS = 8


def deletion(
    pixel_map: Array, image: Array, model: Model, target: Target = None, *,
    fill: Fill = "mean", steps: int = STEPS, link: Link = "probability", generator: torch.Generator | int = 0,
) -> Measured:  # fmt: skip
    """Area under g(image without its fraction q of most relevant pixels), q = 0, 1/steps, ..., 1; trapezoid rule.

    Compare equal steps, and maps of one image: one that the model is unsure of has a small area whatever the map.

    Guarantees:
        Lower is better, in [0, 1] for probabilities. Only the order of the pixels matters. ``steps + 1`` evaluations,
        one more if ``target`` is None; ``curve`` holds their values.

    >>> total = lambda batch: batch.sum((1, 2, 3))[:, None]
    >>> image = torch.tensor([[[1.0, 3.0]]])
    >>> deletion(image[0], image, total, 0, fill=0, steps=2, link="logit").value  # 4, 1, 0
    1.5
    """
    return curve(pixel_map, image, model, target, insert=False, fill=fill, steps=steps, link=link, generator=generator)


def insertion(
    pixel_map: Array, image: Array, model: Model, target: Target = None, *,
    fill: Fill = "mean", steps: int = STEPS, link: Link = "probability", generator: torch.Generator | int = 0,
) -> Measured:  # fmt: skip
    """Area under g(fill showing the fraction q of most relevant pixels), as in `deletion`; higher is better.

    >>> total = lambda batch: batch.sum((1, 2, 3))[:, None]
    >>> image = torch.tensor([[[1.0, 3.0]]])
    >>> insertion(image[0], image, total, 0, fill=0, steps=2, link="logit").value  # 0, 3, 4
    2.5
    """
    return curve(pixel_map, image, model, target, insert=True, fill=fill, steps=steps, link=link, generator=generator)


def curve(
    pixel_map: Array, image: Array, model: Model, target: Target, *, insert: bool, fill: Fill, steps: int = STEPS,
    link: Link = "probability", generator: torch.Generator | int, ends: tuple[float, float] | None = None,
) -> Measured:  # fmt: skip
    """Deletion or insertion. ``ends``: g of the image and of its fill where they are known; they are counted, too."""
    field, asked, image = prepared(pixel_map, image, model, target, link)
    counts, hidden, order = cuts(field.numel(), steps), filled(image, fill), ranking(field, generator)
    values = walk(asked, image, hidden, order, counts if ends is None else counts[1:-1], insert=insert)
    if ends is not None:
        first, last = torch.tensor(ends[::-1] if insert else ends, dtype=values.dtype).split(1)
        values = torch.cat([first, values, last])
    spent = asked.meter.spent + (0 if ends is None else 2)
    return Measured(float(torch.trapezoid(values, counts)) / field.numel(), spent, values.numpy())


def pixel_flipping(
    pixel_map: Array, image: Array, model: Model, target: Target = None, *,
    fill: Fill | quantus_compat.QuantusFill | None = None, steps: int = 32, compat: Literal["quantus"] | None = None,
    link: Link = "probability", generator: torch.Generator | int = 0,
) -> Measured:  # fmt: skip
    """Area under g after 1, 2, ..., n = ``steps`` steps, per step: Σ_k (f_k + f_k+1) / 2 / (n - 1), k from 1 to n - 1.

    Each step fills the next 1/n of the pixels, the most relevant first (Bach et al., 2015): `deletion` without the
    untouched image, one evaluation less. Fill None is ``"mean"``, and ``"black"`` with ``compat``.

    >>> total = lambda batch: batch.sum((1, 2, 3))[:, None]
    >>> image = torch.tensor([[[1.0, 3.0]]])
    >>> pixel_flipping(image[0], image, total, 0, fill=0, steps=2, link="logit").value  # 1, 0
    0.5
    """
    quantus = quantus_compat.wanted(compat)
    field, asked, image = prepared(pixel_map, image, model, target, link)
    if quantus:
        order, hidden = quantus_compat.flips(pixel_map, image, steps, "black" if fill is None else fill, generator)
    else:
        order, hidden = ranking(field, generator), filled(image, "mean" if fill is None else cast(Fill, fill))
    values = walk(asked, image, hidden, order, cuts(len(order), steps, least=2)[1:])
    area = float(torch.trapezoid(values, dx=1 if quantus else 1 / (steps - 1)))
    return Measured(area, asked.meter.spent, values.numpy())


def irof(
    pixel_map: Array, image: Array, model: Model, target: Target = None, *,
    segments: Array | tuple[int, int] | None = None, fill: Fill = "mean", link: Link = "probability",
    compat: Literal["quantus"] | None = None, generator: torch.Generator | int = 0,
) -> Measured:  # fmt: skip
    """Area over the curve f_k / f_0, clipped to [0, 1], k = 0 to K segments removed, the most relevant first.

    Iterative removal of features (Rieger and Hansen, 2020): the relevance of a segment is the mean of the map over it.
    ``segments`` is a grid (rows, columns) or a label map (H, W); None is 14 x 14 blocks, not superpixels: no map is
    judged by the segments it was made of. ``link`` must be of something positive.

    Guarantees:
        Higher is better. In [0, 1], but for ``compat``. A positive factor on the map or a number added changes nothing.
        K + 1 evaluations, one more if ``target`` is None. ``curve`` holds f_0, ..., f_K, neither divided nor clipped.

    >>> total = lambda batch: batch.sum((1, 2, 3))[:, None]
    >>> image = torch.tensor([[[1.0, 3.0]]])
    >>> irof(image[0], image, total, 0, segments=(1, 2), fill=0, link="logit").value  # 1, 1/4, 0
    0.625
    """
    quantus = quantus_compat.wanted(compat)
    field, asked, image = prepared(pixel_map, image, model, target, link)
    size = tuple(field.shape)
    if segments is None:
        segments = quantus_compat.slic_segments(image) if quantus else (min(14, size[0]), min(14, size[1]))
    labels, count = dense_cells(segments, size, "segments")
    best_first = ranking(group_means(field, labels, count), generator)
    order = best_first.argsort()[labels.flatten()].argsort(stable=True)
    removed = torch.bincount(labels.flatten(), minlength=count)[best_first].cumsum(0)
    values = walk(asked, image, filled(image, fill), order, torch.cat([removed.new_zeros(1), removed]))
    if values[0] <= 0:
        raise ValueError(f"`link` must give the image a positive value; got {float(values[0]):.4g}.")
    ratios = values / values[0]
    if quantus:
        value = count - float(torch.trapezoid(ratios[1:]))
    else:
        value = 1 - float(torch.trapezoid(ratios.clamp(0, 1), dx=1 / count))
    return Measured(value, asked.meter.spent, values.numpy())


def half_deletion(
    pixel_map: Array, image: Array, model: Model, cells: Array | tuple[int, int], target: Target = None, *,
    fill: Fill = "mean", link: Link = "probability", generator: torch.Generator | int = 0,
) -> Measured:  # fmt: skip
    """drop(top half of every cell filled) - drop(bottom half filled) = g(bottom filled) - g(top filled).

    Both images lose the same number of pixels in every cell; of an odd number the middle one belongs to neither half.

    Guarantees:
        Higher is better, 0 is chance, in [-1, 1] for probabilities. Only the order inside each cell matters. 2
        evaluations, one more if ``target`` is None; ``curve`` holds g(top filled) and g(bottom filled).

    >>> total = lambda batch: batch.sum((1, 2, 3))[:, None]
    >>> image = torch.tensor([[[1.0, 3.0, 5.0, 5.0]]])
    >>> half_deletion(image[0], image, total, (1, 2), 0, fill=0, link="logit").value  # 11 - 1 - (11 - 3) of cell 0
    2.0
    """
    field, asked, image = prepared(pixel_map, image, model, target, link)
    half = halves(field, *dense_cells(cells, tuple(field.shape)), generator)
    values = variants(asked, image, filled(image, fill), half.flatten(), torch.arange(2), torch.ne)
    return Measured(float(values[1] - values[0]), asked.meter.spent, values.numpy())


def halves(field: Tensor, labels: Tensor, count: int, generator: torch.Generator | int) -> Tensor:
    """(H, W): 0 in the top half of every cell's pixels, 1 in the bottom half, 2 in the middle of an odd number.

    >>> halves(torch.tensor([[0.3, 0.9, 0.1, 0.2]]), torch.tensor([[0, 0, 0, 1]]), 2, 0).tolist()
    [[2, 0, 1, 2]]
    """
    cells = Labels(labels, count)
    place, size = rank_within(cells, ranking(field, generator)), cells.sizes[labels]
    return torch.where(place < size // 2, 0, torch.where(place >= size - size // 2, 1, 2))


def monotonicity_correlation(
    pixel_map: Array, image: Array, model: Model, target: Target = None, *,
    fill: Fill | quantus_compat.QuantusFill | None = None, steps: int = 32, samples: int = 1,
    compat: Literal["quantus"] | None = None, link: Link = "probability", generator: torch.Generator | int = 0,
) -> Measured:  # fmt: skip
    """Spearman's correlation of |attribution| with (g(image) - g(image with the group filled))², over groups.

    Do pixels with more attribution matter more (Nguyen and Martínez, 2020)? The groups are ``steps`` runs of
    consecutive ranks of |attribution|, of equal size to a pixel; each is filled alone, and stands for its mean
    |attribution|. Fill None is ``"mean"``, and with ``compat`` ``"uniform"``, which alone may have several ``samples``.

    Guarantees:
        Higher is better, in [-1, 1]; 0 for a constant map or a model that sees no difference. A factor on the map
        changes nothing. ``steps · samples + 1`` evaluations, one more if ``target`` is None. ``curve`` holds the mean
        squared changes, the group of least attribution first.

    >>> squares = lambda batch: batch.square().sum((1, 2, 3))[:, None]
    >>> image = torch.tensor([[[1.0, 3.0, 2.0]]])
    >>> monotonicity_correlation(-image[0], image, squares, 0, fill=0, steps=3, link="logit").value
    1.0
    """
    quantus = quantus_compat.wanted(compat)
    field, asked, image = prepared(pixel_map, image, model, target, link)
    if check.whole_number("samples", samples, least=1) > 1 and not (quantus and fill in (None, "uniform")):
        raise ValueError(f"`samples` must be 1 but for compat='quantus' with fill='uniform'; got {samples}.")
    if quantus:
        how = "uniform" if fill is None else fill
        groups, attributions, hidden = quantus_compat.groups(pixel_map, image, steps, samples, how, generator)
    else:
        sizes = cuts(field.numel(), steps, least=2).diff()
        groups = torch.empty(field.numel(), dtype=torch.int64)
        groups[ranking(field.abs(), generator).flip(0)] = torch.arange(steps).repeat_interleave(sizes)
        attributions = group_means(field.abs().flatten(), groups, steps).numpy()
        hidden = filled(image, "mean" if fill is None else cast(Fill, fill))
    # the last variant is the image itself: a group that no value has
    which = torch.cat([torch.arange(steps).repeat_interleave(samples), torch.tensor([steps])])
    values = variants(asked, image, hidden, groups, which, torch.ne)
    changes = (values[:-1] - values[-1]).square().reshape(steps, samples).mean(1).numpy()
    return Measured(spearman(attributions, changes), asked.meter.spent, changes)


def spearman(a: NDArray, b: NDArray) -> float:
    """The correlation of the ranks; 0 where it does not exist."""
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return 0.0
    from scipy.stats import spearmanr

    return min(1.0, max(-1.0, float(spearmanr(a, b).statistic)))  # its rounding may leave the interval
