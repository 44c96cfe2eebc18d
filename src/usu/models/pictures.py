"""Pictures: from a file to upright RGB pixels, or one sentence why not; and from there to the model's input.

Sixteen bits become eight (a network looks at no more), grey becomes three equal channels, transparency is laid on
white, CMYK is converted without a colour profile, an animation gives its first frame, EXIF rotation is applied.
"""

from __future__ import annotations

import glob
import math
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

import numpy as np
import torch
from torch import Tensor

from usu._checks import as_numpy, as_tensor, shape, whole_number
from usu.errors import UnreadablePictureError
from usu.types import Array, NDArray

if TYPE_CHECKING:
    from PIL import Image

#: What counts as a picture when a whole folder is given. A file named outright may have any suffix.
SUFFIXES = frozenset(
    ".jpg .jpeg .jfif .png .gif .bmp .tif .tiff .webp .avif .ppm .pgm .tga .jp2".split()  # noqa: SIM905
)
#: What is tried on bytes from strangers. Pillow knows forty more, some of which call other programs.
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF")
#: The longer side of a working copy, so that a picture of 100 megapixels does not become gigabytes of maps.
LONGEST = 4096
_ORIENTATION_TAG = 0x0112
_TRANSPARENT = frozenset({"RGBA", "LA", "PA", "RGBa", "La"})


@dataclass(frozen=True, eq=False)
class Picture:
    """A picture as a person sees it: H x W x 3, uint8, upright; a smaller copy where the file's is beyond a limit."""

    path: Path
    pixels: NDArray
    #: Height and width of the file's own picture, upright.
    size: tuple[int, int]

    @property
    def unit(self) -> NDArray:
        """The pixels as float32 in [0, 1], as segmenters want them."""
        return np.asarray(self.pixels.astype(np.float32) / np.float32(255))


def read(path: str | Path, *, longest: int | None = LONGEST) -> Picture:
    """The picture in a file, upright, in RGB, its longer side at most ``longest`` (None: no limit).

    Raises:
        UnreadablePictureError: in one sentence, if the file is missing, damaged, or no picture.
    """
    if longest is not None:
        whole_number("longest", longest, least=1)
    return opened(Path(path), longest=longest)


def decode(data: bytes, *, longest: int | None = LONGEST, most: int | None = None) -> Picture:
    """The picture in these bytes, as `read` has it of a file; for what comes from strangers.

    Only the formats that browsers and cameras write are tried (``FORMATS``), by their content and never by a name.
    ``most`` limits the pixels: the header tells their number before any of them is decoded.
    """
    return opened(Path("that was sent"), data, longest=longest, most=most)


def opened(path: Path, data: bytes | None = None, *, longest: int | None = LONGEST, most: int | None = None) -> Picture:
    """What `read` and `decode` share; ``path`` is what sentences call it."""
    from PIL import Image, UnidentifiedImageError

    if data is None and not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise UnreadablePictureError(path, f"it {what}", "Give the path of a picture file.")
    # Pillow warns about big pictures, odd EXIF blocks and more; where warnings are errors they must not end the reading
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            Image.init()
            tried = None if data is None else [name for name in FORMATS if name in Image.OPEN]
            with Image.open(path if data is None else BytesIO(data), formats=tried) as image:
                if most is not None and image.width * image.height > most:
                    size = f"it has {image.width} x {image.height} pixels, and {most} are the most"
                    raise UnreadablePictureError(path, size, "Shrink it first.")
                return _upright(path, image, longest)
        except UnreadablePictureError:
            raise
        except Exception as error:  # decoders raise whatever they like: SyntaxError, struct.error, zlib.error, ...
            what = " ".join(str(error).split()).rstrip(".") or type(error).__name__
            reasons = {
                UnidentifiedImageError: ("it is not a picture in a known format", "Convert it to PNG."),
                Image.DecompressionBombError: ("it has too many pixels to open safely", "Shrink it first."),
                MemoryError: ("it does not fit into memory", "Shrink it first."),
                PermissionError: ("permission was denied", "Check who may read the file."),
                Exception: (f"it cannot be decoded ({what})", "Is it complete?"),
            }
            reason = next(told for kind, told in reasons.items() if isinstance(error, kind))
            raise UnreadablePictureError(path, *reason) from error


def taken(image: Image.Image) -> Picture:
    """As `read`, of a Pillow image that is open already."""
    return _upright(Path(getattr(image, "filename", "") or "picture"), image.copy(), LONGEST)


def _upright(path: Path, image: Image.Image, longest: int | None) -> Picture:
    """Decode, convert, shrink, turn: in the order that needs the least memory."""
    from PIL import Image, ImageOps

    width, height = image.size
    scale = 1.0 if longest is None else min(1.0, longest / max(width, height))
    small = (max(1, round(width * scale)), max(1, round(height * scale)))
    if small != image.size:
        # JPEG can decode straight to 1/2, 1/4, 1/8 of the size; other formats ignore this
        image.draft(image.mode, small)
    if image.mode == "F" or image.mode.startswith("I"):
        rgb = Image.fromarray(_eight_bits(path, np.asarray(image))).convert("RGB")
    elif image.mode in _TRANSPARENT or "transparency" in image.info:
        layer = image.convert("RGBA")
        rgb = Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")
    else:
        rgb = image.convert("RGB")
    if rgb.size != small:
        rgb = rgb.resize(small, Image.Resampling.BICUBIC, reducing_gap=2.0)
    # read after decoding: PNG may keep it behind the pixels, TIFF is turned while it loads
    try:
        orientation = int(image.getexif().get(_ORIENTATION_TAG, 1))
    except Exception:  # a damaged EXIF block is no reason to refuse the pixels; it then has no orientation to tell
        orientation = 1
    rgb.info = {}
    rgb.getexif()[_ORIENTATION_TAG] = orientation
    ImageOps.exif_transpose(rgb, in_place=True)
    return Picture(path, np.array(rgb), (width, height) if orientation in (5, 6, 7, 8) else (height, width))


def _eight_bits(path: Path, values: NDArray) -> NDArray:
    """Grey of 16 bits, or of floating point in [0, 1] or [0, 255], as 8 bits.

    >>> _eight_bits(Path("grey.png"), np.array([0, 257, 65535], np.uint16)).tolist()
    [0, 1, 255]
    """
    low, high = float(values.min()), float(values.max())
    top = 65535.0 if np.issubdtype(values.dtype, np.integer) else 1.0 if high <= 1 else 255.0
    if not (low >= 0 and high <= top):
        found = f"its grey values run from {low:.4g} to {high:.4g}"
        raise UnreadablePictureError(path, found, "Rescale them to 16 bits, or to [0, 1].")
    return cast(NDArray, np.rint(values.astype(np.float32) * np.float32(255 / top)).astype(np.uint8))


def find(paths: str | Path | Iterable[str | Path]) -> list[Path]:
    """Picture files from files, folders (their pictures by suffix, sorted, not of folders below) and globs.

    Each file comes once, in the order asked for. A name that exists is that file, even with ``*`` or ``[`` in it.

    Raises:
        FileNotFoundError: when one of ``paths`` leads to nothing.
    """
    asked = [paths] if isinstance(paths, (str, Path)) else list(paths)
    if not asked:
        raise ValueError("`paths` must name at least one picture; got none. Give a file, a folder or a glob.")
    return list(dict.fromkeys(file for entry in asked for file in _expand(entry)))


def _expand(entry: str | Path) -> list[Path]:
    path = Path(entry).expanduser()
    if path.is_file():
        return [path]
    if path.is_dir():
        files, why = list(path.iterdir()), "holds none. For folders below use a glob such as 'folder/**/*.jpg'"
    elif glob.has_magic(str(path)):
        files, why = [Path(name) for name in glob.glob(str(path), recursive=True)], "matches none"  # noqa: PTH207 - absolute patterns
    else:
        files, why = [], "does not exist"
    if found := sorted(file for file in files if looks_like_picture(file)):
        return found
    raise FileNotFoundError(f"`paths` must lead to pictures; got {entry}, which {why}.")


def looks_like_picture(file: Path) -> bool:
    """By its suffix; "._cat.jpg" and the like are notes of an operating system, not pictures."""
    return file.suffix.lower() in SUFFIXES and not file.name.startswith(".") and file.is_file()


Resample: TypeAlias = Literal["nearest", "bilinear", "bicubic", "lanczos"]

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Geometry:
    """The part of the picture that the model sees.

    ``box`` is (top, left, bottom, right) in pixels of a picture of ``picture`` = (H, W); the model sees it as ``input``
    = (h, w). A box that reaches beyond the picture means a border was added.
    """

    picture: tuple[int, int]
    box: tuple[float, float, float, float]
    input: tuple[int, int]

    @classmethod
    def whole(cls, picture: tuple[int, int], input: tuple[int, int]) -> Geometry:
        """The model sees all of the picture, squeezed into its input."""
        return cls(picture, (0.0, 0.0, float(picture[0]), float(picture[1])), input)


#: Pixels (H, W, 3), uint8 or float in [0, 1], to the model's input (C, h, w) and where that sits in the picture.
Prepare: TypeAlias = Callable[[NDArray], tuple[Tensor, Geometry]]


@dataclass(frozen=True)
class Preparation:
    """Resize, crop the centre, normalise: (pixel / 255 - mean) / std, as most image classifiers want it.

    The shorter side becomes ``resize`` and the centre ``crop`` is cut out. ``resize=None`` squeezes the whole
    picture into ``crop`` instead.
    """

    crop: tuple[int, int] = (224, 224)
    resize: int | None = 256
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    resample: Resample = "bilinear"

    def __call__(self, pixels: NDArray) -> tuple[Tensor, Geometry]:
        """Pixels (H, W, 3), uint8 or float in [0, 1], to (3, h, w) in float32 and its place in the picture."""
        whole = as_bytes(pixels)
        geometry = self.geometry(whole.shape[:2])
        scaled = torch.from_numpy(_cut(whole, geometry, self.resample)).permute(2, 0, 1).float() / 255
        mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (self.mean, self.std))
        return ((scaled - mean) / std).contiguous(), geometry

    def geometry(self, size: tuple[int, ...]) -> Geometry:
        """Where the input sits in a picture of this size.

        >>> Preparation().geometry((512, 1024)).box  # half the size, then 16 of 256 rows and 144 of 512 columns off
        (32.0, 288.0, 480.0, 736.0)
        """
        height, width = size[0], size[1]
        if self.resize is None:
            return Geometry.whole((height, width), self.crop)
        # sides are whole pixels after resizing (rounded down, as torchvision does), so each has a scale of its own
        short = min(height, width)
        resized = (self.resize * height // short, self.resize * width // short)
        if resized[0] < self.crop[0] or resized[1] < self.crop[1]:
            # a crop larger than the resized picture: enlarge just enough instead of adding a border
            scale = max(self.crop[0] / height, self.crop[1] / width)
            resized = (max(self.crop[0], round(height * scale)), max(self.crop[1], round(width * scale)))
        top, left = round((resized[0] - self.crop[0]) / 2), round((resized[1] - self.crop[1]) / 2)
        rows, columns = height / resized[0], width / resized[1]
        box = (top * rows, left * columns, (top + self.crop[0]) * rows, (left + self.crop[1]) * columns)
        return Geometry((height, width), box, self.crop)


def place(values: Array, geometry: Geometry, *, size: tuple[int, int] | None = None) -> NDArray:
    """A map at the model's input resolution, laid where it belongs in the picture; NaN where the model saw nothing.

    For display: values are interpolated (bilinear, averaged when shrinking), so densities are kept and mass is not.
    ``size`` is that of the picture shown (default: of the pixels that were prepared).

    >>> place(np.ones((2, 2), np.float32), Geometry((2, 4), (0, 1, 2, 3), (2, 2)))
    array([[nan,  1.,  1., nan],
           [nan,  1.,  1., nan]], dtype=float32)
    """
    field = as_tensor("values", values)
    if field.ndim != 2:
        raise ValueError(f"`values` must be one map, h x w; got {shape(field)}.")
    return placed(as_numpy(field), geometry, size)


def placed(field: NDArray, geometry: Geometry, size: tuple[int, int] | None = None) -> NDArray:
    """`place`, of one map (h, w)."""
    height, width = size or geometry.picture
    rows, columns = height / geometry.picture[0], width / geometry.picture[1]
    top, left, bottom, right = (v * f for v, f in zip(geometry.box, (rows, columns, rows, columns), strict=True))
    (y0, y1), (x0, x1) = _pixels_of(top, bottom), _pixels_of(left, right)
    one = torch.from_numpy(np.array(field, np.float32))[None, None]
    laid = torch.nn.functional.interpolate(one, (y1 - y0, x1 - x0), mode="bilinear", antialias=True)[0, 0]
    out = torch.full((height, width), math.nan)
    inside = (slice(max(y0, 0), min(y1, height)), slice(max(x0, 0), min(x1, width)))
    out[inside] = laid[inside[0].start - y0 : inside[0].stop - y0, inside[1].start - x0 : inside[1].stop - x0]
    return out.numpy()


def _pixels_of(low: float, high: float) -> tuple[int, int]:
    """An interval on whole pixels, at least one of them."""
    start = round(low) if round(high) > round(low) else math.floor((low + high) / 2)
    return start, max(round(high), start + 1)


def prepared(picture: Picture, prepare: Prepare | None) -> tuple[Tensor, Geometry, NDArray]:
    """The model's input, how it sits in the picture, and the same part as a person sees it."""
    if prepare is None:  # of a `Loaded` of somebody's own
        raise ValueError("`prepare` must say how a picture becomes the model's input; got None. Or hand in a tensor.")
    tensor, geometry = prepare(picture.pixels)
    return tensor, geometry, seen(picture.pixels, geometry)


def seen(pixels: NDArray, geometry: Geometry) -> NDArray:
    """The part of a picture (H x W x 3, bytes or [0, 1]) that the model sees, at the size it sees it, in [0, 1]."""
    return np.asarray(_cut(as_bytes(pixels), geometry, "bicubic").astype(np.float32) / np.float32(255))


def _cut(pixels: NDArray, geometry: Geometry, resample: Resample) -> NDArray:
    """The box of the picture at the input's size. Only the box is computed: 17 x 4001 costs no more than a square."""
    from PIL import Image

    top, left, bottom, right = geometry.box
    method, size = Image.Resampling[resample.upper()], (geometry.input[1], geometry.input[0])
    return np.array(Image.fromarray(np.ascontiguousarray(pixels)).resize(size, method, box=(left, top, right, bottom)))


def as_bytes(pixels: NDArray) -> NDArray:
    """Eight bits, because that is what networks were trained on and what Pillow resizes fast."""
    if not isinstance(pixels, np.ndarray) or pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.size == 0:
        got = " x ".join(map(str, pixels.shape)) if isinstance(pixels, np.ndarray) else type(pixels).__name__
        raise ValueError(f"`pixels` must be an array H x W x 3; got {got}. Read files with usu.models.pictures.read.")
    if pixels.dtype == np.uint8:
        return pixels
    if not np.issubdtype(pixels.dtype, np.floating) or not (pixels.min() >= 0 and pixels.max() <= 1):
        got = f"{pixels.dtype} from {pixels.min():.4g} to {pixels.max():.4g}"
        raise ValueError(f"`pixels` must be uint8, or floating point in [0, 1]; got {got}.")
    return cast(NDArray, np.rint(pixels * 255).astype(np.uint8))
