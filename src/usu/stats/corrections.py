"""Many tests at once: p values adjusted so that the chance of even one false alarm stays below the level."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from usu import _checks as check
from usu.types import NDArray

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


def bonferroni(ps: ArrayLike, *, family: int | None = None) -> NDArray:
    """min(1, m p) for a family of m tests: as many as there are p values, or ``family``, if more were declared.

    >>> bonferroni([0.01, 0.4, 0.03]).round(3).tolist()
    [0.03, 1.0, 0.09]
    """
    values, m = _family(ps, family)
    return np.asarray(np.minimum(m * values, 1.0))


def holm(ps: ArrayLike, *, family: int | None = None) -> NDArray:
    """Holm's step-down: max over j <= i of min(1, (m - j + 1) p_(j)), for the i-th smallest of m; m as in `bonferroni`.

    The tests that are not shown are taken to be the largest, which can only make the answer larger.

    Guarantees:
        p <= Holm <= Bonferroni, in the order of the p values.

    >>> holm([0.01, 0.4, 0.03]).round(3).tolist()
    [0.03, 0.4, 0.06]
    """
    values, m = _family(ps, family)
    order = np.argsort(values, kind="stable")
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(np.maximum.accumulate((m - np.arange(len(values))) * values[order]), 1.0)
    return adjusted


def _family(ps: ArrayLike, family: int | None) -> tuple[NDArray, int]:
    values = np.asarray(ps, dtype=np.float64)
    if values.ndim != 1:
        raise ValueError(f"`ps` must be a list of p values; got {values.ndim} dimensions.")
    wrong = values[~((values >= 0) & (values <= 1))]
    if len(wrong):
        raise ValueError(f"`ps` must lie in [0, 1]; got {wrong[0]}.")
    return values, len(values) if family is None else check.whole_number("family", family, least=len(values))
