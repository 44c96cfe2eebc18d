"""Additive models: closed form against all orders of joining, and bounds that vanish for D1 and for nobody else."""

from __future__ import annotations

from itertools import permutations

import pytest
import torch
from experiments.synthetic.additive import Additive, additive, bounds, segment_scores, shapley
from experiments.synthetic.shapes import shapes

PICTURES = shapes(3, size=32)
ROWS = bounds(PICTURES, grids=(4, 7))


def test_closed_form_against_every_order_of_joining() -> None:
    generator = torch.Generator().manual_seed(0)
    model = Additive(torch.randn(2, 2, 2, generator=generator, dtype=torch.float64), knee=0.3)
    image, reference = torch.rand(2, 1, 1, 2, 2, generator=generator, dtype=torch.float64)
    wanted = torch.zeros(4, dtype=torch.float64)
    orders = list(permutations(range(4)))
    for order in orders:
        mixed = reference.clone()
        for pixel in order:
            before = model(mixed)[0, 1]
            mixed.view(-1)[pixel] = image.view(-1)[pixel]
            wanted[pixel] += (model(mixed)[0, 1] - before) / len(orders)
    found = shapley(model, image, torch.tensor([1]), reference[:, 0])
    torch.testing.assert_close(found.flatten(), wanted)


def test_values_add_up_to_the_score_and_live_in_the_shape() -> None:
    model = additive(32)
    values = shapley(model, PICTURES.images, PICTURES.labels)
    scores = model(PICTURES.images).gather(1, PICTURES.labels[:, None])[:, 0]
    torch.testing.assert_close(values.sum((1, 2)), scores)
    assert torch.equal(values > 0, PICTURES.truths)
    assert float(values.min()) == 0
    assert float(values[0][PICTURES.truths[0]].std()) > 0


def test_segment_scores() -> None:
    values = torch.tensor([[1.0, 3.0], [0.0, 6.0]])
    segments = torch.tensor([[0, 0], [1, 3]])  # nobody is 2
    torch.testing.assert_close(segment_scores(values, segments).flatten(), torch.tensor([1 / 3, 1 / 3, 0, 1]).double())
    assert segment_scores(torch.ones(2, 2), segments).unique().tolist() == [0.5]


@pytest.mark.parametrize("name", ["nearest", "usu"])
def test_the_bounds_vanish_for_d1(name: str) -> None:
    own = [row for row in ROWS if row.upsampler == name]
    assert len(own) == 6
    assert max(max(row.excess, row.deficit) for row in own) < 1e-12


@pytest.mark.parametrize("name", ["bilinear", "bicubic", "lanczos3", "usu-iwmr-area"])
def test_the_bounds_are_positive_for_the_others(name: str) -> None:
    own = [row for row in ROWS if row.upsampler == name]
    assert len(own) == 6
    assert min(max(row.excess, row.deficit) for row in own) > 0.01


def test_errors_are_no_smaller_than_their_bounds() -> None:
    """The paper's proposition, for maps without negative values; it names which maps those are."""
    for row in ROWS:
        if not row.negative:
            assert row.alpha >= row.excess - 1e-12
            assert row.beta >= row.deficit - 1e-12
    assert {row.upsampler for row in ROWS if row.negative} == {"bicubic", "lanczos3"}


def test_scores_help_beyond_mass() -> None:
    """Nearest has the same bounds; only scores bring the errors themselves down."""
    alpha = {name: sum(row.alpha for row in ROWS if row.upsampler == name) for name in ("usu", "nearest", "bilinear")}
    assert alpha["usu"] < alpha["nearest"] / 2 < alpha["bilinear"] / 2
