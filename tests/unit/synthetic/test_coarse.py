"""Coarse maps: the gradient by hand, masses to rounding, cells that are the operator's."""

from __future__ import annotations

import pytest
import torch
from experiments.synthetic.coarse import GRIDS, cell_means, coarse_maps, input_gradients, pixel_attributions
from experiments.synthetic.networks import CAM_LAYER, cnn, mlp
from experiments.synthetic.shapes import shapes
from torch import nn

import usu

PICTURES = shapes(3, size=33)  # no grid divides it
MODEL = cnn(seed=3)


def linear() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(33 * 33, 3))


def test_the_gradient_of_a_linear_model_is_its_weights() -> None:
    model = linear()
    found = input_gradients(model, PICTURES.images, PICTURES.labels)
    torch.testing.assert_close(found, model[1].weight.detach()[PICTURES.labels].reshape(3, 33, 33))
    assert model[1].weight.grad is None


def test_each_picture_has_its_own_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    together = input_gradients(MODEL, PICTURES.images, PICTURES.labels)
    monkeypatch.setattr("experiments.synthetic.coarse.CHUNK", 2)
    torch.testing.assert_close(input_gradients(MODEL, PICTURES.images, PICTURES.labels), together)
    # against differences of the score itself, at the brightest pixel of the gradient
    model, image, label = cnn(seed=3).double(), PICTURES.images[:1].double(), PICTURES.labels[:1]
    where = int(together[0].abs().argmax())
    nudge = torch.zeros(33 * 33, dtype=torch.float64)
    nudge[where] = 1e-6
    with torch.no_grad():
        up, down = (model(image + sign * nudge.reshape(1, 1, 33, 33))[0, label] for sign in (1, -1))
    assert float(together[0].flatten()[where]) == pytest.approx(float((up - down) / 2e-6), rel=1e-3)


def test_the_three_readings() -> None:
    gradient = input_gradients(MODEL, PICTURES.images, PICTURES.labels).double()
    readings = {
        "magnitude": gradient.abs(),
        "square": gradient**2,
        "product": (gradient * PICTURES.images[:, 0]).abs(),
    }
    for name, wanted in readings.items():
        found = pixel_attributions(MODEL, PICTURES.images, PICTURES.labels, attribution=name)
        torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(pixel_attributions(MODEL, PICTURES.images, PICTURES.labels), readings["magnitude"])
    with pytest.raises(ValueError, match=r"`attribution` must .*; got 'sign'"):
        pixel_attributions(MODEL, PICTURES.images, PICTURES.labels, attribution="sign")


@pytest.mark.parametrize("grid", GRIDS)
def test_masses_are_those_of_the_pixel_map(grid: int) -> None:
    fields = pixel_attributions(MODEL, PICTURES.images, PICTURES.labels)
    coarse = coarse_maps(MODEL, PICTURES.images, PICTURES.labels, grid)
    assert coarse.shape == (3, grid, grid)
    spread = usu.interpolate(coarse, (33, 33), "nearest")
    imbalance = usu.mass_imbalance(spread, fields, (grid, grid))
    mass = float(fields.sum((1, 2)).min())
    assert mass > 0
    assert float(torch.cat(tuple(imbalance)).max()) < 1e-12 * mass


def test_cell_means_by_hand() -> None:
    field = torch.tensor([[1.0, 2, 3, 4, 5]] * 5)[None]
    # centres at .1 .3 | .5 .7 .9, as in usu.redistribute
    assert cell_means(field, 2).tolist() == [[[1.5, 4.0], [1.5, 4.0]]]


@pytest.mark.parametrize("grid", GRIDS)
def test_grad_cam_keeps_its_mass(grid: int) -> None:
    found = usu.gradcam(MODEL, PICTURES.images, PICTURES.labels.tolist(), layer=CAM_LAYER).values.double()
    coarse = coarse_maps(MODEL, PICTURES.images, PICTURES.labels, grid, source="gradcam")
    assert coarse.shape == (3, grid, grid)
    assert float(found.sum()) > 0
    pixels = torch.tensor([((2 * torch.arange(33) + 1) * grid // 66 == k).sum() for k in range(grid)]).double()
    mass = (coarse * torch.outer(pixels, pixels)).sum((1, 2))
    torch.testing.assert_close(mass, usu.interpolate(found, (33, 33), "nearest").sum((1, 2)))


def test_grad_cam_needs_the_cnn() -> None:
    with pytest.raises(ValueError, match="layer"):
        coarse_maps(mlp(33), PICTURES.images, PICTURES.labels, 4, source="gradcam")
    with pytest.raises(ValueError, match=r"`source` must .*; got 'lime'"):
        coarse_maps(MODEL, PICTURES.images, PICTURES.labels, 4, source="lime")
