"""Results that show themselves: on axes, in a notebook, as pictures, regions and animations."""

from __future__ import annotations

import base64
import io
import re
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from PIL import Image

import usu
from tests.chosen import chosen
from tests.small_nets import Tower, seeded
from usu.models import Geometry
from usu.plot import shares
from usu.results.region import region_of

CLASSES = ["ant", "bee <b>", "cat", "dog", "eel"]


@pytest.fixture(scope="module")
def result() -> usu.Explanation:
    model, image = seeded(Tower), torch.rand(3, 32, 32, generator=torch.Generator().manual_seed(1))
    return usu.explain(model, image, 1, preset=chosen("soft", parts=12), evaluations=40, classes=CLASSES)


def test_the_manifest_knows_the_weights(result):
    model, image = seeded(Tower), torch.rand(3, 32, 32)
    with torch.no_grad():
        model.head.weight[0, 0] += 1e-6
    other = usu.explain(model, image, 1, preset="fast")
    assert len(result.manifest()["weights"]) == 16
    assert result.manifest()["weights"] != other.manifest()["weights"]
    again = usu.explain(seeded(Tower), image, 1, preset="fast")
    assert result.manifest()["weights"] == again.manifest()["weights"]
    anyone = usu.explain(lambda batch: batch.mean((2, 3)), image, 1, source=np.ones((2, 2)), evaluations=8)
    assert anyone.manifest()["weights"] is None


def test_one_line(result):
    assert re.fullmatch(
        r"Explanation\(bee <b>, \d+ %; gradcam at last, preset soft, other parts, 40 evaluations, stability 0\.\d\d\)",
        repr(result),
    )
    assert re.fullmatch(r"Upsampled\(class 1, 32 x 32; preset soft.*stability 0\.\d\d\)", repr(result.upsampled))


def test_both_results_have_the_same_attributes(result):
    for field in fields(usu.Upsampled):
        one, other = getattr(result, field.name), getattr(result.upsampled, field.name)
        assert one is other or np.array_equal(one, other), field.name
    assert result.probability == result.source.probabilities[0]


@pytest.mark.parametrize("shown", ["explanation", "upsampled"])
def test_a_notebook_shows_pictures_and_no_markup_of_others(result, shown):
    page = (result if shown == "explanation" else result.upsampled)._repr_html_()
    assert "bee &lt;b&gt;" in page or shown == "upsampled"
    assert "<b>" not in page
    images = [
        Image.open(io.BytesIO(base64.b64decode(data))) for data in re.findall(r"data:image/jpeg;base64,([^\"]+)", page)
    ]
    assert [image.size for image in images] == [(32, 32), (32, 32), (12, 120)]
    assert "average pixel" in page
    assert "color:" not in page, "the theme's own colours"


def test_a_small_panel_is_a_png(result):
    with Image.open(io.BytesIO(result._repr_png_())) as image:
        assert image.format == "PNG"
        assert 300 < image.size[0] < 1400


@pytest.mark.parametrize("kind", ["overlay", "panel", "scores", "stderr"])
def test_on_axes_of_the_callers_own(result, kind):
    figure = pytest.importorskip("matplotlib.figure").Figure()
    axes = figure.add_subplot()
    assert result.plot(axes, kind) is axes
    assert axes.get_title().endswith(result.title)
    assert len(axes.child_axes) == 1
    width = axes.images[0].get_array().shape[1]
    assert width == (32 if kind != "panel" else 66)
    result.upsampled.plot(figure.add_subplot(), kind)


def test_without_axes_pyplot_makes_them(result):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    before = pyplot.get_backend()
    pyplot.switch_backend("agg")
    axes = result.plot()
    assert pyplot.gcf() is axes.figure
    pyplot.close(axes.figure)
    pyplot.switch_backend(before)


def test_choices_are_followed_and_nonsense_is_refused(result):
    plain = np.asarray(result.overlay())
    assert (plain != np.asarray(result.overlay(colormap="viridis"))).any()
    assert (plain != np.asarray(result.overlay(quantile=0.5))).any()
    assert np.array_equal(result.overlay(opacity=0.0), np.rint(255 * result.picture).astype(np.uint8))
    with pytest.raises(ValueError, match="`kind` must be"):
        result.plot(object(), "heat")
    certain = replace(result, upsampled=replace(result.upsampled, stderr=None))
    with pytest.raises(ValueError, match="no posterior; got 'stderr'"):
        certain.plot(object(), "stderr")


@pytest.mark.parametrize("way", ["overlay", "plot"])
def test_what_is_uncertain_fades(result, way):
    """Nothing where the error is zero, half of the cover where it equals the value, all of it where it is vast."""
    from matplotlib import figure

    upsampled, plain = result.upsampled, np.asarray(result.overlay()).astype(int)
    picture = np.rint(255 * result.picture).astype(int)

    def shown(stderr: np.ndarray) -> np.ndarray:
        one = replace(result, upsampled=replace(upsampled, stderr=stderr.astype(np.float32)))
        if way == "overlay":
            return np.asarray(one.overlay(fade=True)).astype(int)
        axes = one.plot(figure.Figure().add_subplot(), fade=True)
        return np.rint(255 * np.asarray(axes.images[0].get_array())[..., :3]).astype(int)

    values = result.pixel_map
    assert np.array_equal(shown(0 * values), plain)
    assert np.array_equal(shown(1e9 * np.ones_like(values)), picture)
    assert np.abs(2 * (shown(values) - picture) - (plain - picture)).max() <= 2
    for row in (slice(0, 16), slice(16, None)):  # each pixel by its own error
        some = np.zeros_like(values)
        some[row] = 1e9
        assert np.array_equal(shown(some)[row], picture[row])
        assert not np.array_equal(shown(some), picture)


def test_nothing_fades_by_errors_that_nobody_knows(result):
    certain = replace(result, upsampled=replace(result.upsampled, stderr=None))
    with pytest.raises(ValueError, match="`fade` must be False, because nothing tells how sure"):
        certain.overlay(fade=True)


def test_a_batch_shows_every_picture():
    model, images = seeded(Tower), torch.rand(2, 3, 32, 32)
    found = usu.upsample(torch.rand(2, 4, 4), images, model, [1, 2], preset=chosen(parts=6), evaluations=20)
    assert found.overlay().size == (66, 32)
    assert (np.asarray(found.overlay(fade=True)) != np.asarray(found.overlay())).any()
    assert "2 targets" in repr(found)


def test_the_figure_shows_itself_without_pyplot(result):
    assert result.figure()._repr_png_().startswith(b"\x89PNG")


def test_an_animation_goes_from_the_coarse_map_to_the_pixel_map(result, tmp_path):
    with Image.open(result.animation(tmp_path / "a.gif")) as film:
        assert film.format == "GIF"
        assert film.n_frames > 10
        film.seek(film.n_frames - 1)
        last = np.asarray(film.convert("RGB")).astype(float)
    from usu.plot import overlay, scale_of

    coarse = [usu.interpolate(result.coarse, (32, 32), mode) for mode in ("nearest", "bilinear")]
    scale = scale_of([shares(field) for field in [*coarse, result.pixel_map]])
    assert np.abs(last - overlay(result.picture, result.pixel_map, scale=scale)).mean() < 12, "but for 256 colours"


def test_a_region_is_the_fewest_pixels(result):
    half = result.region()
    mass = result.pixel_map / result.pixel_map.sum()
    assert half.keep.shape == (32, 32)
    assert half.share == pytest.approx(mass[half.keep].sum())
    assert half.share >= 0.5
    assert half.share - mass[half.keep].min() < 0.5, "one pixel less would not do"
    assert mass[half.keep].min() > mass[~half.keep].max()
    top, left, bottom, right = half.box
    assert half.keep[top:bottom, left:right].sum() == half.keep.sum()
    assert half.keep[top].any()
    assert half.keep[:, right - 1].any()


def test_a_region_lies_in_the_files_own_picture(result):
    geometry = Geometry((50, 90), (1.0, 13.0, 49.0, 77.0), (32, 32))
    placed = replace(result, original=np.zeros((50, 90, 3)), geometry=geometry).region(1.0)
    assert placed.keep.shape == (50, 90)
    assert placed.box[1] >= 13


def test_regions_of_nothing_and_of_everything():
    assert region_of(np.zeros((3, 4))).box == (0, 0, 0, 0)
    assert region_of(np.zeros((3, 4))).rle() == {"size": [3, 4], "counts": [12]}
    assert region_of(np.zeros((3, 4))).geojson()["geometry"]["coordinates"] == []
    assert region_of(np.ones((3, 4)), 0.1).area == 1.0, "all are as strong as the last"
    assert region_of(np.ones((3, 4))).rle() == {"size": [3, 4], "counts": [0, 12]}
    assert region_of(np.array([[np.nan, -1.0, 2.0]]), 1.0).keep.tolist() == [[False, False, True]]
    with pytest.raises(ValueError, match="`share` must"):
        region_of(np.ones((3, 4)), 1.5)


def test_outlines_enclose_exactly_the_region():
    """Against counting crossings pixel by pixel; parts with holes, parts in holes, pixels that meet at a corner."""
    path = pytest.importorskip("matplotlib.path").Path
    dice = np.random.default_rng(0)
    for _ in range(60):
        keep = dice.random((dice.integers(1, 10), dice.integers(1, 10))) < dice.random()
        region = usu.Region(keep, 1.0)
        middles = np.stack(np.meshgrid(*(np.arange(n) + 0.5 for n in keep.shape[::-1])), -1).reshape(-1, 2)
        inside = np.zeros(keep.size, dtype=bool)
        for outer, *holes in region.geojson()["geometry"]["coordinates"]:
            part = path(outer).contains_points(middles)
            for hole in holes:
                part &= ~path(hole).contains_points(middles)
            inside |= part
        assert np.array_equal(inside.reshape(keep.shape), keep)
        counts = region.rle()["counts"]
        flat = np.repeat(np.arange(len(counts)) % 2 == 1, counts)
        assert np.array_equal(flat.reshape(keep.shape, order="F"), keep)
