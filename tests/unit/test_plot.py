"""Figures: the right colours for the right signs, and nothing that needs a window."""

from __future__ import annotations

import numpy as np
import pytest

from usu.plot import ONE_SIGN, TWO_SIGNS, Panel, colours, comparison, figure, overlay


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ([0.0, 2.0], (ONE_SIGN, 0.0, 2.0)),
        ([1.0, 2.0], (ONE_SIGN, 0.0, 2.0)),
        ([-1.0, 2.0], (TWO_SIGNS, -2.0, 2.0)),
        ([-3.0, 2.0], (TWO_SIGNS, -3.0, 3.0)),
        ([-3.0, -1.0], (f"{ONE_SIGN}_r", -3.0, 0.0)),
        ([0.0, 0.0], (ONE_SIGN, 0.0, 1.0)),
        ([np.nan, 1.0], (ONE_SIGN, 0.0, 1.0)),
    ],
)
def test_colours(field: list[float], expected: tuple[str, float, float]) -> None:
    assert colours(np.array(field)) == expected


def test_a_quantile_keeps_a_stray_pixel_from_darkening_the_rest() -> None:
    field = np.ones(1000)
    field[0] = 1e6
    assert colours(field, 0.99)[2] == pytest.approx(1)


def test_overlay_brightens_where_the_map_is_strong_and_dims_what_was_not_seen() -> None:
    picture = np.full((2, 200, 3), 0.5)
    field = np.tile(np.linspace(0, 1, 200), (2, 1))
    field[1, :100] = np.nan
    drawn = overlay(picture, field)
    assert drawn.shape == (2, 200, 3)
    assert drawn.dtype == np.uint8
    assert drawn[0, -1].sum() > drawn[0, 0].sum()
    assert (drawn[1, 0] == round(255 * 0.4 * 0.5)).all()


def test_overlay_of_a_zero_map_shows_the_picture() -> None:
    picture = np.random.default_rng(0).random((8, 8, 3))
    drawn = overlay(picture, np.zeros((8, 8)))
    assert np.corrcoef(drawn.mean(-1).ravel(), picture.mean(-1).ravel())[0, 1] > 0.99


def test_comparison_has_a_bar_with_numbers_for_every_map() -> None:
    maps = {"one": (np.random.default_rng(0).random((6, 6)), "a $ in a note"), "two": (np.full((6, 6), -1.0), "")}
    drawn = comparison(np.zeros((6, 6, 3)), maps, coarse=np.ones((2, 2)), heading="costs $5")
    assert len(drawn.axes) == 4 + 3  # picture, coarse and two maps; a bar for each map
    drawn.canvas.draw()


def test_panels_fill_rows() -> None:
    drawn = figure([Panel(str(i), np.eye(3)) for i in range(5)], columns=2)
    assert len(drawn.axes) == 10


def test_segments_are_drawn_over_the_picture() -> None:
    drawn = figure([Panel("segments", picture=np.zeros((4, 4, 3)), labels=np.arange(16).reshape(4, 4) // 8)])
    assert len(drawn.axes[0].images) == 2
