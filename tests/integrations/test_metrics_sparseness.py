"""Sparseness beside the installed Quantus: its number, and what it does with small maps and with batches."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from usu.metrics.mass import sparseness


def theirs(quantus, *maps, **settings):
    """The number of each map, the maps being one batch."""
    batch = np.stack(maps)[:, None]
    pictures = np.zeros((len(maps), 3, *batch.shape[2:]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Quantus' own
        metric = quantus.Sparseness(disable_warnings=True, display_progressbar=False, **settings)
        model = torch.nn.Flatten()
        return metric(
            model, pictures, np.zeros(len(maps), dtype=int), a_batch=batch.copy(), device="cpu", channel_first=True
        )


def maps(seed):
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=(24, 31))
    spike = np.zeros((24, 31))
    spike[3, 4] = 5
    return {
        "signed": noise,
        "rectified": np.maximum(noise, 0),
        "heavy": rng.exponential(size=(24, 31)) ** 4,
        "spike": spike,
        "flat": 1 + 1e-3 * noise,  # what is constant it refuses
    }


@pytest.mark.parametrize("kind", list(maps(0)))
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_its_number(quantus, kind, scale):
    pixel_map = scale * maps(0)[kind]
    (wanted,) = theirs(quantus, pixel_map)
    assert sparseness(pixel_map, compat="quantus") == pytest.approx(wanted, abs=1e-12)
    assert sparseness(pixel_map) == pytest.approx(wanted, abs=1e-4)


def test_the_added_constant_is_there(quantus):
    spike = maps(0)["spike"]
    (wanted,) = theirs(quantus, spike)
    assert abs(sparseness(spike) - wanted) > 1e-5
    assert sparseness(spike, compat="quantus") == pytest.approx(wanted, abs=1e-12)


def test_small_maps_change_its_number_without_normalisation_and_not_ours(quantus):
    pixel_map = maps(1)["heavy"]
    (large,), (small,) = (theirs(quantus, scale * pixel_map, normalise=False) for scale in (1, 1e-9))
    assert large > 0.8
    assert small < 0.5 * large
    assert sparseness(1e-9 * pixel_map) == pytest.approx(sparseness(pixel_map), abs=1e-12)
    assert sparseness(pixel_map) == pytest.approx(large, abs=1e-4)


def test_in_a_batch_its_number_depends_on_the_neighbour(quantus):
    small, large = 1e-9 * maps(1)["heavy"], maps(2)["heavy"]
    (alone,), (beside, _) = theirs(quantus, small), theirs(quantus, small, large)
    assert sparseness(small, compat="quantus") == pytest.approx(alone, abs=1e-12)
    assert abs(beside - alone) > 0.1
