"""From a name to a model: weights, preprocessing, classes; and one sentence when it does not work."""

from __future__ import annotations

import csv
import json
import random
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from skimage.data import chelsea, coffee
from torch import nn

import usu
from usu.errors import MissingExtraError, ModelLoadError
from usu.models import Geometry, Loaded, Preparation, imagenet_classes, load, pictures, place, resolve_target
from usu.models.libraries import processor_preparation
from usu.models.load import load_weights

NET = "import torch\nfrom torch import nn\n\ndef net():\n    return nn.Sequential(nn.Conv2d(3, 2, 1), nn.Flatten())\n"


# --- preparation and the way back ---------------------------------------------------------------------------------


def by_hand(pixels: np.ndarray, resize: int, crop: int, method) -> np.ndarray:
    """Resize everything, then cut out the centre."""
    image = Image.fromarray(pixels)
    scale = resize / min(image.size)
    image = image.resize((int(image.width * scale), int(image.height * scale)), method)
    left, top = round((image.width - crop) / 2), round((image.height - crop) / 2)
    return np.asarray(image.crop((left, top, left + crop, top + crop)))


@pytest.mark.parametrize("resample", ["bilinear", "bicubic"])
@pytest.mark.parametrize("pixels", [chelsea(), coffee()[:, :333], chelsea()[:40, :61]], ids=["wide", "odd", "small"])
def test_preparation_equals_resize_then_crop(pixels, resample):
    prepare = Preparation(resample=resample, mean=(0, 0, 0), std=(1 / 255,) * 3)
    tensor, _ = prepare(pixels)
    expected = by_hand(pixels, 256, 224, Image.Resampling[resample.upper()])
    assert tensor.shape == (3, 224, 224)
    assert tensor.dtype == torch.float32
    assert np.abs(tensor.permute(1, 2, 0).numpy() - expected).max() <= 1.01


def test_normalisation_and_floats():
    pixels = np.full((10, 10, 3), 255, np.uint8)
    tensor, _ = Preparation()(pixels)
    torch.testing.assert_close(
        tensor[:, 5, 5],
        torch.tensor([(1 - m) / s for m, s in zip((0.485, 0.456, 0.406), (0.229, 0.224, 0.225), strict=True)]),
    )
    cat = chelsea()
    torch.testing.assert_close(Preparation()(cat / 255)[0], Preparation()(cat)[0])


@pytest.mark.parametrize("size", [(1, 1), (17, 4001), (4001, 17), (224, 224), (300, 451)])
def test_any_size_can_be_prepared_and_placed(size):
    pixels = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
    tensor, geometry = Preparation()(pixels)
    assert tensor.shape == (3, 224, 224)
    top, left, bottom, right = geometry.box
    assert 0 <= top < bottom <= size[0]
    assert 0 <= left < right <= size[1]
    placed = place(np.ones((224, 224), np.float32), geometry)
    assert placed.shape == size
    np.testing.assert_allclose(placed[np.isfinite(placed)], 1, atol=1e-6)
    seen = np.isfinite(placed).sum()
    assert abs(seen - (bottom - top) * (right - left)) <= 1 + (bottom - top) + (right - left)


def test_a_dot_comes_back_where_it_was():
    """Through the preparation and back, at the picture's size and at twice that."""
    for y, x in [(40, 100), (120, 260), (250, 300)]:
        pixels = np.zeros((300, 451, 3), np.uint8)
        pixels[y - 3 : y + 4, x - 3 : x + 4] = 255
        tensor, geometry = Preparation(mean=(0, 0, 0), std=(1, 1, 1))(pixels)
        for zoom in (1, 2):
            weights = np.nan_to_num(place(tensor[0], geometry, size=(300 * zoom, 451 * zoom)))
            rows, columns = np.indices(weights.shape)
            found = (weights * rows).sum() / weights.sum(), (weights * columns).sum() / weights.sum()
            np.testing.assert_allclose((np.array(found) + 0.5) / zoom - 0.5, (y, x), atol=0.6)


def test_squeezing_shows_the_whole_picture():
    tensor, geometry = Preparation(crop=(32, 64), resize=None)(chelsea())
    assert tensor.shape == (3, 32, 64)
    assert geometry == Geometry.whole((300, 451), (32, 64))
    assert np.isfinite(place(tensor[0], geometry)).all()


def test_a_crop_larger_than_the_resized_picture_is_filled():
    tensor, geometry = Preparation(crop=(64, 200), resize=32)(chelsea())
    assert tensor.shape == (3, 64, 200)
    assert 0 <= geometry.box[0] < geometry.box[2] <= 300


@given(st.integers(1, 400), st.integers(1, 400), st.integers(8, 64), st.floats(0.5, 1))
def test_the_box_is_inside_and_centred(height, width, crop, part):
    geometry = Preparation(crop=(crop, crop), resize=round(crop / part)).geometry((height, width))
    top, left, bottom, right = geometry.box
    assert -1e-9 <= top < bottom <= height + 1e-9
    assert -1e-9 <= left < right <= width + 1e-9
    pixel = max(height, width) / min(height, width) * min(height, width) / crop  # a pixel of the input, in the picture
    assert abs((top + bottom) - height) <= pixel + 1
    assert abs((left + right) - width) <= pixel + 1


@pytest.mark.parametrize(
    ("pixels", "message"),
    [
        (np.zeros((4, 4), np.uint8), "`pixels` must be an array H x W x 3; got 4 x 4"),
        ([[1]], "`pixels` must be an array H x W x 3; got list"),
        (np.full((4, 4, 3), 7.0), r"`pixels` must be uint8, or floating point in \[0, 1\]"),
        (np.full((4, 4, 3), np.nan), r"`pixels` must be uint8"),
        (np.zeros((4, 4, 3), np.int32), r"`pixels` must be uint8"),
    ],
)
def test_bad_pixels(pixels, message):
    with pytest.raises(ValueError, match=message):
        Preparation()(pixels)


def test_place_takes_one_map():
    with pytest.raises(ValueError, match="`values` must be one map"):
        place(torch.zeros(1, 2, 2), Geometry.whole((4, 4), (2, 2)))


# --- classes ------------------------------------------------------------------------------------------------------


def test_imagenet_classes():
    names = imagenet_classes()
    assert len(names) == 1000
    assert (names[0], names[285], names[999].split(",")[0]) == ("tench, Tinca tinca", "Egyptian cat", "toilet tissue")


def test_classes_are_in_the_order_of_the_labels(pictures):
    with (pictures / "imagenet" / "labels.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["name"] not in ("crane", "maillot")]  # each two classes
    assert len(rows) > 190
    assert all(resolve_target(row["name"], imagenet_classes()) == int(row["class"]) for row in rows)


@pytest.mark.parametrize(
    ("text", "index"),
    [
        (7, 7),
        ("7", 7),
        (" 285 ", 285),
        ("tench", 0),
        ("TINCA TINCA", 0),
        ("Egyptian_cat", 285),
        ("egyptian", 285),
        ("tiger cat", 282),
        ("white shark", 2),
        ("goldfis", 1),
    ],
)
def test_targets_by_index_and_name(text, index):
    assert resolve_target(text, imagenet_classes()) == index


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("crane", r"fits 134 \(crane\); 517 \(crane\). Pass the index"),
        ("terrier", "and [0-9]+ more. Pass the index"),
        ("egyptain cat", r"fits none. Close are: 285 \(egyptian cat\)"),
        ("qqqqqqqq", "fits none. Pass the index"),
        ("", "got an empty text"),
        (1000, "from 0 to 999; got 1000"),
        ("-1", "from 0 to 999; got -1"),
    ],
)
def test_targets_that_fit_none_or_several(target, message):
    with pytest.raises(ValueError, match=f"`target` must .*{message}"):
        resolve_target(target, imagenet_classes())


def test_targets_without_names():
    assert resolve_target("12", None) == 12
    with pytest.raises(ValueError, match="this model has no class names"):
        resolve_target("cat", None)
    with pytest.raises(TypeError, match="got float"):
        resolve_target(1.5, None)


# --- weights ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrap", [lambda s: s, lambda s: {"state_dict": {f"module.{k}": v for k, v in s.items()}, "epoch": 3}]
)
def test_weights_of_checkpoints(tmp_path, wrap):
    source, target = nn.Linear(2, 3), nn.Linear(2, 3)
    torch.save(wrap(source.state_dict()), tmp_path / "w.pth")
    load_weights(target, tmp_path / "w.pth")
    assert torch.equal(source.weight, target.weight)


def test_a_prefix_of_the_models_own_stays(tmp_path):
    source, target = (nn.ModuleDict({"model": nn.Linear(2, 3)}) for _ in range(2))
    torch.save(source.state_dict(), tmp_path / "w.pth")
    load_weights(target, tmp_path / "w.pth")
    assert torch.equal(source["model"].weight, target["model"].weight)


def test_safetensors(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    source, target = nn.Linear(2, 3), nn.Linear(2, 3)
    safetensors.save_file(source.state_dict(), tmp_path / "w.safetensors")
    load_weights(target, tmp_path / "w.safetensors")
    assert torch.equal(source.weight, target.weight)
    (tmp_path / "bad.safetensors").write_bytes(b"12")
    with pytest.raises(ModelLoadError, match="damaged"):
        load_weights(target, tmp_path / "bad.safetensors")


@pytest.mark.filterwarnings("ignore")
def test_damaged_weights_are_one_sentence(tmp_path):
    """Cut, changed or made up: they are loaded or refused, and nothing else is raised."""
    dice, path, refused = random.Random(0), tmp_path / "w.pth", []
    for number, whole in enumerate((True, False)):
        torch.save(nn.Linear(2, 3).state_dict(), tmp_path / str(number), _use_new_zipfile_serialization=whole)
    saved = [(tmp_path / str(number)).read_bytes() for number in range(2)]
    made_up = [b"", b"junk", b"\x80", b"(lp0", b"PK\x03\x04"]
    for number in range(120):
        content = bytearray(made_up[number] if number < len(made_up) else saved[number % 2])
        if number >= len(made_up) and number % 3 == 0:
            content = content[: dice.randrange(len(content))]
        elif number >= len(made_up):
            for _ in range(dice.randrange(1, 9)):
                content[dice.randrange(len(content) // (1 + number % 2))] ^= 1 << dice.randrange(8)
        path.write_bytes(content)
        try:
            load_weights(nn.Linear(2, 3), path)
        except ModelLoadError as error:
            refused.append(str(error))
    assert 40 < len(refused) < 120
    assert not any("\n" in sentence for sentence in refused)


def test_weights_that_do_not_fit(tmp_path):
    path = tmp_path / "w.pth"
    with pytest.raises(ModelLoadError, match="does not exist"):
        load_weights(nn.Linear(2, 3), path)
    path.write_bytes(b"no weights")
    with pytest.raises(ModelLoadError, match="cannot be read as one"):
        load_weights(nn.Linear(2, 3), path)
    torch.save(nn.Linear(2, 3), path)
    with pytest.raises(ModelLoadError, match="because they can run code"):
        load_weights(nn.Linear(2, 3), path)
    for content in ({"epoch": 3}, {0: torch.zeros(1)}):
        torch.save(content, path)
        with pytest.raises(ModelLoadError, match="must hold a state dict"):
            load_weights(nn.Linear(2, 3), path)
    torch.save({"weight": torch.zeros(3, 2, dtype=torch.int64), "bias": torch.zeros(3, dtype=torch.float16)}, path)
    with pytest.raises(ModelLoadError, match=r"1 hold another kind of number \(such as weight\)"):
        load_weights(nn.Linear(2, 3), path)
    torch.save({"weight": torch.zeros(4, 2), "extra": torch.zeros(1)}, path)
    model = nn.Linear(2, 3)
    before = model.weight.clone()
    with pytest.raises(ModelLoadError, match=r"1 are missing \(such as bias\), 1 are unknown .* 1 have another shape"):
        load_weights(model, path)
    assert torch.equal(model.weight, before)


# --- names --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def embedded():
    pytest.importorskip("efficientnet_lite_pytorch")
    return load()


def test_the_embedded_network_knows_the_cat_and_the_coffee(embedded):
    assert (embedded.name, embedded.layer, embedded.model.training) == ("efficientnet_lite0", "_bn1", False)
    images = torch.stack([embedded.prepare(picture)[0] for picture in (chelsea(), coffee())])
    with torch.no_grad():
        top = embedded.model(images).argmax(1).tolist()
    assert [embedded.classes[index] for index in top] == ["tiger cat", "espresso"]
    restored = images * 128 + 127
    assert float((restored - restored.round()).abs().max()) < 1e-3, "(pixel - 127) / 128, of whole pixels"


def test_the_embedded_network_on_real_pictures(embedded, request):
    """Every tenth development picture; all 200 of them give 89 %."""
    folder = request.getfixturevalue("pictures") / "imagenet"
    with (folder / "labels.csv").open() as file:
        rows = list(csv.DictReader(file))[::10]
    images = torch.stack([embedded.prepare(pictures.read(folder / "images" / row["file"]).pixels)[0] for row in rows])
    with torch.no_grad():
        top = embedded.model(images).argmax(1).tolist()
    right = sum(index == int(row["class"]) for index, row in zip(top, rows, strict=True))
    assert right >= 0.75 * len(rows)


def test_loading_is_silent_and_leaves_the_random_numbers(embedded, capfd):
    before = torch.get_rng_state()
    load("efficientnet_lite0")
    assert torch.equal(torch.get_rng_state(), before)
    assert capfd.readouterr() == ("", "")


def test_nothing_optional_is_imported_unasked():
    code = "import usu.models.pictures, usu.sources, sys; raise SystemExit(any(m in sys.modules for m in {!r}))"
    unwanted = ["torchvision", "timm", "transformers", "PIL", "onnxruntime", "efficientnet_lite_pytorch", "scipy"]
    assert subprocess.run([sys.executable, "-c", code.format(unwanted)], check=False).returncode == 0


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        NET
        + "from beside import SIDE\n"
        + "def prepared():\n    return net(), lambda pixels: torch.zeros(3, SIDE, SIDE)\n"
        + "def wrong():\n    return 3\n"
        + "def flat():\n    return net(), lambda pixels: torch.zeros(3)\n"
    )
    (tmp_path / "beside.py").write_text("SIDE = 9\n")
    return path


def test_a_function_in_a_file(file):
    path = list(sys.path)
    loaded = load(f"{file}:net")
    assert isinstance(loaded.model, nn.Sequential)
    assert not loaded.model.training
    assert loaded.prepare == Preparation()
    assert sys.path == path
    tensor, geometry = load(f"{file}:prepared").prepare(chelsea())
    assert tensor.shape == (3, 9, 9)
    assert geometry == Geometry.whole((300, 451), (9, 9))


def test_a_file_may_have_dataclasses_with_postponed_annotations(tmp_path):
    head = "from __future__ import annotations\nfrom dataclasses import dataclass\n"
    size = "@dataclass\nclass Size:\n    side: int = 3\n"
    (tmp_path / "mine.py").write_text(head + NET.replace("Conv2d(3", "Conv2d(Size().side") + size)
    assert load(f"{tmp_path}/mine.py:net").model[0].in_channels == 3


def test_a_function_in_a_file_with_weights(file, tmp_path):
    source = load(f"{file}:net").model
    nn.init.constant_(source[0].weight, 0.25)
    torch.save(source.state_dict(), tmp_path / "w.pth")
    assert (load(f"{file}:net", weights=tmp_path / "w.pth").model[0].weight == 0.25).all()


def test_a_function_in_a_file_that_does_not_work(file):
    for name, message in [
        ("absent.py:net", "absent.py does not exist"),
        (f"{file}:absent", "must name a function of mine.py; got 'absent'"),
        (f"{file}:wrong", "returned int"),
    ]:
        with pytest.raises(ModelLoadError, match=message):
            load(name)
    with pytest.raises(ModelLoadError, match="`prepare` must return a tensor C x H x W"):
        load(f"{file}:flat").prepare(chelsea())


def test_onnx(tmp_path):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    tensor = onnx.helper.make_tensor_value_info
    for channels, name in [(3, "net.onnx"), (1, "grey.onnx")]:
        graph = onnx.helper.make_graph(
            [onnx.helper.make_node("GlobalAveragePool", ["x"], ["p"]), onnx.helper.make_node("Flatten", ["p"], ["y"])],
            "net",
            [tensor("x", onnx.TensorProto.FLOAT, ["b", channels, 64, 64])],
            [tensor("y", onnx.TensorProto.FLOAT, ["b", channels])],
        )
        made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
        onnx.save(made, tmp_path / name)
    loaded = load(str(tmp_path / "net.onnx"))
    image, geometry = loaded.prepare(chelsea())
    assert geometry.input == (64, 64)
    torch.testing.assert_close(loaded.model(image[None]), image.mean((1, 2))[None], atol=1e-5, rtol=1e-5)
    assert (loaded.name, loaded.classes, loaded.layer) == ("net.onnx", None, None)
    with pytest.raises(ModelLoadError, match="must take pictures as B x 3 x H x W"):
        load(str(tmp_path / "grey.onnx"))
    with pytest.raises(ModelLoadError, match="does not exist"):
        load(str(tmp_path / "absent.onnx"))
    with pytest.raises(ModelLoadError, match="`weights` must be left out"):
        load(str(tmp_path / "net.onnx"), weights="w.pth")
    (tmp_path / "bad.onnx").write_bytes(b"bad")
    with pytest.raises(ModelLoadError, match=r"bad\.onnx cannot be read as one"):
        load(str(tmp_path / "bad.onnx"))


def test_the_fingerprint_of_an_export_covers_the_files_of_its_weights(tmp_path):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    path, tensor = tmp_path / "net.onnx", onnx.helper.make_tensor_value_info
    prints = []
    for value in (1.0, 2.0):
        weights = onnx.numpy_helper.from_array(np.full((1, 3, 1, 1), value, np.float32), "w")
        graph = onnx.helper.make_graph(
            [onnx.helper.make_node("Mul", ["x", "w"], ["y"])],
            "net",
            [tensor("x", onnx.TensorProto.FLOAT, ["b", 3, 8, 8])],
            [tensor("y", onnx.TensorProto.FLOAT, ["b", 3, 8, 8])],
            [weights],
        )
        made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
        (tmp_path / "far.bin").unlink(missing_ok=True)
        onnx.save(made, path, save_as_external_data=True, location="far.bin", size_threshold=0)
        prints.append((path.read_bytes(), load(str(path)).model.fingerprint()))
    assert prints[0][0] == prints[1][0], "the export itself is the same"
    assert prints[0][1] != prints[1][1]


def test_weights_go_into_a_loaded_model_too(tmp_path):
    (tmp_path / "mine.py").write_text(
        NET
        + "from usu.models import Loaded, Preparation\ndef whole():\n    return Loaded('mine', net(), Preparation())\n"
    )
    torch.save({"0.weight": torch.full((2, 3, 1, 1), 0.25), "0.bias": torch.zeros(2)}, tmp_path / "w.pth")
    loaded = load(f"{tmp_path}/mine.py:whole", weights=tmp_path / "w.pth")
    assert loaded.name == "mine"
    assert (loaded.model[0].weight == 0.25).all()


def test_bad_names():
    with pytest.raises(ValueError, match="`name` must be the name of a model"):
        load(" ")
    with pytest.raises(ModelLoadError, match=r"a folder saved by transformers, with a config\.json; got '/absent'"):
        load("transformers:/absent")


def test_missing_packages(monkeypatch):
    for package in ("torchvision", "timm", "efficientnet_lite_pytorch"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=r"usu-xai\[timm\]"):
        load("timm:resnet18")
    with pytest.raises(MissingExtraError, match=r"usu-xai\[demo\]"):
        load()
    with pytest.raises(ModelLoadError, match="torchvision, where it may come from, is not installed"):
        load("efficientnet_lit0")


def test_a_torchvision_for_another_torch(monkeypatch, tmp_path):
    for name in [name for name in sys.modules if name.split(".")[0] in ("torchvision", "timm")]:
        monkeypatch.delitem(sys.modules, name)
    (tmp_path / "torchvision.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    (tmp_path / "timm.py").write_text("import torchvision")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("resnet18", "torchvision:resnet18", "timm:resnet18"):
        with pytest.raises(ModelLoadError, match=r"does not work with torch .*nms does not exist.*belong together"):
            load(name)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (None, Preparation(crop=(96, 96), resize=None)),
        (
            {"size": {"height": 64, "width": 64}, "image_mean": [0.5] * 3, "image_std": [0.5] * 3, "resample": 3},
            Preparation((64, 64), None, (0.5,) * 3, (0.5,) * 3, "bicubic"),
        ),
        ({"size": {"shortest_edge": 256}, "crop_size": {"height": 224, "width": 224}}, Preparation()),
        ({"size": {"shortest_edge": 224}, "crop_pct": 0.875, "resample": 3}, Preparation(resample="bicubic")),
        ({"size": {"shortest_edge": 384}, "crop_pct": 0.875}, Preparation((384, 384), None)),
        ({"size": 64, "do_normalize": False}, Preparation((64, 64), None, (0.0,) * 3, (1.0,) * 3)),
    ],
)
def test_preprocessor_settings_of_transformers(tmp_path, settings, expected):
    if settings is not None:
        (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    assert processor_preparation(tmp_path, (96, 96)) == expected


def test_a_picture_for_a_model_without_a_preparation_is_one_sentence():
    with pytest.raises(ValueError, match="`prepare` must say how a picture becomes the model's input; got None"):
        usu.explain(Loaded("mine", nn.Identity(), None), np.zeros((8, 8, 3), np.uint8), 0)


def test_a_preparation_that_is_none_is_one_sentence(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("import torch\ndef net():\n    return torch.nn.Identity(), {'mean': 1}\n")
    with pytest.raises(ModelLoadError, match=r"mine\.py:net does not"):
        load(f"{file}:net")
