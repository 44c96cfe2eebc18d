"""One line from what people have to a result: pictures of every form, class names, several classes, many pictures."""

from __future__ import annotations

import logging
import warnings

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset

import usu
from tests.chosen import chosen
from tests.small_nets import Tokens, Tower, counted, seeded
from usu.models import Loaded, Preparation

# random weights speak against many classes
pytestmark = pytest.mark.filterwarnings("ignore::usu.errors.UsuWarning")

CLASSES = ("ant", "bee", "cat", "dog", "eel")
PREPARE = Preparation(crop=(32, 32), resize=36, mean=(0.5,) * 3, std=(0.5,) * 3)
FEW = {"preset": chosen("soft", parts=8), "evaluations": 20}
PIXELS = (np.random.default_rng(0).random((48, 60, 3)) * 255).astype(np.uint8)


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    return Loaded("tower", seeded(Tower), PREPARE, CLASSES)


@pytest.fixture
def file(tmp_path):
    Image.fromarray(PIXELS).save(tmp_path / "a.png")
    return tmp_path / "a.png"


@pytest.mark.parametrize("form", ["path", "text", "pillow", "bytes", "floats", "picture"])
def test_a_picture_of_any_form_gives_the_same(loaded, file, form):
    image = {
        "path": lambda: file, "text": lambda: str(file), "pillow": lambda: Image.open(file), "bytes": lambda: PIXELS,
        "floats": lambda: PIXELS / 255, "picture": lambda: usu.models.pictures.read(file),
    }[form]()  # fmt: skip
    found = usu.explain(loaded, image, **FEW)
    tensor, geometry = PREPARE(PIXELS)
    wanted = usu.explain(loaded.model, tensor, picture=found.picture, classes=CLASSES, **FEW)
    assert np.array_equal(found.pixel_map, wanted.pixel_map)
    assert found.label == wanted.label
    assert found.geometry == geometry
    assert np.array_equal(np.rint(255 * found.original), PIXELS)
    assert found.overlay().size == (60, 48)


def test_what_the_model_takes_is_taken_as_it_is(loaded):
    tensor, _ = PREPARE(PIXELS)
    maps = [usu.explain(loaded, one, **FEW).pixel_map for one in (tensor, tensor[None], tensor.numpy())]
    assert np.array_equal(maps[0], maps[1])
    assert np.array_equal(maps[0], maps[2])


def test_a_model_that_does_not_say_is_asked_for(file):
    with pytest.raises(ValueError, match=r"`prepare` must say how a picture becomes .* \(Tower\) does not; got None"):
        usu.explain(seeded(Tower), file)
    with pytest.raises(TypeError, match=r"`prepare` must be .*; got int"):
        usu.explain(seeded(Tower), file, prepare=3)
    given = usu.explain(seeded(Tower), file, prepare=PREPARE, **FEW)
    own = usu.explain(seeded(Tower), file, prepare=lambda pixels: PREPARE(pixels)[0], **FEW)
    assert np.array_equal(given.source.values, own.source.values)
    assert own.geometry.box == (0.0, 0.0, 48.0, 60.0), "nobody said what was cut off"


def test_class_names_are_targets(loaded):
    assert usu.explain(loaded, PIXELS, "dog", **FEW).source.targets == (3,)
    both = usu.explain(loaded, PIXELS, ["eel", 1], **FEW)
    assert (both.source.targets, both.labels) == ((4, 1), ("eel", "bee"))
    with pytest.raises(ValueError, match="`target` must name a class of the model; got 'horse'"):
        usu.explain(loaded, PIXELS, "horse")
    with pytest.raises(ValueError, match="this model has no class names"):
        usu.explain(loaded.model, PREPARE(PIXELS)[0], "dog")


@pytest.mark.parametrize("kind", [Tower, Tokens])
@pytest.mark.parametrize("source", [usu.gradcam, usu.hirescam, usu.layercam])
def test_several_classes_come_from_one_pass(kind, source):
    model, images = seeded(kind), torch.rand(1, 3, 32, 32)
    with counted(model) as seen:
        together = source(model, images, [3, 0, 2], finer=True)
    assert seen == [1]
    assert together.evaluations == 1
    for row, index in enumerate((3, 0, 2)):
        alone = source(model, images, index, layer=together.layer, finer=True)
        assert torch.equal(together.values[row], alone.values[0])
        assert together.goals[row] == alone.goals[0]
        assert [torch.equal(a[row], b[0]) for a, b in zip(together.finer, alone.finer, strict=True)] in ([], [True])


def test_the_likeliest_classes(loaded):
    image = PREPARE(PIXELS)[0]
    order = loaded.model(image[None])[0].argsort(descending=True).tolist()
    assert list(usu.gradcam(loaded.model, image[None], top=3).targets) == order[:3]
    with counted(loaded.model) as seen:
        found = usu.explain(loaded, image, top=3, **FEW)
    assert sum(seen) == 21, "20 evaluations and the source's pass serve all three"
    assert found.labels == tuple(CLASSES[index] for index in order[:3])
    assert found.pixel_map.shape == (3, 32, 32)
    assert list(found.probabilities) == sorted(found.probabilities, reverse=True)
    assert found.overlay().size == (100, 32)
    titles = [axes.get_title() for axes in found.figure().axes]
    assert titles == ["what the model sees", *found.names, "segments", *["coarse map"] * 3]
    for top, words in ((0, "at least 1"), (6, "6")):
        with pytest.raises(ValueError, match=f"`top` must be .*{words}"):
            usu.gradcam(loaded.model, image[None], top=top)
    with pytest.raises(ValueError, match="`top` must go with a single picture"):
        usu.gradcam(loaded.model, image.expand(2, 3, 32, 32), top=2)
    with pytest.raises(ValueError, match="`top` must be None for a map of your own"):
        usu.explain(loaded, image, source=np.ones((2, 2)), top=2)


def test_each_of_several_classes_is_what_it_is_alone(loaded):
    """Effects are fitted class by class, from the same groups."""
    settings = chosen("cell", parts=8, fit="ridge", base="bilinear")
    both = usu.explain(loaded, PIXELS, [1, 3], preset=settings, evaluations=20)
    for row, index in enumerate((1, 3)):
        alone = usu.explain(loaded, PIXELS, index, preset=settings, evaluations=20)
        np.testing.assert_allclose(both.pixel_map[row], alone.pixel_map, rtol=1e-9, atol=1e-12)


def test_one_map_of_your_own_serves_several_classes(loaded):
    found = usu.explain(loaded, PIXELS, ["ant", "cat"], source=np.random.default_rng(0).random((4, 4)), **FEW)
    assert found.pixel_map.shape == (2, 32, 32)
    assert found.labels == ("ant", "cat")


def test_several_classes_are_saved_and_loaded(loaded, tmp_path):
    found = usu.explain(loaded, PIXELS, top=2, **FEW)
    again = usu.load(found.save(tmp_path / "x"))
    assert np.array_equal(again.pixel_map, found.pixel_map)
    assert repr(again) == repr(found)


def test_many_pictures_of_every_form(loaded, tmp_path):
    for name in "ab":
        Image.fromarray(PIXELS).save(tmp_path / f"{name}.png")
    batch = torch.rand(3, 3, 32, 32)
    loader = DataLoader(TensorDataset(batch, torch.arange(3)), batch_size=2)
    for images, count in ((str(tmp_path), 2), ([tmp_path / "a.png", PIXELS], 2), (batch, 3), (loader, 3)):
        found = list(usu.explain_many(loaded, images, "cat", **FEW))
        assert [one.label for one in found] == ["cat"] * count
    alone = usu.explain(loaded, batch[2], "cat", **FEW)
    assert np.array_equal(found[2].pixel_map, alone.pixel_map)
    with pytest.raises(ValueError, match="`images` must be a batch"):
        next(usu.explain_many(loaded, batch[0]))


def test_pictures_are_explained_as_they_are_asked_for(loaded):
    asked = []

    def pictures():
        for number in range(3):
            asked.append(number)
            yield PIXELS

    results = usu.explain_many(loaded, pictures(), **FEW)
    next(results)
    assert asked == [0]


def test_progress_is_told_on_request_and_only_then(loaded, capsys):
    usu.explain(loaded, PIXELS, **FEW)
    assert capsys.readouterr() == ("", "")
    usu.explain(loaded, PIXELS, progress=True, **FEW)
    out, told = capsys.readouterr()
    assert out == ""
    assert told.endswith("] 20 of 20 evaluations\n")
    list(usu.explain_many(loaded, [PIXELS, PIXELS], progress=True, **FEW))
    assert capsys.readouterr()[1].endswith("] 2 of 2 pictures\n")
    seen = []
    usu.explain(loaded, PIXELS, progress=lambda done, total: seen.append((done, total)), **FEW)
    assert seen[-1][0] == seen[-1][1]


def test_a_line_for_the_log_and_one_class_of_warnings(loaded, caplog):
    with caplog.at_level(logging.INFO, logger="usu"), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = usu.explain(loaded, PIXELS, source=np.zeros((2, 2)), **FEW)
    assert caplog.messages == [repr(found)]
    assert {one.category for one in said} == {usu.errors.UsuWarning}


def test_only_public_names_are_listed():
    import usu.cli  # whatever else was imported

    assert dir(usu) == sorted(usu.__all__)
    assert {"explain", "explain_many", "contrast", "load", "Explanation"} <= set(dir(usu))
    assert not {name for name in dir(usu) if name.startswith("_")} - {"__version__"}


def test_contrast_of_classes_and_of_models(loaded):
    both = usu.explain(loaded, PIXELS, ["ant", "eel"], **FEW)
    found = usu.contrast(both)
    assert found.difference.sum() == pytest.approx(0, abs=1e-8)
    assert found.names[0].startswith("ant")
    first, second = (one / one.sum() for one in both.pixel_map)
    assert found.moved == pytest.approx(np.abs(first - second).sum() / 2)
    assert np.maximum(found.difference, 0).sum() / found.difference.size == pytest.approx(found.moved)
    assert f"{100 * found.moved:.0f} % of the evidence lies elsewhere" in repr(found)
    assert found.overlay().size == (32, 32)
    assert "against" in found._repr_html_()
    other = usu.explain(Loaded("other", seeded(Tower, 4), PREPARE, CLASSES), PIXELS, "ant", **FEW)
    mine = usu.explain(loaded, PIXELS, "ant", **FEW)
    assert usu.contrast(mine, other).moved == pytest.approx(usu.contrast(other, mine).moved)
    assert usu.contrast(mine, other).moved > 0
    assert usu.contrast(mine, mine).moved == 0
    with pytest.raises(ValueError, match="`b` must be given"):
        usu.contrast(mine)
    small = usu.explain(loaded.model, torch.rand(3, 24, 24), 0, **FEW)
    with pytest.raises(ValueError, match="`b` must be of the same picture"):
        usu.contrast(mine, small)
