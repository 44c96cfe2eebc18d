"""Figures show what they are given: the right fields in the right places, honest colours, both files."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from experiments.synthetic import figures
from experiments.synthetic.figures import Shown
from experiments.synthetic.identical import Polygon, Twins
from experiments.synthetic.panels import NEGATIVE, grid, heat, save
from matplotlib.colors import to_rgba

import usu
from tests.chosen import chosen

SIZE = 16


@pytest.fixture
def shown() -> Shown:
    dice = np.random.default_rng(0)
    truth = np.zeros((SIZE, SIZE))
    truth[4:9, 5:12] = 1
    coarse = truth.reshape(4, 4, 4, 4).mean((1, 3))
    maps = {"bilinear": usu.interpolate(coarse, (SIZE, SIZE), "bilinear"), "usu": dice.random((SIZE, SIZE))}
    return Shown("a square", dice.random((SIZE, SIZE)), truth, coarse, maps)


def fields(figure) -> list[np.ndarray]:
    """What is drawn, panel by panel; the first picture of each."""
    return [np.asarray(axes.images[0].get_array()) for axes in figure.axes if axes.images]


def texts(figure) -> str:
    return " ".join(
        [figure.get_suptitle()] + [f"{a.get_title()} {a.get_xlabel()} {a.get_ylabel()}" for a in figure.axes]
    )


def test_upsampling_errors(shown) -> None:
    figure = figures.upsampling_errors(shown)
    drawn = fields(figure)
    for field, wanted in zip(drawn[:5], [shown.picture, shown.truth, shown.coarse, *shown.maps.values()], strict=True):
        np.testing.assert_allclose(field, wanted)
    # red minus blue is the surplus of the map over the truth
    for field, own in zip(drawn[5:], shown.maps.values(), strict=True):
        np.testing.assert_allclose(field, np.abs(own) - shown.truth)
    surplus = shown.maps["usu"] - shown.truth
    assert f"α {surplus.clip(0).sum() / 35:.2f}  β {(-surplus).clip(0).sum() / 35:.2f}" in texts(figure)
    assert "coarse, 4 x 4" in texts(figure)


def test_error_types_show_the_loss_left_and_the_invention_right(shown) -> None:
    drawn = fields(figures.error_types(shown, shown))
    surplus = shown.maps["bilinear"] - shown.truth
    np.testing.assert_allclose(drawn[-2], (-surplus).clip(0))
    np.testing.assert_allclose(drawn[-1], surplus.clip(0))


def test_refinement_has_a_row_per_depth() -> None:
    image = torch.zeros(1, SIZE, SIZE)
    image[0, 3:11, 5:13] = 1
    settings = usu.PRESETS["paper"]
    coarse = np.full((4, 4), 0.5)
    result = usu.upsample(
        coarse, image, lambda batch: batch.flatten(1).sum(1)[:, None], 0, preset=chosen("paper", parts=9)
    )
    figure = figures.refinement(image[0].numpy(), coarse, result, settings)
    drawn = fields(figure)
    assert len(drawn) == 6 * len(result.segments) > 6
    np.testing.assert_allclose(drawn[1], result.depth_scores[0][0])
    np.testing.assert_allclose(drawn[2], result.depth_scores[0][0])
    # a depth's own scores are constant on its segments; merged ones are not
    for labels, own in zip(result.segments, drawn[1::6], strict=True):
        assert max(np.ptp(own[labels == label]) for label in np.unique(labels)) < 1e-6
    assert max(np.ptp(drawn[8][result.segments[1] == label]) for label in np.unique(result.segments[1])) > 1e-3
    # the last map is the pipeline's own
    np.testing.assert_allclose(drawn[-1], result.pixel_map)
    assert f"{result.segments[-1].max() + 1} segments" in texts(figure)


def test_qualitative_has_a_row_per_configuration(shown) -> None:
    figure = figures.qualitative([shown, shown, shown])
    assert len(fields(figure)) == 3 * 5
    assert "Lanczos-3" not in texts(figure)
    assert "USU" in texts(figure)


def test_identical_shows_both_gaps(shown) -> None:
    maps = np.stack([shown.maps["usu"], shown.maps["usu"].T])
    twins = Twins(
        (Polygon("circle", 1, 1, 1, 0), Polygon("square", 1, 1, 1, 0)), np.stack([shown.truth > 0] * 2),
        np.stack([shown.coarse] * 2), np.stack([shown.maps["bilinear"]] * 2), maps,
    )  # fmt: skip
    figure = figures.identical(twins)
    assert len(fields(figure)) == 2 * 4
    assert "largest difference: 0 of" in texts(figure)
    assert f"{np.abs(maps[0] - maps[1]).sum() / maps.sum():.0%} of the mass" in texts(figure)


def test_ringing_is_blue_and_rounding_is_not() -> None:
    panel = heat(np.array([[1.0, -0.2, -1e-9]]))
    figure = grid([[panel]], columns=["x"], names=["y"], heading="")
    image = figure.axes[0].images[0]
    colours = image.cmap(image.norm(image.get_array()))[0]
    assert tuple(colours[1]) == to_rgba(NEGATIVE)
    assert tuple(colours[2]) == tuple(image.cmap(0.0))
    assert image.get_clim()[0] == 0


def test_both_files_the_same_each_time(tmp_path) -> None:
    def draw(folder):
        figure = grid([[heat(np.eye(3)), None]], columns=["a", "b"], names=["c"], heading="d")
        return [path.read_bytes() for path in save(figure, folder, "x")]

    png, pdf = draw(tmp_path / "one")
    assert png.startswith(b"\x89PNG")
    assert pdf.startswith(b"%PDF")
    assert draw(tmp_path / "two") == [png, pdf]
