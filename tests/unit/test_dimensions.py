"""Signals, volumes and videos: what is handed in, what is refused, and what the results show."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import usu
from tests.chosen import chosen
from usu.forward.calls import convolution_dims
from usu.inputs import dims_of, displayable
from usu.plot.lattices import in_a_row, slices_of

pytestmark = pytest.mark.filterwarnings("ignore::usu.errors.UsuWarning")
FEW = {"preset": chosen("soft", parts=8), "evaluations": 24}
SIZES = {1: (64,), 2: (16, 20), 3: (8, 12, 10)}


def net(dims: int, channels: int = 2) -> nn.Sequential:
    conv = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dims - 1]
    pool = (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)[dims - 1]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(
            conv(channels, 4, 3, padding=1), nn.ReLU(), conv(4, 4, 3, stride=2, padding=1), nn.ReLU(), pool(1),
            nn.Flatten(), nn.Linear(4, 3),
        ).eval()  # fmt: skip


def given(dims: int, channels: int = 2) -> Tensor:
    return torch.rand(channels, *SIZES[dims], generator=torch.Generator().manual_seed(0))


def brightness(batch: Tensor) -> Tensor:
    return batch.flatten(1).mean(1, keepdim=True)


@pytest.mark.parametrize(
    ("shape", "model", "dims"),
    [
        ((2, 9), None, 1),
        ((2, 9), net(1), 1),
        ((3, 9, 9), net(1), 1),
        ((3, 9, 9), net(2), 2),
        ((3, 9, 9), None, 2),
        ((3, 9, 9), brightness, 2),
        ((3, 9, 9, 9), net(2), 2),
        ((3, 9, 9, 9), net(3), 3),
        ((3, 9, 9, 9), nn.Flatten(), 2),
        ((2, 3, 9, 9, 9), None, 3),
        ((2, 3, 9, 9, 9), net(2), 3),
        ((3, 9, 9), net(3), 2),
        ((1, 3, 9), nn.DataParallel(net(1)), 1),
    ],
    ids=range(13),
)
def test_the_first_convolution_decides_what_dimensions_leave_open(shape, model, dims) -> None:
    assert dims_of(torch.zeros(shape), model) == dims


def test_the_first_convolution_is_found() -> None:
    assert [convolution_dims(net(dims)) for dims in (1, 2, 3)] == [1, 2, 3]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch thinks of giving it up
        assert convolution_dims(torch.jit.trace(net(1), torch.zeros(1, 2, 9))) == 1
    assert convolution_dims(nn.Linear(2, 2)) is None
    assert convolution_dims(brightness) is None


@pytest.mark.parametrize("dims", [1, 3])
def test_alone_in_a_batch_and_as_an_array_it_is_the_same_map(dims: int) -> None:
    model, image = net(dims), given(dims)
    alone = usu.explain(model, image, 1, **FEW)
    assert alone.pixel_map.shape == SIZES[dims]
    for other in (image[None], image.numpy()):
        np.testing.assert_array_equal(usu.explain(model, other, 1, **FEW).pixel_map, alone.pixel_map)
    (first, second) = usu.explain_many(model, torch.stack([image, image]), 1, **FEW)
    np.testing.assert_array_equal(first.pixel_map, alone.pixel_map)
    np.testing.assert_array_equal(second.pixel_map, alone.pixel_map)
    coarse = usu.gradcam(model, image[None], 1, finer=True)
    one = usu.upsample(coarse, image, model, **FEW)
    batch = usu.upsample(coarse, image[None], model, **FEW)
    assert torch.equal(batch.pixel_map[0], one.pixel_map)
    assert (one.dims, batch.dims) == (dims, dims)
    handed_in = usu.explain(model, image, 1, source=coarse.values[0], **FEW)
    assert handed_in.coarse.shape == coarse.values[0].shape


def test_a_function_of_signals_needs_no_convolution() -> None:
    signal = torch.zeros(1, 40)
    signal[0, 20:] = 1
    found = usu.upsample(torch.ones(2), signal, brightness, 0, evaluations=40)
    assert found.pixel_map.shape == (40,)
    assert float(found.pixel_map[:20].sum()) == pytest.approx(20, rel=1e-5)  # cells keep their mass
    with pytest.raises(ValueError, match=r"`coarse` must be l or T x l for this `image`; got 2 x 2 x 2"):
        usu.upsample(torch.ones(2, 2, 2), signal, brightness, 0)
    with pytest.raises(ValueError, match=r"`coarse` must be no finer than `image` \(40\); got 41"):
        usu.upsample(torch.ones(41), signal, brightness, 0)
    volume = torch.rand(1, 1, 4, 5, 6)
    found = usu.upsample(torch.ones(1, 2, 2, 2), volume, brightness, 0, evaluations=40)
    assert found.pixel_map.shape == (1, 4, 5, 6)


def test_what_does_not_fit_gets_one_sentence() -> None:
    with pytest.raises(ValueError, match=r"batch of pictures, B x C x H x W; got 2 x 16 x 20\. Add a dimension"):
        usu.gradcam(net(2), given(2))
    with pytest.raises(ValueError, match=r"batch of volumes, .*; got 2 x 8 x 12 x 10\. Add a dimension"):
        usu.gradcam(net(3), given(3))
    with pytest.raises(ValueError, match=r"batch of signals, .*; got 2 x 64\. Add a dimension"):
        usu.gradcam(net(1), given(1))
    with pytest.raises(ValueError, match="`image` must be one signal, C x L; got 3 x 2 x 64"):
        usu.explain(net(1), torch.rand(3, 2, 64))
    with pytest.raises(ValueError, match="`image` must be one signal, C x L; got 64"):
        usu.explain(net(1), torch.rand(64))
    with pytest.raises(ValueError, match="`image` must be one volume, C x D x H x W; got 1 x 1 x 2 x 8 x 8 x 8"):
        usu.explain(net(3), torch.rand(1, 1, 2, 8, 8, 8))
    with pytest.raises(ValueError, match="`source` must be one coarse map, d x h x w; got 2 x 2"):
        usu.explain(net(3), given(3), source=np.ones((2, 2)))
    with pytest.raises(ValueError, match=r"`picture` must be the size and then channels.*\(64\)"):
        usu.upsample(torch.ones(4), given(1), net(1), picture=np.zeros((60, 2)))
    with pytest.raises(ValueError, match="for Felzenszwalb; got"):
        usu.segment.Felzenszwalb()(np.zeros((3, 3, 3, 1)), 2)
    with pytest.raises(ValueError, match=r"`cells` must be those of `coarse` \(3\); got the cells of a map of 2"):
        usu.redistribute(torch.ones(3), torch.ones(4), cells=usu.operator.cells.boxes((2,), (4,)))
    with pytest.raises(ValueError, match=r"`cells` must have .* `scores` \(4\) ends with; got 1 x 4"):
        usu.redistribute(torch.ones(2), torch.ones(4), cells=torch.tensor([[0, 0, 1, 1]]))


@pytest.mark.parametrize("dims", [1, 3])
@pytest.mark.parametrize("targets", [1, [0, 2]])
def test_results_show_themselves_and_come_back_from_disk(dims: int, targets: object, tmp_path: Path) -> None:
    found = usu.explain(net(dims), given(dims), targets, **FEW)
    assert found._repr_png_().startswith(b"\x89PNG")
    assert "data:image" in found._repr_html_()
    assert isinstance(found.overlay(), Image.Image)
    for kind in ("overlay", "panel", "scores", "stderr"):
        from matplotlib.figure import Figure

        axes = Figure().add_subplot()
        assert found.plot(axes, kind) is axes
        assert axes.get_title()
    if dims == 3:
        assert "slices" in axes.get_xlabel()
    loaded = usu.load(found.save(tmp_path / "result"))
    for name in ("pixel_map", "coarse", "stderr", "scores", "picture"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(found, name))
    assert loaded._repr_png_() == found._repr_png_()
    region = found.region(0.5)
    assert region.keep.shape == SIZES[dims]
    assert len(region.box) == 2 * dims
    with pytest.raises(ValueError, match="`keep` must be H x W to have outlines"):
        region.geojson()
    if dims == 3:
        with pytest.raises(ValueError, match="`keep` must be H x W or L to have run lengths; got D x H x W"):
            region.rle()
    else:
        assert sum(region.rle()["counts"]) == region.keep.size
    if isinstance(targets, list):
        return
    with Image.open(found.animation(tmp_path / "map.gif")) as image:
        assert image.n_frames > 10
    assert usu.contrast(found, loaded).moved == 0


def test_a_signal_s_figure_has_its_samples_and_its_colours() -> None:
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure

    found = usu.explain(net(1, 1), given(1, 1), 1, **FEW)
    axes = found.plot(Figure().add_subplot())
    outline, coloured = [one for one in axes.collections if isinstance(one, LineCollection)]
    assert len(coloured.get_segments()) == 63
    assert len(np.unique(coloured.get_colors(), axis=0)) > 10
    assert len(np.unique(outline.get_colors(), axis=0)) == 1
    assert axes.get_xlim() == (-0.5, 63.5)
    np.testing.assert_allclose([line[0][1] for line in coloured.get_segments()], found.picture[:-1, 0], atol=1e-6)


def test_slices_follow_the_mass() -> None:
    field = np.zeros((20, 2, 2))
    field[5], field[14] = 3.0, 1.0
    assert slices_of([field], 4) == [5, 14]
    assert slices_of([field, np.flip(field, 0)], 4) == [5, 14]
    assert slices_of([np.zeros((6, 1, 1))], 3) == [0, 2, 4]
    row = in_a_row(np.arange(24.0).reshape(3, 2, 4), [0, 2], between=-1)
    assert row.tolist() == [[0, 1, 2, 3, -1, 16, 17, 18, 19], [4, 5, 6, 7, -1, 20, 21, 22, 23]]


def test_what_segments_see_keeps_the_channels_of_a_signal() -> None:
    assert displayable(torch.rand(12, 50)).shape == (50, 12)
    assert displayable(torch.rand(64, 50)).shape == (50, 1)
    assert displayable(torch.rand(1, 4, 5, 6)).shape == (4, 5, 6, 1)
    assert displayable(torch.rand(5, 6, 7)).shape == (6, 7, 3)
    shown = displayable(torch.randn(2, 30))
    assert (float(shown.min()), float(shown.max())) == (0.0, 1.0)


def test_windows_end_where_a_signal_changes() -> None:
    picture = np.zeros((60, 1))
    picture[13:34] = 1.0
    labels = usu.segment.Slic(compactness=1.0)(picture, 6)
    borders = set((np.flatnonzero(np.diff(labels)) + 1).tolist())
    assert {13, 34} <= borders
    assert usu.segment.Tiles()(picture, 4).tolist() == np.repeat(np.arange(4), 15).tolist()
    coloured = np.repeat(picture, 3, 1)  # three channels of a signal are no colours
    np.testing.assert_array_equal(usu.segment.Slic(compactness=1.0)(coloured, 6) >= 0, True)


def test_supervoxels_follow_a_ball() -> None:
    place = np.stack(np.meshgrid(*[np.arange(12)] * 3, indexing="ij"))
    ball = ((place - 6) ** 2).sum(0) < 9
    labels = usu.segment.Slic(compactness=1.0)(ball[..., None].astype(float), 20)
    inside, outside = set(labels[ball].tolist()), set(labels[~ball].tolist())
    assert not inside & outside


def test_watershed_knows_every_dimension() -> None:
    pytest.importorskip("higra")
    for dims in (1, 3):
        picture = np.zeros((*SIZES[dims], 1))
        picture[SIZES[dims][0] // 2 :] = 1.0
        labels = usu.segment.Watershed()(picture, 2)
        assert labels.max() == 1
        assert len(np.unique(labels[: SIZES[dims][0] // 2])) == 1
    assert usu.segment.Felzenszwalb()(np.zeros((9, 1)), 2).shape == (9,)


def test_tokens_over_a_signal_and_a_volume_are_found() -> None:
    from usu.sources.tracing import trace_tokens

    for size, patch in (((12,), 3), ((4, 6, 8), 2)):
        image = torch.rand(1, 2, *size, requires_grad=True)
        pool = (nn.functional.avg_pool1d, None, nn.functional.avg_pool3d)[len(size) - 1]
        tokens = pool(image, patch).flatten(2).mT
        tokens = torch.cat([torch.zeros(1, 2, 2), tokens], 1)
        grid = tuple(n // patch for n in size)
        assert trace_tokens(tokens, [image]) == (True, (grid, 2, 0))


def test_auto_stops_for_signals_too() -> None:
    found = usu.upsample(
        torch.ones(4), given(1), net(1), 1, preset=chosen("cell", parts=8, evaluations="auto", stability=0.0)
    )
    assert found.evaluations < 300
    assert found.stop_reason.name == "STABLE"
