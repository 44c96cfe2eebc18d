"""Infidelity beside captum's, fed with the same blocks, and beside the installed Quantus."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from torch import nn

from usu.forward.fills import filled
from usu.metrics.infidelity import block_changes, infidelity, infidelity_of
from usu.metrics.quantus_compat import patch_changes


@pytest.fixture(scope="module")
def captum_metrics(torchvision):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("captum.metrics")


@pytest.fixture(scope="module")
def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Linear(128, 5),
    ).eval()  # fmt: skip


def scene() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(4)
    return rng.normal(size=(3, 16, 16)).astype("float32"), rng.normal(size=(16, 16)).astype("float32") * 0.1


@pytest.mark.parametrize("normalize", [True, False])
def test_captum_with_the_same_blocks(captum_metrics, net, normalize):
    """Its value is E[(βu - v)²] with the best β; ours is that over E[v²]."""
    image, field = (torch.from_numpy(array) for array in scene())
    changes = block_changes(image, net, 2, blocks=40, generator=5)
    hidden = filled(image, "mean")

    def perturb(inputs):
        assert len(inputs) == 40
        without = changes.blocks.hidden(image, hidden, slice(0, 40))
        inside = changes.blocks.hidden(torch.zeros_like(image), torch.ones_like(image), slice(0, 40))
        # every channel holds a third of the map
        return inside, without

    theirs = captum_metrics.infidelity(
        net, perturb, image[None], (field / 3).expand(1, 3, 16, 16), target=2, n_perturb_samples=40, normalize=normalize
    )
    if normalize:
        expected = float(theirs) / float(changes.values.square().mean())
        assert infidelity_of(field, changes) == pytest.approx(expected, rel=1e-4)
        assert 0.05 < expected < 1
    else:
        assert infidelity_of(field, changes, scaling="raw") == pytest.approx(float(theirs), rel=1e-4)


def theirs(quantus, net, image, field, softmax=False, **settings) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Quantus' own
        metric = quantus.Infidelity(disable_warnings=True, display_progressbar=False, **settings)
        found = metric(
            net, image[None], np.array([2]), a_batch=field[None, None], device="cpu", channel_first=True,
            softmax=softmax,
        )  # fmt: skip
    return float(found[0])


@pytest.mark.parametrize("fill", ["black", "white", "mean", 0.25])
@pytest.mark.parametrize("patch_sizes", [(4,), (8, 2)])
@pytest.mark.parametrize("softmax", [False, True])
def test_the_number_is_quantus(quantus, net, fill, patch_sizes, softmax):
    image, field = scene()
    expected = theirs(
        quantus, net, image, field, softmax, perturb_patch_sizes=list(patch_sizes), perturb_baseline=fill,
        n_perturb_samples=2,
    )  # fmt: skip
    ours = infidelity(
        field, image, net, 2, fill=fill, patch_sizes=patch_sizes, compat="quantus",
        link="probability" if softmax else "logit",
    )  # fmt: skip
    assert ours.value == pytest.approx(expected, rel=1e-4)
    assert expected > 1e-3


def test_its_defaults_are_ours(quantus, net):
    image, field = scene()
    ours = infidelity(torch.from_numpy(field), torch.from_numpy(image), net, 2, compat="quantus")
    assert ours.value == pytest.approx(theirs(quantus, net, image, field), rel=1e-4)


def test_its_traps(quantus, net):
    """It grows with the square of the map, and its ten samples are ten times the same number."""
    image, field = scene()
    small, large = (theirs(quantus, net, image, field * scale, n_perturb_samples=1) for scale in (10, 1000))
    assert large == pytest.approx(1e4 * small, rel=0.1)
    assert theirs(quantus, net, image, field, n_perturb_samples=10) == theirs(
        quantus, net, image, field, n_perturb_samples=1
    )
    with pytest.raises(IndexError, match="out of bounds"):  # sides that are no multiple
        theirs(quantus, net, image, field, perturb_patch_sizes=[5], n_perturb_samples=1)


def test_one_set_of_answers_for_many_maps(quantus, net):
    image, field = scene()
    changes = patch_changes(image, net, 2, patch_sizes=(4,))
    for one in (field, field.T, field**2):
        ((u, v),) = changes.pairs(one)
        assert float((u - v).square().mean()) == pytest.approx(theirs(quantus, net, image, one), rel=1e-4)
