"""Bad input gets one sentence: the argument, what it must be, what came."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
import torch

import usu
from usu import redistribute

COARSE, SCORES = np.ones((2, 2)), np.full((4, 4), 0.5)
LABELS = np.zeros((4, 4), dtype=np.int64)


def poisoned(array: np.ndarray, value: float) -> np.ndarray:
    array = array.copy()
    array.flat[0] = value
    return array


def usual(**settings: object) -> np.ndarray:
    return redistribute(COARSE, SCORES, **settings)


REDISTRIBUTE: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "NaN in coarse": (lambda: redistribute(poisoned(COARSE, np.nan), SCORES), ValueError, "`coarse` .*; got NaN"),
    "infinity in coarse": (
        lambda: redistribute(poisoned(COARSE, -np.inf), SCORES), ValueError, "`coarse` .*; got infinity",
    ),
    "NaN in scores": (lambda: redistribute(COARSE, poisoned(SCORES, np.nan)), ValueError, "`scores` .*; got NaN"),
    "scores above one": (
        lambda: redistribute(COARSE, poisoned(SCORES, 1.5)), ValueError, r"`scores` .*\[0, 1\]; got .*0.5 to 1.5",
    ),
    "infinite scores": (lambda: redistribute(COARSE, poisoned(SCORES, np.inf)), ValueError, "`scores` .* to inf"),
    "scores smaller than the grid": (
        lambda: redistribute(np.ones((5, 2)), SCORES), ValueError, r"`scores` .*5 x 2.*; got 4 x 4",
    ),
    "one dimension without cells": (
        lambda: redistribute(np.ones(3), SCORES), ValueError, "`coarse` and `scores` .*; got 3 and 4 x 4. .*`cells`",
    ),
    "batches that do not fit": (
        lambda: redistribute(np.ones((2, 2, 2)), np.full((3, 4, 4), 0.5)), ValueError, "`scores` .*2 x 2 x 2.*3 x 4",
    ),
    "cells of another shape": (
        lambda: redistribute(np.ones(4), SCORES, cells=np.zeros((4, 5), dtype=int)), ValueError, "`cells` .* got 4 x 5",
    ),
    "cells with holes": (
        lambda: redistribute(np.ones(4), SCORES, cells=poisoned(LABELS, -1)), ValueError, "`cells` .* 0 .*; got -1",
    ),
    "labels beyond coarse": (
        lambda: redistribute(np.ones(4), SCORES, cells=poisoned(LABELS, 4)), ValueError, "`cells` .*0 to 3.*; got 4",
    ),
    "cells that are no integers": (
        lambda: redistribute(np.ones(4), SCORES, cells=SCORES), TypeError, "`cells` .*; got torch.float64",
    ),
    "mass without a pixel": (
        lambda: redistribute(np.ones(4), SCORES, cells=LABELS, coarse_is="mass"), ValueError, "`cells` .* every mass",
    ),
    "mixed devices": (
        lambda: redistribute(torch.ones(2, 2), torch.empty(4, 4, device="meta")), ValueError, "`scores` .*; got meta",
    ),
    "integer coarse": (
        lambda: redistribute(torch.ones(2, 2).long(), torch.rand(4, 4)), TypeError, "`coarse` .*; got torch.int64",
    ),
    "complex coarse": (lambda: redistribute(COARSE + 0j, SCORES), TypeError, "`coarse` .*; got torch.complex128"),
    "integer scores": (lambda: redistribute(COARSE, LABELS), TypeError, "`scores` .*; got torch.int64"),
    "empty coarse": (lambda: redistribute(np.ones((0, 2)), SCORES), ValueError, "`coarse` .*; got shape 0 x 2"),
    "empty batch": (lambda: redistribute(COARSE, np.ones((0, 4, 4))), ValueError, "`scores` .*; got shape 0 x 4 x 4"),
    "a list": (lambda: redistribute([[1.0]], SCORES), TypeError, "`coarse` .*; got list"),
    "long double": (lambda: redistribute(COARSE.astype(np.longdouble), SCORES), TypeError, "`coarse` .*; got float128"),
    "masked coarse": (lambda: redistribute(np.ma.array(COARSE), SCORES), TypeError, "`coarse` .*masked"),
    "masked scores": (lambda: redistribute(COARSE, np.ma.array(SCORES)), TypeError, "`scores` .*masked"),
    "masked cells": (
        lambda: redistribute(np.ones(1), SCORES, cells=np.ma.array(LABELS)), TypeError, "`cells` .*masked",
    ),
    "negative base": (lambda: redistribute(COARSE, SCORES, base=SCORES - 1), ValueError, "`base` .*; got -0.5"),
    "base of another shape": (
        lambda: redistribute(COARSE, SCORES, base=np.ones((3, 4))), ValueError, "`base` .*4 x 4.*; got 3 x 4",
    ),
}  # fmt: skip
SETTINGS: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "a temperature of zero": (lambda: usual(temperature=0), ValueError, "`temperature` .*; got 0"),
    "a temperature too small": (lambda: usual(temperature=1e-320), ValueError, "`temperature` .*, and .*; got 1e-320"),
    "a temperature of NaN": (lambda: usual(temperature=float("nan")), ValueError, "`temperature` .*; got nan"),
    "a temperature as text": (lambda: usual(temperature="hot"), TypeError, "`temperature` .*; got str"),
    "a potential of a temperature too small": (lambda: usu.potentials.tensor(1e-320), ValueError, "`temperature`"),
    "a soft budget of a temperature too small": (lambda: usu.SoftIWMR(1e-320), ValueError, "`temperature`"),
    "a potential that vanishes": (lambda: usual(potential=lambda s: s), ValueError, "`potential` .*positive"),
    "a potential of NaN": (lambda: usual(potential=lambda s: s * np.nan), ValueError, "`potential` .*finite"),
    "a potential that falls": (lambda: usual(potential=lambda s: 2 - s), ValueError, "`potential` .*increase"),
    "a potential that sums": (lambda: usual(potential=lambda s: 1 + s.sum()), ValueError, r"`potential` .*; got \(\)"),
    "a potential that is a number": (lambda: usual(potential=3), TypeError, "`potential` .*; got int"),
    "an unknown budget": (lambda: usual(budget="soft"), ValueError, "`budget` .*'iwmr'.*; got 'soft'"),
    "a budget of another type": (lambda: usual(budget=0.5), TypeError, "`budget` .*; got float"),
    "an unknown sign rule": (lambda: usual(signed="abs"), ValueError, "`signed` .*; got 'abs'"),
    "an unknown kind of coarse": (lambda: usual(coarse_is="sum"), ValueError, "`coarse_is` .*; got 'sum'"),
    "a ceiling below the mean": (lambda: usual(max_gain=0.5), ValueError, "`max_gain` .*; got 0.5"),
    "a mixing weight beyond one": (lambda: usu.Hybrid(1.5), ValueError, "`gamma` .*; got 1.5"),
    "a hybrid of nothing": (lambda: usu.Hybrid(soft="iwmr"), TypeError, "`soft` .*; got str"),
    "a negative exponent": (lambda: usu.SoftPrior(exponent=-1), ValueError, "`exponent` .*; got -1"),
    "a negative floor": (lambda: usu.SoftPrior(floor=-1), ValueError, "`floor` .*; got -1"),
    "budgets without cells": (
        lambda: usu.cell_budgets(COARSE, SCORES, budget=usu.SoftPrior()), ValueError, "`budget` .*; got SoftPrior",
    ),
}  # fmt: skip
CASES = {**REDISTRIBUTE, **SETTINGS}


@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_answered_in_one_sentence(case: str) -> None:
    call, kind, words = CASES[case]
    with pytest.raises(kind, match=words) as caught:
        call()
    assert re.fullmatch(r"`\w+` (and `\w+` )?must [^;]+; got .+\.", str(caught.value)), caught.value
