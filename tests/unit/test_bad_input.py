"""Bad input gets one sentence: the argument, what it must be, what came, what to do."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
import torch

import usu

COARSE, SCORES = np.ones((2, 2)), np.full((4, 4), 0.5)
LABELS = np.zeros((4, 4), dtype=np.int64)


def poisoned(array: np.ndarray, value: float) -> np.ndarray:
    array = array.copy()
    array.flat[0] = value
    return array


CASES: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "NaN in coarse": (
        lambda: usu.redistribute(poisoned(COARSE, np.nan), SCORES),
        ValueError,
        "`coarse` must be finite; got NaN. Look for a division by zero or an overflow where it was made.",
    ),
    "infinity in coarse": (
        lambda: usu.redistribute(poisoned(COARSE, -np.inf), SCORES),
        ValueError,
        "`coarse` must be finite; got infinity. Look for a division by zero or an overflow where it was made.",
    ),
    "NaN in scores": (
        lambda: usu.redistribute(COARSE, poisoned(SCORES, np.nan)),
        ValueError,
        "`scores` must be finite; got NaN. Look for a division by zero where the scores were made.",
    ),
    "scores above one": (
        lambda: usu.redistribute(COARSE, poisoned(SCORES, 1.5)),
        ValueError,
        "`scores` must lie in [0, 1]; got values from 0.5 to 1.5. Rescale them, e.g. by min-max.",
    ),
    "infinite scores": (
        lambda: usu.redistribute(COARSE, poisoned(SCORES, np.inf)),
        ValueError,
        "`scores` must lie in [0, 1]; got values from 0.5 to inf. Rescale them, e.g. by min-max.",
    ),
    "scores smaller than the grid": (
        lambda: usu.redistribute(np.ones((5, 2)), SCORES),
        ValueError,
        "`scores` must be at least as large as the grid of `coarse` (5 x 2); got 4 x 4. "
        "Every cell needs a pixel; pass the scores at pixel resolution.",
    ),
    "one dimension without cells": (
        lambda: usu.redistribute(np.ones(3), SCORES),
        ValueError,
        "`coarse` and `scores` must have at least two dimensions, (..., h, w) and (..., H, W); got 3 and 4 x 4. "
        "For other lattices pass `cells`.",
    ),
    "batches that do not fit": (
        lambda: usu.redistribute(np.ones((2, 2, 2)), np.full((3, 4, 4), 0.5)),
        ValueError,
        "`scores` must have the leading dimensions of `coarse` (2 x 2 x 2); got 3 x 4 x 4. "
        "Give each map its own score field, or one field for all.",
    ),
    "cells of another shape": (
        lambda: usu.redistribute(np.ones(4), SCORES, cells=np.zeros((4, 5), dtype=int)),
        ValueError,
        "`cells` must have the shape of the lattice that `scores` ends with; got 4 x 5 for scores of 4 x 4. "
        "Give every pixel one label.",
    ),
    "cells with holes": (
        lambda: usu.redistribute(np.ones(4), SCORES, cells=poisoned(LABELS, -1)),
        ValueError,
        "`cells` must cover the lattice with labels 0 to 3, one per value of `coarse`; got labels from -1 to 0. "
        "Relabel the cells, or pass a value for each.",
    ),
    "labels beyond coarse": (
        lambda: usu.redistribute(np.ones(4), SCORES, cells=poisoned(LABELS, 4)),
        ValueError,
        "`cells` must cover the lattice with labels 0 to 3, one per value of `coarse`; got labels from 0 to 4. "
        "Relabel the cells, or pass a value for each.",
    ),
    "cells that are not integers": (
        lambda: usu.redistribute(np.ones(4), SCORES, cells=SCORES),
        TypeError,
        "`cells` must hold integer labels; got torch.float64. Convert it, e.g. to int64.",
    ),
    "mass without a pixel": (
        lambda: usu.redistribute(np.ones(4), SCORES, cells=LABELS, coarse_is="mass"),
        ValueError,
        "`cells` must have a pixel for every mass in `coarse`; got masses without one. "
        "Drop those entries, or set them to zero.",
    ),
    "temperature of zero": (
        lambda: usu.redistribute(COARSE, SCORES, temperature=0),
        ValueError,
        "`temperature` must be greater than 0; got 0. Typical values are 0.05 to 1.",
    ),
    "negative temperature": (
        lambda: usu.redistribute(COARSE, SCORES, temperature=-1.0),
        ValueError,
        "`temperature` must be greater than 0; got -1.0. Typical values are 0.05 to 1.",
    ),
    "temperature NaN": (
        lambda: usu.redistribute(COARSE, SCORES, temperature=float("nan")),
        ValueError,
        "`temperature` must be finite; got nan. Pass an ordinary number.",
    ),
    "temperature as text": (
        lambda: usu.redistribute(COARSE, SCORES, temperature="hot"),
        TypeError,
        "`temperature` must be a number; got str. Pass a float.",
    ),
    "potential that vanishes": (
        lambda: usu.redistribute(COARSE, SCORES, potential=lambda s: s),
        ValueError,
        "`potential` must be positive and finite on [0, 1]; got zero, a negative number, infinity or NaN. "
        "Add a small constant, or keep the scores away from where it vanishes.",
    ),
    "potential of NaN": (
        lambda: usu.redistribute(COARSE, SCORES, potential=lambda s: s * np.nan),
        ValueError,
        "`potential` must be positive and finite on [0, 1]; got zero, a negative number, infinity or NaN. "
        "Add a small constant, or keep the scores away from where it vanishes.",
    ),
    "potential that falls": (
        lambda: usu.redistribute(COARSE, SCORES, potential=lambda s: 2 - s),
        ValueError,
        "`potential` must increase on [0, 1]; got one that falls. A higher score has to attract more.",
    ),
    "potential that sums": (
        lambda: usu.redistribute(COARSE, SCORES, potential=lambda s: 1 + s.sum()),
        ValueError,
        "`potential` must return one value per score; got () for 65. Apply it element by element.",
    ),
    "potential that is a number": (
        lambda: usu.redistribute(COARSE, SCORES, potential=3),
        TypeError,
        "`potential` must be callable; got int. Take one of usu.potentials, or pass a function of the scores.",
    ),
    "mixed devices": (
        lambda: usu.redistribute(torch.ones(2, 2), torch.full((4, 4), 0.5, device="meta")),
        ValueError,
        "`scores` must be on the same device as `coarse` (cpu); got meta. Move one of them with .to(...).",
    ),
    "integer tensor": (
        lambda: usu.redistribute(torch.ones(2, 2, dtype=torch.int64), torch.full((4, 4), 0.5)),
        TypeError,
        "`coarse` must hold floating-point numbers; got torch.int64. Convert it first, e.g. to float32.",
    ),
    "integer scores": (
        lambda: usu.redistribute(COARSE, np.ones((4, 4), dtype=np.uint8)),
        TypeError,
        "`scores` must hold floating-point numbers; got torch.uint8. Convert it first, e.g. to float32.",
    ),
    "empty coarse": (
        lambda: usu.redistribute(np.ones((0, 2)), SCORES),
        ValueError,
        "`coarse` must not be empty; got shape 0 x 2. Pass at least one value.",
    ),
    "empty batch of scores": (
        lambda: usu.redistribute(COARSE, np.ones((0, 4, 4))),
        ValueError,
        "`scores` must not be empty; got shape 0 x 4 x 4. Pass at least one value.",
    ),
    "a list": (
        lambda: usu.redistribute([[1.0]], SCORES),
        TypeError,
        "`coarse` must be a numpy array or a torch tensor; got list. Wrap it in numpy.asarray(...).",
    ),
    "numbers torch does not know": (
        lambda: usu.redistribute(COARSE.astype(np.longdouble), SCORES),
        TypeError,
        "`coarse` must hold numbers torch knows; got float128. Convert it first, e.g. to float64.",
    ),
    "negative base": (
        lambda: usu.redistribute(COARSE, SCORES, base=SCORES - 1),
        ValueError,
        "`base` must be non-negative; got -0.5. Clip it, or take its absolute value.",
    ),
    "base of another shape": (
        lambda: usu.redistribute(COARSE, SCORES, base=np.ones((3, 4))),
        ValueError,
        "`base` must have the shape of `scores` (4 x 4); got 3 x 4. Give every pixel a value.",
    ),
    "an unknown budget": (
        lambda: usu.redistribute(COARSE, SCORES, budget="soft"),
        ValueError,
        "`budget` must be one of 'cell', 'iwmr', 'hybrid'; got 'soft'. Check the spelling.",
    ),
    "a budget of another type": (
        lambda: usu.redistribute(COARSE, SCORES, budget=0.5),
        TypeError,
        "`budget` must be 'cell', 'iwmr', 'hybrid', SoftIWMR, Hybrid or SoftPrior; got float. Build one of these.",
    ),
    "an unknown sign rule": (
        lambda: usu.redistribute(COARSE, SCORES, signed="abs"),
        ValueError,
        "`signed` must be one of 'flip', 'literal'; got 'abs'. Check the spelling.",
    ),
    "a ceiling below the mean": (
        lambda: usu.redistribute(COARSE, SCORES, max_gain=0.5),
        ValueError,
        "`max_gain` must be at least 1 (an even spread); got 0.5. Use None for no ceiling.",
    ),
    "a mixing weight beyond one": (
        lambda: usu.Hybrid(1.5),
        ValueError,
        "`gamma` must lie in [0, 1]; got 1.5. 0 is cell, 1 is soft.",
    ),
    "a negative exponent": (
        lambda: usu.SoftPrior(exponent=-1),
        ValueError,
        "`exponent` must be at least 0; got -1. Use 0 to switch it off.",
    ),
    "budgets without cells": (
        lambda: usu.cell_budgets(COARSE, SCORES, budget=usu.SoftPrior()),
        ValueError,
        "`budget` must give every cell a budget; got SoftPrior, which knows no cells. Use SoftIWMR.",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_one_sentence(case: str) -> None:
    call, kind, sentence = CASES[case]
    with pytest.raises(kind, match=f"^{re.escape(sentence)}$"):
        call()


@pytest.mark.parametrize("case", CASES)
def test_the_form_of_the_sentence(case: str) -> None:
    assert re.fullmatch(r"`.+` must .+; got .+\. .+\.(\.\.\)\.)?", CASES[case][2], flags=re.DOTALL)
