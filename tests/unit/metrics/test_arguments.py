"""Every metric takes maps of any precision, refuses what it cannot use, and names the argument."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from usu import metrics

ASKING = (
    metrics.deletion, metrics.insertion, metrics.pixel_flipping, metrics.monotonicity_correlation, metrics.irof,
    metrics.road, metrics.infidelity, metrics.half_deletion,
)  # fmt: skip
OUTLINED = (
    metrics.concentration, metrics.energy_in_mask, metrics.pointing_game, metrics.iou, metrics.area_iou,
    metrics.cell_auroc,
)  # fmt: skip
MASS = (metrics.mass_error, metrics.moved_mass, metrics.largest_gain)
#: A valid call of every metric that has a map.
GOOD = {
    **{m: {"image": torch.rand(1, 4, 4), "model": lambda b: b.flatten(1)[:, :3].sum(1, True) + 3} for m in ASKING},
    **{m: {"truth": np.eye(4)} for m in OUTLINED},
    **{m: {"coarse": np.ones((2, 2))} for m in MASS},
    metrics.seam_energy: {"cells": (2, 2), "segments": np.eye(4, dtype=int)},
    metrics.sparseness: {},
    metrics.quantile_match: {"like": np.ones((4, 4))},
}
for asking in ASKING:
    GOOD[asking] |= {"target": 0, "link": "logit"}
for celled in (metrics.half_deletion, metrics.cell_auroc):
    GOOD[celled] |= {"cells": (2, 2)}
for stepped in (metrics.deletion, metrics.insertion, metrics.pixel_flipping, metrics.monotonicity_correlation):
    GOOD[stepped] |= {"steps": 8}

GIVEN = torch.tensor(np.random.default_rng(0).integers(0, 5, (4, 4)) / 4.0)


def call(metric, change):
    return metric(**{"pixel_map": GIVEN.numpy(), **GOOD[metric], **change})


TWOFOLD = (*ASKING[2:5], metrics.infidelity, metrics.sparseness)


@pytest.mark.parametrize(
    ("metric", "change"), [*((m, {}) for m in GOOD), *((m, {"compat": "quantus"}) for m in TWOFOLD)]
)
def test_a_map_of_half_precision(metric, change):
    """All values of the map are exact in all of them, so the number is the same."""
    if metric in MASS:
        change = {"coarse": torch.ones(2, 2, dtype=torch.bfloat16)}
    known = call(metric, change)
    for given in (GIVEN.half(), GIVEN.bfloat16(), GIVEN.half().numpy()):
        found = call(metric, change | {"pixel_map": given})
        assert np.array_equal(*(np.asarray(getattr(one, "value", one), dtype=float) for one in (found, known)))


@pytest.mark.parametrize(
    ("pixel_map", "error"),
    [
        (np.ones((1, 4, 4)), ValueError),
        (np.ones((0, 4)), ValueError),
        (np.full((4, 4), np.nan), ValueError),
        (np.ones((4, 4), dtype=int), TypeError),
        ([[1.0]], TypeError),
    ],
)
def test_a_map_that_will_not_do(pixel_map, error):
    for metric in GOOD:
        with pytest.raises(error, match=r"^`pixel_map` must"):
            call(metric, {"pixel_map": pixel_map})


@pytest.mark.parametrize(
    ("metric", "change"), [*((m, {}) for m in GOOD), *((m, {"compat": "quantus"}) for m in TWOFOLD)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_handed_in_is_not_written_to(metric, change, dtype):
    """In float64 nothing has to be converted, so that a careless copy is the caller's own memory."""
    handed = {
        name: value.to(dtype) if isinstance(value, torch.Tensor) else value.copy()
        for name, value in {"pixel_map": GIVEN, **GOOD[metric]}.items()
        if isinstance(value, (torch.Tensor, np.ndarray))
    }
    before = {name: torch.as_tensor(value).clone() for name, value in handed.items()}
    call(metric, change | handed)
    assert all(torch.equal(torch.as_tensor(handed[name]), known) for name, known in before.items())


QUANTUS = {"compat": "quantus"}


@pytest.mark.parametrize(
    ("metrics", "change", "error", "argument"),
    [
        (ASKING, {"pixel_map": np.ones((4, 5))}, ValueError, "pixel_map"),
        (ASKING, {"image": torch.zeros(4, 4)}, ValueError, "image"),
        (ASKING, {"target": [0, 0]}, ValueError, "target"),
        (ASKING, {"link": "odds"}, ValueError, "link"),
        ((*ASKING, metrics.area_iou, metrics.quantile_match), {"generator": -1}, ValueError, "generator"),
        ((*ASKING, metrics.area_iou, metrics.quantile_match), {"generator": "a"}, TypeError, "generator"),
        (ASKING[:4], {"steps": 0}, ValueError, "steps"),
        (ASKING[2:4], {"steps": 1}, ValueError, "steps"),
        (ASKING[:4], {"steps": 17}, ValueError, "steps"),
        (ASKING[:4], {"steps": 2.0}, TypeError, "steps"),
        (ASKING[:4], {"steps": True}, TypeError, "steps"),
        ((*ASKING[:5], *ASKING[6:]), {"fill": "grey"}, ValueError, "fill"),
        (TWOFOLD, {"compat": "captum"}, ValueError, "compat"),
        (ASKING[2:4], QUANTUS | {"steps": 9}, ValueError, "steps"),
        (ASKING[2:4], QUANTUS | {"fill": "blur"}, ValueError, "fill"),
        (ASKING[2:4], QUANTUS | {"fill": [0, 0, 0]}, ValueError, "fill"),
        (ASKING[2:4], QUANTUS | {"fill": "uniform", "generator": torch.Generator()}, TypeError, "generator"),
        (ASKING[2:4], QUANTUS | {"fill": "uniform", "generator": 2**32}, ValueError, "generator"),
        (ASKING[3:4], {"samples": 2}, ValueError, "samples"),
        (ASKING[3:4], QUANTUS | {"samples": 2, "fill": "black"}, ValueError, "samples"),
        (ASKING[3:4], {"samples": 0}, ValueError, "samples"),
        ([metrics.irof], {"model": lambda b: b.flatten(1)[:, :1] - 9}, ValueError, "link"),
        ([metrics.irof], {"segments": np.zeros((2, 2), int)}, ValueError, "segments"),
        ([metrics.irof], {"segments": (14, 14)}, ValueError, "segments"),
        ([metrics.road], {"order": "morf"}, ValueError, "order"),
        ([metrics.road], {"percentages": (50, 100)}, ValueError, "percentages"),
        ([metrics.road], {"percentages": ()}, ValueError, "percentages"),
        ([metrics.road], {"noise": -0.1}, ValueError, "noise"),
        ([metrics.road], {"pixel_map": np.ones((1, 1)), "image": torch.rand(1, 1, 1)}, ValueError, "pixel_map"),
        ([metrics.infidelity], QUANTUS | {"scaling": "optimal"}, ValueError, "scaling"),
        ([metrics.infidelity], {"scaling": "best"}, ValueError, "scaling"),
        ([metrics.infidelity], QUANTUS | {"patch_sizes": (4, 3)}, ValueError, "patch_sizes"),
        ([metrics.infidelity], QUANTUS | {"patch_sizes": (2.0,)}, TypeError, "patch_sizes"),
        ([metrics.infidelity], QUANTUS | {"patch_sizes": ()}, ValueError, "patch_sizes"),
        ([metrics.infidelity], QUANTUS | {"fill": "uniform"}, ValueError, "fill"),
        ([metrics.infidelity], {"blocks": 0}, ValueError, "blocks"),
        ([metrics.infidelity], {"sides": (16,)}, ValueError, "sides"),
        ([metrics.infidelity], {"sides": (0.0,)}, ValueError, "sides"),
        ([metrics.infidelity], {"sides": ()}, ValueError, "sides"),
        ([metrics.half_deletion, metrics.cell_auroc, metrics.seam_energy], {"cells": (5, 2)}, ValueError, "cells"),
        ([metrics.half_deletion, metrics.cell_auroc, metrics.seam_energy], {"cells": np.eye(4)}, TypeError, "cells"),
        (OUTLINED[:-1], {"truth": np.zeros((4, 4))}, ValueError, "truth"),
        (OUTLINED, {"truth": np.ones((2, 3))}, ValueError, "truth"),
        (OUTLINED, {"truth": [[1]]}, TypeError, "truth"),
        ([metrics.pointing_game], {"tolerance": -1}, ValueError, "tolerance"),
        ([metrics.pointing_game], {"tolerance": "15"}, TypeError, "tolerance"),
        ([metrics.pointing_game], {"tolerance": math.inf}, ValueError, "tolerance"),
        ([metrics.cell_auroc], {"least": 0}, ValueError, "least"),
        ([metrics.cell_auroc], {"least": 1.5}, TypeError, "least"),
        ([metrics.seam_energy], {"segments": np.eye(4)}, TypeError, "segments"),
        ([metrics.seam_energy], {"segments": np.ones((1, 4), int)}, ValueError, "segments"),
        (MASS, {"coarse": np.ones((5, 5))}, ValueError, "pixel_map"),
        (MASS, {"coarse": np.ones(2)}, ValueError, "coarse"),
        (MASS, {"coarse": np.full((2, 2), np.nan)}, ValueError, "coarse"),
        (MASS, {"coarse": np.ones((2, 2), dtype=int)}, TypeError, "coarse"),
        (MASS, {"cells": np.eye(4, dtype=int)}, ValueError, "coarse"),
        (MASS, {"coarse": np.ones(2), "cells": 2 * np.eye(4, dtype=int)}, ValueError, "cells"),
        (MASS, {"coarse": np.ones(2), "cells": -np.eye(4, dtype=int)}, ValueError, "cells"),
        (MASS, {"coarse": np.ones(2), "cells": np.eye(4)}, TypeError, "cells"),
        (MASS, {"coarse_is": "volume"}, ValueError, "coarse_is"),
        ([metrics.quantile_match], {"like": np.ones(16)}, ValueError, "like"),
        ([metrics.quantile_match], {"like": np.full((4, 4), np.nan)}, ValueError, "like"),
        ([metrics.quantile_match], {"like": np.ones((4, 4), dtype=int)}, TypeError, "like"),
    ],
)
def test_an_argument_that_will_not_do(metrics, change, error, argument):
    for metric in metrics:
        call(metric, {})
        with pytest.raises(error, match=f"^`{argument}` must"):
            call(metric, change)
