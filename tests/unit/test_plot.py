"""Figures: the right colours for the right signs, one scale for what is compared, and nothing that needs a window."""

from __future__ import annotations

import numpy as np
import pytest

import usu
from usu.plot import ONE_SIGN, TWO_SIGNS, Panel, Scale, comparison, figure, overlay, panels, scale_of, shares


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ([[0.0, 2.0]], (ONE_SIGN, 0.0, 2.0)),
        ([[1.0, 2.0]], (ONE_SIGN, 0.0, 2.0)),
        ([[-1.0, 2.0]], (TWO_SIGNS, -2.0, 2.0)),
        ([[-3.0, 2.0]], (TWO_SIGNS, -3.0, 3.0)),
        ([[-3.0, -1.0]], (TWO_SIGNS, -3.0, 3.0)),
        ([[0.0, 0.0]], (ONE_SIGN, 0.0, 1.0)),
        ([[np.nan, 1.0]], (ONE_SIGN, 0.0, 1.0)),
        ([[-0.05, 4.0]], (ONE_SIGN, 0.0, 4.0)),  # an overshoot
        ([[0.0, 2.0], [0.0, 6.0]], (ONE_SIGN, 0.0, 6.0)),  # one scale for both
        ([[0.0, 2.0], [-1.0, 1.0]], (TWO_SIGNS, -2.0, 2.0)),
    ],
)
def test_one_scale(fields: list[list[float]], expected: tuple[str, float, float]) -> None:
    scale = scale_of([np.array(field) for field in fields], quantile=1.0)
    assert (scale.colormap, scale.low, scale.high) == expected


@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "lanczos3"])
def test_the_overshoot_of_a_kernel_is_no_second_sign(mode: str) -> None:
    coarse = np.random.default_rng(0).random((7, 7)) ** 3
    assert not scale_of([usu.interpolate(coarse, (112, 112), mode)]).signed  # type: ignore[arg-type]


def test_a_quantile_keeps_a_stray_pixel_from_darkening_the_rest() -> None:
    field = np.ones(1000)
    field[0] = 1e6
    assert scale_of([field]).high == pytest.approx(1)
    assert scale_of([field], quantile=1.0).high == 1e6


def test_a_map_of_a_few_pixels_has_a_scale() -> None:
    field = np.zeros(1000)
    field[:3] = 5.0
    assert scale_of([field]).high == 5.0


def test_the_unit_is_the_average_pixel() -> None:
    field = np.array([[0.0, 4.0], [np.nan, 8.0]])
    assert np.nanmean(shares(field)) == 1.0
    assert shares(field, of=2 * field)[1, 1] == 1.0
    assert not shares(np.zeros((2, 2))).any()


def test_overlay_keeps_the_pictures_colours_where_the_map_is_zero() -> None:
    picture = np.random.default_rng(0).random((8, 9, 3))
    field = np.zeros((8, 9))
    field[2, 3] = 1.0
    drawn = overlay(picture, field)
    assert (drawn.shape, drawn.dtype) == ((8, 9, 3), np.uint8)
    same = (drawn == np.rint(255 * picture)).all(-1)
    assert np.argwhere(~same).tolist() == [[2, 3]]


def test_overlay_hides_more_where_the_map_is_stronger_and_dims_what_was_not_seen() -> None:
    picture = np.full((2, 200, 3), 0.5)
    field = np.tile(np.linspace(0, 1, 200), (2, 1))
    field[1, :100] = np.nan
    drawn = overlay(picture, field).astype(float)
    far = np.abs(drawn[0] - 127.5).sum(-1)
    assert (np.diff(far[[0, 20, 60, 100, 199]]) > 0).all()
    assert (drawn[1, 0] == round(255 * 0.7 * 0.5)).all()
    weak = overlay(picture, field, opacity=0.1).astype(float)
    assert np.abs(weak[0, -1] - 127.5).sum() < far[-1] / 4


def test_overlay_is_the_same_a_few_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    dice = np.random.default_rng(0)
    picture, field = dice.random((7, 5, 3)), dice.random((7, 5))
    field[2, 1] = np.nan
    whole = overlay(picture, field)
    monkeypatch.setattr(panels, "_AT_ONCE", 10)
    np.testing.assert_array_equal(overlay(picture, field), whole)


def test_overlay_takes_another_colour_map_and_refuses_nonsense() -> None:
    picture, field = np.full((4, 4, 3), 0.5), np.eye(4)
    assert (overlay(picture, field, colormap="viridis") != overlay(picture, field)).any()
    with pytest.raises(ValueError, match="`quantile` must"):
        overlay(picture, field, quantile=2.0)
    with pytest.raises(ValueError, match="`opacity` must"):
        overlay(picture, field, opacity=-1.0)


def bars(drawn: object) -> list[object]:
    """Colour bars stand in axes inside of axes."""
    return [inner for axes in drawn.axes for inner in axes.child_axes]  # type: ignore[attr-defined]


def test_comparison_has_one_scale() -> None:
    maps = {"one": (np.random.default_rng(0).random((6, 6)), "a $ in a note"), "two": (np.full((6, 6), 9.0), "")}
    drawn = comparison(np.zeros((6, 6, 3)), maps, coarse=np.ones((2, 2)), heading="costs $5")
    assert len(drawn.axes) == 4
    assert len(bars(drawn)) == 1
    drawn.canvas.draw()


def test_panels_fill_rows_and_each_row_has_a_bar() -> None:
    drawn = figure([Panel(str(i), np.eye(3)) for i in range(5)], columns=2)
    assert len(drawn.axes) == 5
    assert len(bars(drawn)) == 3


@pytest.mark.parametrize("shape", [(128, 501), (501, 128), (60, 60)])
def test_a_bar_is_as_tall_as_its_picture(shape: tuple[int, int]) -> None:
    drawn = figure([Panel("a", np.ones(shape), np.zeros((*shape, 3))), Panel("b", np.eye(4), scale=Scale(2.0))])
    drawn.canvas.draw()
    axes, (bar,) = drawn.axes[0], drawn.axes[0].child_axes
    picture, beside = axes.get_window_extent(), bar.get_window_extent()
    assert beside.y0 == pytest.approx(picture.y0, abs=1)
    assert 0.95 < (beside.y1 - beside.y0) / picture.height < 1.005  # its point reaches the top
    assert beside.width < 0.25 * max(picture.width, picture.height)


def test_light_and_dark() -> None:
    for dark, paper in ((False, 1.0), (True, 18 / 255)):
        drawn = figure([Panel("a", np.eye(4), note="b")], heading="c", dark=dark)
        drawn.canvas.draw()
        pixels = np.asarray(drawn.canvas.buffer_rgba())[..., :3] / 255
        assert pixels[0, -1] == pytest.approx([paper] * 3, abs=0.01)
        text = [drawn.axes[0].title.get_color(), drawn.axes[0].xaxis.label.get_color(), drawn._suptitle.get_color()]
        assert text == ["#e8e8e8" if dark else "#000000"] * 3


def test_segments_are_drawn_over_the_picture() -> None:
    drawn = figure([Panel("segments", picture=np.zeros((4, 4, 3)), labels=np.arange(16).reshape(4, 4) // 8)])
    assert len(drawn.axes[0].images) == 2
