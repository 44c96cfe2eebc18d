"""The label maps of the loop: checked at the door, gathered into fields."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from usu import _checks as check
from usu.refine.heterogeneity import strengths
from usu.types import Array, NDArray


def gather(values: Tensor, labels: NDArray) -> Tensor:
    """Segment scores (T, P) as a field (T, H, W)."""
    return values[:, torch.from_numpy(labels)]


def strongest(h: Tensor, labels: NDArray) -> Tensor:
    """Every pixel of a segment gets the segment's largest |H|, for each target apart."""
    return torch.stack([strengths(one, labels)[torch.from_numpy(labels)] for one in h])


def nested(finer: Array, labels: NDArray) -> tuple[NDArray, NDArray]:
    """The next level, and the parent of each of its segments."""
    finer = partition("split's labels", finer)
    if finer.shape != labels.shape:
        raise ValueError(f"`split` must return labels of shape {labels.shape}; got {finer.shape}. Keep the size.")
    parent = np.zeros(finer.max() + 1, dtype=np.int64)
    parent[finer] = labels
    if (parent[finer] != labels).any():
        raise ValueError(
            "`split` must return labels that nest in those it was given; got a segment that lies in two of them. "
            "Split each segment inside itself, as usu.segment.split does."
        )
    return finer, parent


def partition(name: str, labels: Array) -> NDArray:
    """H x W labels 0..P-1 as numpy int64."""
    tensor = check.any_tensor(name, labels)
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool or tensor.ndim != 2:
        raise TypeError(f"`{name}` must be H x W integer labels; got {tensor.dtype} {check.shape(tensor)}. Convert it.")
    array = tensor.cpu().numpy().astype(np.int64)
    if array.min() != 0 or not np.bincount(array.ravel()).all():
        raise ValueError(
            f"`{name}` must have labels 0 to P - 1, each of them used; got {array.min()} to {array.max()}, "
            f"{len(np.unique(array))} different. Call usu.segment.relabel first."
        )
    return array


def count(name: str, value: int) -> int:
    """A whole number, at least 0."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"`{name}` must be a whole number; got {type(value).__name__}. Pass an int.")
    if value < 0:
        raise ValueError(f"`{name}` must be at least 0; got {value}. Use 0 for none.")
    return int(value)
