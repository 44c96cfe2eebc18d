"""Every kind of file a person may hand over: a correct array, or one clear sentence."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from skimage.data import chelsea

from usu.errors import UnreadablePictureError, UsuError
from usu.models.pictures import decode, find, read


@pytest.fixture(scope="module")
def cat() -> np.ndarray:
    return chelsea()[:90, :120]


def saved(tmp_path: Path, image: Image.Image, name: str, **settings: object) -> Path:
    path = tmp_path / name
    image.save(path, **settings)
    return path


def test_rgb_is_returned_as_it_is(tmp_path, cat):
    picture = read(saved(tmp_path, Image.fromarray(cat), "cat.png"))
    np.testing.assert_array_equal(picture.pixels, cat)
    assert picture.size == picture.pixels.shape[:2] == (90, 120)
    assert picture.pixels.dtype == np.uint8
    assert picture.unit.dtype == np.float32
    np.testing.assert_allclose(picture.unit, cat / 255, atol=1e-6)


def test_grey_becomes_three_equal_channels(tmp_path, cat):
    picture = read(saved(tmp_path, Image.fromarray(cat[..., 1]), "grey.png"))
    np.testing.assert_array_equal(picture.pixels, np.repeat(cat[..., 1:2], 3, axis=2))


def test_black_and_white_of_one_bit(tmp_path):
    checker = np.indices((5, 6)).sum(0) % 2 == 0
    picture = read(saved(tmp_path, Image.fromarray(checker), "bits.png"))
    np.testing.assert_array_equal(picture.pixels[..., 0], checker * np.uint8(255))


def test_transparency_is_laid_on_white(tmp_path, cat):
    alpha = np.zeros(cat.shape[:2], np.uint8)
    alpha[:, 60:] = 255
    alpha[:, 30:60] = 51  # one fifth
    picture = read(saved(tmp_path, Image.fromarray(np.dstack([cat, alpha])), "cut.png"))
    assert (picture.pixels[:, :30] == 255).all()
    np.testing.assert_array_equal(picture.pixels[:, 60:], cat[:, 60:])
    expected = 0.2 * cat[:, 30:60] + 0.8 * 255
    assert np.abs(picture.pixels[:, 30:60] - expected).max() <= 1


def test_palette_with_and_without_transparency(tmp_path):
    image = Image.new("P", (3, 1))
    image.putpalette([255, 0, 0, 0, 255, 0, 0, 0, 255])
    image.putdata([0, 1, 2])
    plain = read(saved(tmp_path, image, "plain.png"))
    clear = read(saved(tmp_path, image, "clear.png", transparency=1))
    assert plain.pixels[0].tolist() == [[255, 0, 0], [0, 255, 0], [0, 0, 255]]
    assert clear.pixels[0].tolist() == [[255, 0, 0], [255, 255, 255], [0, 0, 255]]


@pytest.mark.parametrize("name", ["deep.png", "deep.tif"])
def test_grey_of_16_bits_is_scaled_not_cut(tmp_path, name):
    ramp = np.linspace(0, 65535, 256 * 4).round().astype(np.uint16).reshape(4, 256)
    picture = read(saved(tmp_path, Image.fromarray(ramp), name))
    assert picture.pixels.min() == 0
    assert picture.pixels.max() == 255
    np.testing.assert_array_equal(picture.pixels[..., 2], np.rint(ramp / 257).astype(np.uint8))


def test_rgb_of_16_bits(tmp_path):
    values = np.array([[[65535, 32896, 0], [257, 514, 771]]], ">u2")
    rows = b"".join(b"\0" + row.tobytes() for row in values)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 2, 1, 16, 2, 0, 0, 0)
    path = tmp_path / "deep.png"
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    )
    assert read(path).pixels.tolist() == [[[255, 128, 0], [1, 2, 3]]]


@pytest.mark.parametrize("top", [1, 255])
def test_floating_point_grey(tmp_path, top):
    ramp = np.linspace(0, top, 256, dtype=np.float32)[None]
    assert read(saved(tmp_path, Image.fromarray(ramp), "ramp.tif")).pixels[0, :, 0].tolist() == list(range(256))


@pytest.mark.parametrize("values", [[-3.0, 1.0], [0.0, 1e6], [0.0, np.nan]])
def test_grey_without_a_scale_is_refused(tmp_path, values):
    path = saved(tmp_path, Image.fromarray(np.array([values], np.float32)), "odd.tif")
    with pytest.raises(UnreadablePictureError, match=r"grey values run from .* Rescale"):
        read(path)


def test_cmyk(tmp_path):
    inks = np.zeros((8, 24, 4), np.uint8)
    inks[:, 8:16, 3] = 255  # black
    inks[:, 16:, 1:3] = 255  # magenta and yellow
    picture = read(saved(tmp_path, Image.fromarray(inks, "CMYK"), "print.tif"))
    assert [picture.pixels[4, x].tolist() for x in (4, 12, 20)] == [[255] * 3, [0] * 3, [255, 0, 0]]


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", ["png", "jpg", "tif"])
def test_exif_rotation_is_applied(tmp_path, orientation, suffix):
    """The stored pixels are the upright picture put through the inverse of what the tag asks for."""
    upright = np.zeros((16, 32, 3), np.uint8)
    upright[:8, :8] = (255, 0, 0)
    upright[8:, 24:] = (0, 0, 255)
    stored = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.transpose(1, 0, 2),
        6: np.rot90(upright, 1),
        7: upright[::-1, ::-1].transpose(1, 0, 2),
        8: np.rot90(upright, -1),
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = saved(tmp_path, Image.fromarray(np.ascontiguousarray(stored)), f"turned.{suffix}", exif=exif)
    picture = read(path)
    assert picture.size == (16, 32)
    assert picture.pixels.shape == (16, 32, 3)
    near = 40 if suffix == "jpg" else 0  # its colours bleed across the edge
    difference = np.abs(picture.pixels.astype(int) - upright)
    assert difference[2:6, 2:6].max() <= near
    assert difference[10:14, 26:30].max() <= near


def test_damaged_exif_does_not_hide_the_pixels(tmp_path, cat):
    path = saved(tmp_path, Image.fromarray(cat), "cat.jpg", exif=b"Exif\0\0MM\0*\0\0\0\x08\xff\xff garbage")
    assert read(path).pixels.shape == (90, 120, 3)


@pytest.mark.parametrize("size", [(1, 1), (17, 4001), (4001, 17)])
def test_odd_sizes_keep_their_geometry(tmp_path, size):
    values = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
    picture = read(saved(tmp_path, Image.fromarray(values), "odd.png"))
    np.testing.assert_array_equal(picture.pixels, values)
    assert picture.size == size


def test_an_animation_gives_its_first_frame(tmp_path):
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    path = saved(tmp_path, frames[0], "moving.gif", save_all=True, append_images=frames[1:])
    assert read(path).pixels[3, 3].tolist() == [255, 0, 0]


def test_webp(tmp_path, cat):
    picture = read(saved(tmp_path, Image.fromarray(cat), "cat.webp", lossless=True))
    np.testing.assert_array_equal(picture.pixels, cat)


@pytest.mark.parametrize("kind", ["png", "jpg", "gif"])
@pytest.mark.parametrize("part", [0.02, 0.5, 0.9])
def test_truncated_files_get_one_sentence(tmp_path, cat, kind, part):
    path = saved(tmp_path, Image.fromarray(cat), f"cut.{kind}")
    path.write_bytes(path.read_bytes()[: int(part * path.stat().st_size)])
    with pytest.raises(UnreadablePictureError) as caught:
        read(path)
    assert str(caught.value).startswith(f"The picture {path} cannot be read: it ")
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, UsuError)
    assert caught.value.path == path


@pytest.mark.parametrize("content", [b"", b"hello, I am a text", b"<svg xmlns='http://www.w3.org/2000/svg'/>"])
def test_not_a_picture(tmp_path, content):
    path = tmp_path / "text.jpg"
    path.write_bytes(content)
    with pytest.raises(UnreadablePictureError, match="not a picture in a known format"):
        read(path)


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(UnreadablePictureError, match="does not exist"):
        read(tmp_path / "absent.png")
    with pytest.raises(UnreadablePictureError, match="is a folder"):
        read(tmp_path)


@pytest.mark.parametrize("kind", ["jpg", "png"])
def test_a_picture_larger_than_pillow_likes_gets_a_working_copy(tmp_path, kind, monkeypatch):
    """Pillow warns from 89 megapixels on and refuses twice as many; here the limit is 0.6 and the picture has 1.08."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 600_000)
    huge = Image.new("L", (1_200, 900), 30)
    huge.paste(220, (0, 0, 600, 900))
    picture = read(saved(tmp_path, huge, f"huge.{kind}"), longest=400)
    assert picture.size == (900, 1_200)
    assert picture.pixels.shape == (300, 400, 3)
    assert picture.pixels[150, 100].tolist() == [220] * 3
    assert picture.pixels[150, 300].tolist() == [30] * 3


def test_working_limit_is_a_setting_and_follows_rotation(tmp_path, cat):
    exif = Image.Exif()
    exif[0x0112] = 6
    path = saved(tmp_path, Image.fromarray(cat), "cat.jpg", exif=exif)
    picture = read(path, longest=60)
    assert picture.size == (120, 90)
    assert picture.pixels.shape == (60, 45, 3)
    assert read(path, longest=None).pixels.shape == (120, 90, 3)
    with pytest.raises(ValueError, match="`longest`"):
        read(path, longest=0)


def test_a_decompression_bomb_is_refused(tmp_path):
    buffer = io.BytesIO()
    Image.new("1", (1, 1)).save(buffer, "png")
    data = bytearray(buffer.getvalue())
    data[16:24] = struct.pack(">II", 50_000, 50_000)
    data[29:33] = struct.pack(">I", zlib.crc32(bytes(data[12:29])))
    path = tmp_path / "bomb.png"
    path.write_bytes(data)
    with pytest.raises(UnreadablePictureError, match="too many pixels"):
        read(path)


@pytest.fixture
def folder(tmp_path) -> Path:
    for name in ("b.JPG", "a.png", "notes.txt", "._a.png", "below/c.png", "odd[1].png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    return tmp_path


def test_find(folder):
    def names(found: list[Path]) -> list[str]:
        return [str(path.relative_to(folder)) for path in found]

    assert names(find(folder)) == ["a.png", "b.JPG", "odd[1].png"]
    assert names(find([f"{folder}/*.png"])) == ["a.png", "odd[1].png"]
    assert names(find(f"{folder}/**/*.png")) == ["a.png", "below/c.png", "odd[1].png"]
    assert names(find(folder / "odd[1].png")) == ["odd[1].png"]
    assert names(find([folder / "notes.txt"])) == ["notes.txt"], "a file named outright is taken at its word"
    assert names(find([folder / "b.JPG", folder])) == ["b.JPG", "a.png", "odd[1].png"], "once each, in order"


def test_find_says_what_led_to_nothing(folder):
    (folder / "empty").mkdir()
    for entry, why in [("empty", "holds none"), ("*.bmp", "matches none"), ("absent.png", "does not exist")]:
        with pytest.raises(FileNotFoundError, match=f"`paths` must lead to pictures; got .*{why}"):
            find([folder / "a.png", f"{folder}/{entry}"])
    with pytest.raises(ValueError, match="at least one"):
        find([])


def test_bytes_are_read_like_the_file_they_come_from(tmp_path: Path) -> None:
    file = tmp_path / "a.png"
    Image.fromarray(np.arange(48, dtype=np.uint8).reshape(4, 4, 3)).save(file)
    assert np.array_equal(decode(file.read_bytes()).pixels, read(file).pixels)


def test_bytes_of_too_many_pixels_are_refused_before_they_are_decoded() -> None:
    buffer = io.BytesIO()
    Image.new("L", (300, 200)).save(buffer, "PNG")
    damaged = buffer.getvalue()[:60]  # the header is whole, the pixels are not there
    with pytest.raises(UnreadablePictureError, match="300 x 200 pixels, and 59999 are the most"):
        decode(damaged, most=59_999)
    with pytest.raises(UnreadablePictureError, match="cannot be decoded"):
        decode(damaged, most=60_000)


@pytest.mark.parametrize(
    "data", [b"", b"<svg xmlns='http://www.w3.org/2000/svg'/>", b"%!PS-Adobe-3.0 EPSF-3.0\n", b"P6 1 1 255 abc"]
)
def test_bytes_of_other_formats_are_refused(data: bytes) -> None:
    with pytest.raises(UnreadablePictureError, match="not a picture in a known format"):
        decode(data)
