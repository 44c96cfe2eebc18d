from __future__ import annotations

import dataclasses
import errno
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import usu
from tests.chosen import PLAIN, chosen
from usu.forward.digest import digest
from usu.models import Geometry
from usu.operator.interpolate import follow_picture
from usu.results import folder as saving

GEOMETRY = Geometry((50, 90), (1.0, 13.0, 49.0, 77.0), (24, 32))
FILES = ["manifest.json", "maps.npz", "overlay.png", "panel.png"]


def explained(dtype: torch.dtype = torch.float32, **more: object) -> usu.Explanation:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(3, 4, 3, stride=4, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        image = torch.rand(3, 24, 32).to(dtype)
        model.to(dtype)
    if (original := more.pop("original", None)) is not None:  # a picture, which the model takes as this very image
        tensor, geometry = image, more.pop("geometry")
        image, more["prepare"] = original, lambda pixels: (tensor, geometry)
    own = {"target": 1, "preset": chosen("soft", **PLAIN), "evaluations": 12, "classes": ["zero", "Äpfel"], **more}
    return usu.explain(model, image, **own)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def explanation() -> usu.Explanation:
    return explained()


class Canvas:
    """A figure that costs nothing to draw."""

    def savefig(self, file: Path, **_: object) -> None:
        file.write_bytes(b"PNG")


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usu.Explanation, "figure", lambda self: Canvas())


def test_a_result_with_damaged_maps_is_refused(explanation, undrawn, tmp_path):
    folder = explanation.save(tmp_path / "cat")
    whole = (folder / "maps.npz").read_bytes()
    (folder / "maps.npz").write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(usu.errors.UsuError, match="not the one"):
        saving.saved_manifest(folder)
    (folder / "maps.npz").unlink()
    with pytest.raises(usu.errors.UsuError, match="not the one"):
        saving.saved_manifest(folder)
    (folder / "maps.npz").write_bytes(whole)
    assert saving.saved_manifest(folder)["label"] == "Äpfel"


def test_everything_is_there_and_reads_back(explanation, tmp_path):
    folder = explanation.save(tmp_path / "cat")
    assert folder == tmp_path / "cat"
    assert sorted(p.name for p in folder.iterdir()) == FILES
    with np.load(folder / "maps.npz") as maps:
        named = ["coarse", "picture", "pixel_map", "scores", "scores_0", "segments_0", "source_signed", "source_values"]
        assert sorted(maps) == named
        field = follow_picture(torch.from_numpy(maps["scores_0"]), explanation.picture)
        assert np.array_equal(field[0].numpy(), maps["scores"])
        assert len(np.unique(maps["scores_0"])) < len(np.unique(maps["scores"])), "a segment has one score before that"
        assert np.array_equal(maps["coarse"], explanation.coarse)
        assert np.array_equal(maps["pixel_map"], explanation.pixel_map)
        assert np.array_equal(maps["scores"], explanation.upsampled.scores)
        assert np.array_equal(maps["segments_0"], explanation.upsampled.segments[0])
        assert maps["pixel_map"].dtype == np.float64
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    assert manifest == explanation.manifest() | {"maps": digest((folder / "maps.npz").read_bytes())}
    assert saving.saved_manifest(folder) == manifest
    assert manifest["label"] == "Äpfel"
    assert manifest["targets"] == [1]
    assert manifest["evaluations"] == 12
    assert manifest["stop_reason"] == "EVALUATIONS"
    assert manifest["mass_error"] < 1e-12
    assert manifest["source"]["layer"] == explanation.source.layer
    assert {"versions", "settings", "model", "preset", "seconds"} <= manifest.keys()
    with Image.open(folder / "panel.png") as panel:
        panel.load()
        assert min(panel.size) > 200
        assert len(np.unique(np.asarray(panel.convert("L")))) > 50
    assert folder.stat().st_mode & 0o777 == 0o755


@pytest.mark.usefixtures("undrawn")
def test_every_depth_is_written(tmp_path):
    settings = usu.Settings(depth=1, parts=9, threshold=0.0, tolerance=0.0)
    explanation = explained(preset=settings)
    with np.load(explanation.save(tmp_path / "deep") / "maps.npz") as maps:
        assert {"segments_0", "segments_1"} <= set(maps)
        assert maps["segments_1"].max() > maps["segments_0"].max()


@pytest.mark.usefixtures("undrawn")
def test_the_overlay_has_the_size_of_what_the_model_saw(explanation, tmp_path):
    with Image.open(explanation.save(tmp_path / "x") / "overlay.png") as overlay:
        assert (overlay.size, overlay.mode) == ((32, 24), "RGB")


@pytest.mark.usefixtures("undrawn")
def test_the_overlay_has_the_size_of_the_picture_itself(tmp_path):
    original = np.random.default_rng(0).random((50, 90, 3))
    explanation = explained(original=original, geometry=Geometry((50, 90), (1.0, 13.0, 49.0, 77.0), (24, 32)))
    picture, placed = explanation.on_original()
    np.testing.assert_allclose(picture, original, atol=0.5 / 255 + 1e-6)
    assert placed.shape == (50, 90)
    assert np.isnan(placed[:, :13]).all()
    assert np.isfinite(placed[1:49, 13:77]).all()
    with Image.open(explanation.save(tmp_path / "x") / "overlay.png") as overlay:
        assert overlay.size == (90, 50)
        pixels = np.asarray(overlay).astype(float)
    # outside of what the model saw: the picture itself, dimmed
    np.testing.assert_allclose(pixels[:, :13], 255 * 0.7 * original[:, :13], atol=0.9)


@pytest.mark.usefixtures("undrawn")
def test_strings_and_new_parents_will_do(explanation, tmp_path):
    folder = explanation.save(str(tmp_path / "a" / "b" / "c"))
    assert folder == tmp_path / "a" / "b" / "c"
    assert sorted(p.name for p in folder.iterdir()) == FILES
    assert [p.name for p in folder.parent.iterdir()] == ["c"]


@pytest.mark.usefixtures("undrawn")
def test_an_empty_folder_is_filled(explanation, tmp_path):
    (tmp_path / "x").mkdir()
    assert sorted(p.name for p in explanation.save(tmp_path / "x").iterdir()) == FILES


@pytest.mark.parametrize("kind", ["folder", "file", "earlier result", "dangling link"])
@pytest.mark.usefixtures("undrawn")
def test_nothing_is_written_over(explanation, tmp_path, kind):
    place = tmp_path / "x"
    if kind == "folder":
        place.mkdir()
        (place / "thesis.txt").write_text("ten years")
    elif kind == "file":
        place.write_text("ten years")
    elif kind == "dangling link":
        place.symlink_to(tmp_path / "nowhere")
    else:
        explanation.save(place)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    with pytest.raises(FileExistsError) as caught:
        explanation.save(place)
    assert str(caught.value).startswith(f"`directory` must not exist yet, or be empty; got {place}")
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


STEPS = ["maps", "overlay", "panel", "manifest", "move"]
ERRORS = [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()]


def broken(step: str, error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the step is done, then it fails."""

    def savez(file: Path, **arrays: object) -> None:
        file.write_bytes(b"PK")
        raise error

    def save(self: Image.Image, file: Path, **_: object) -> None:
        file.write_bytes(b"PNG")
        raise error

    def dumps(*args: object, **more: object) -> str:
        raise error

    def rename(self: Path, other: Path) -> Path:
        raise error

    class Torn(Canvas):
        def savefig(self, file: Path, **_: object) -> None:
            super().savefig(file)
            raise error

    match step:
        case "maps":
            monkeypatch.setattr(saving.np, "savez_compressed", savez)
        case "overlay":
            monkeypatch.setattr(Image.Image, "save", save)
        case "panel":
            monkeypatch.setattr(usu.Explanation, "figure", lambda self: Torn())
        case "manifest":
            monkeypatch.setattr(saving.json, "dumps", dumps)
        case "move":
            monkeypatch.setattr(Path, "rename", rename)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(("error", "place"), [(ERRORS[0], "x"), (ERRORS[1], "a/b/x")], ids=["full disk", "ctrl-c"])
@pytest.mark.usefixtures("undrawn")
def test_nothing_is_left_behind(explanation, tmp_path, monkeypatch, step, error, place):
    broken(step, error, monkeypatch)
    with pytest.raises(type(error)) as caught:
        explanation.save(tmp_path / place)
    assert caught.value is error
    assert list(tmp_path.rglob("*")) == []


def test_parents_that_were_there_or_are_in_use_stay(explanation, tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    broken("panel", ERRORS[0], monkeypatch)
    with pytest.raises(OSError, match="No space left"):
        explanation.save(tmp_path / "a" / "x")
    assert list(tmp_path.rglob("*")) == [tmp_path / "a"]

    class Neighbour:
        def savefig(self, file: Path, **_: object) -> None:
            (tmp_path / "b" / "mine.txt").write_text("came meanwhile")
            raise ERRORS[0]

    monkeypatch.setattr(usu.Explanation, "figure", lambda self: Neighbour())
    with pytest.raises(OSError, match="No space left"):
        explanation.save(tmp_path / "b" / "c" / "x")
    assert sorted(p.name for p in (tmp_path / "b").iterdir()) == ["mine.txt"]


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was in the folder just before each file, and when it came to its place."""
    seen: list[str] = []
    write, rename = Path.write_text, Path.rename

    def watch_text(self: Path, *args: object, **more: object) -> int:
        seen.append(f"{self.name} after {sorted(p.name for p in self.parent.iterdir())}")
        return write(self, *args, **more)  # type: ignore[arg-type]

    def watch_move(self: Path, other: Path) -> Path:
        seen.append(f"move with {len(list(self.iterdir()))} files to {other.name}")
        assert not other.exists()
        return rename(self, other)

    monkeypatch.setattr(Path, "write_text", watch_text)
    monkeypatch.setattr(Path, "rename", watch_move)
    return seen


@pytest.mark.usefixtures("undrawn")
def test_the_manifest_comes_last_and_the_folder_all_at_once(explanation, tmp_path, written):
    explanation.save(tmp_path / "x")
    assert written == [
        "manifest.json after ['maps.npz', 'overlay.png', 'panel.png']",
        "move with 4 files to x",
    ]


def test_a_figure_can_be_had_without_a_file(explanation):
    figure = explanation.figure()
    titles = [axes.get_title() for axes in figure.axes if axes.get_title()]
    assert titles == ["what the model sees", "coarse map", "bilinear", "USU", "segments, depth 0", "scores, depth 0"]


def same(one: object, two: object, at: str = "result") -> None:
    """Equal to the last bit, whatever it is made of."""
    if isinstance(one, (np.ndarray, torch.Tensor)):
        assert type(one) is type(two), at
        assert (one.dtype, one.shape) == (two.dtype, two.shape), at  # type: ignore[union-attr]
        pair = (value.float() if isinstance(value, torch.Tensor) else value for value in (one, two))
        assert len({np.asarray(value).tobytes() for value in pair}) == 1, at
    elif dataclasses.is_dataclass(one):
        assert type(one) is type(two), at
        for part in dataclasses.fields(one):
            if part.name != "effects":  # the posterior behind the standard errors is not saved
                same(getattr(one, part.name), getattr(two, part.name), f"{at}.{part.name}")
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(two), at  # type: ignore[arg-type]
        for number, (left, right) in enumerate(zip(one, two, strict=True)):  # type: ignore[call-overload]
            same(left, right, f"{at}[{number}]")
    elif isinstance(one, Mapping):
        assert list(one) == list(two), at  # type: ignore[call-overload]
        for name in one:
            same(one[name], two[name], f"{at}[{name}]")  # type: ignore[index]
    else:
        assert one == two, at


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"preset": "soft", "evaluations": 40},  # with standard errors and finer layers
        {"preset": usu.Settings(depth=1, parts=9, threshold=0.0, tolerance=0.0)},
        {"original": np.random.default_rng(0).random((50, 90, 3)), "geometry": GEOMETRY},
        {"original": (np.arange(13500).reshape(50, 90, 3) % 256 / 255).astype(np.float32), "geometry": GEOMETRY},
        {"source": np.random.default_rng(0).random((3, 4))},
        {"target": lambda output: output[:, 1]},
    ],
    ids=["plain", "posterior", "deep", "original", "photograph", "own map", "callable"],
)
@pytest.mark.usefixtures("undrawn")
def test_what_is_loaded_is_what_was_saved(more, tmp_path):
    saved = explained(**more)
    loaded = usu.load(saved.save(tmp_path / "x"))
    same(saved, loaded)
    assert loaded.manifest() == saved.manifest()
    assert repr(loaded) == repr(saved)
    assert np.array_equal(loaded.overlay(), saved.overlay())


def test_half_precision_comes_back(tmp_path):
    saved = explained(dtype=torch.bfloat16)
    assert saved.source.values.dtype == torch.bfloat16
    same(saved, usu.load(saved.save(tmp_path / "x")))


def test_a_photograph_is_stored_as_bytes(tmp_path):
    original = (np.arange(13500).reshape(50, 90, 3) % 256 / 255).astype(np.float32)
    assert saving._bytes(original).dtype == np.uint8
    assert saving._bytes(original.astype(np.float64)).dtype == np.float64
    assert saving._bytes(np.nextafter(original, np.float32(2))).dtype == np.float32


@pytest.mark.usefixtures("undrawn")
def test_other_folders_are_refused_by_name(explanation, tmp_path):
    folder = explanation.save(tmp_path / "x")
    text = (folder / "manifest.json").read_text()
    manifest = json.loads(text)
    assert manifest["schema"] == saving.SCHEMA
    old = {name: value for name, value in manifest.items() if name != "schema"}
    for content, words in (
        (json.dumps(old), r"was written with schema 1 of results \(usu-xai 0\.\d.*this version reads schema 2"),
        (json.dumps(manifest | {"schema": 99}), "was written with schema 99"),
        (json.dumps({"versions": "somebody's"}), "usu-xai of an unknown version"),
        ("[]", "was written with schema None"),
        ('{"a":', r"manifest.json in .* cannot be read"),
        (json.dumps(manifest | {"maps": "0" * 16}), "is not the one its manifest.json speaks of"),
    ):
        (folder / "manifest.json").write_text(content)
        with pytest.raises(usu.errors.UsuError, match=words):
            usu.load(folder)
    (folder / "manifest.json").unlink()
    with pytest.raises(usu.errors.UsuError, match="holds no result of usu"):
        usu.load(folder)
