"""Reading picture files: whatever the format, out come upright RGB pixels, or one sentence why not.

Sixteen bits become eight (a network looks at no more), grey becomes three equal channels, transparency is laid on
white, CMYK is converted without a colour profile, an animation gives its first frame, EXIF rotation is applied.
"""

from __future__ import annotations

import glob
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from usu import _checks as check
from usu.errors import UnreadablePictureError
from usu.types import NDArray

if TYPE_CHECKING:
    from PIL import Image

#: What counts as a picture when a whole folder is given. A file named outright may have any suffix.
SUFFIXES = frozenset(
    ".jpg .jpeg .jfif .png .gif .bmp .tif .tiff .webp .avif .ppm .pgm .tga .jp2".split()  # noqa: SIM905
)
_ORIENTATION_TAG = 0x0112
_TRANSPARENT = frozenset({"RGBA", "LA", "PA", "RGBa", "La"})


@dataclass(frozen=True, eq=False)
class Picture:
    """A picture as a person sees it.

    ``pixels`` is H x W x 3, uint8, upright. Its sides are those of ``size`` unless the picture is larger than the
    working limit of `read`; then it is a smaller copy of the same aspect, and ``size`` still tells the truth.
    """

    path: Path
    pixels: NDArray
    #: Height and width of the file's picture, upright.
    size: tuple[int, int]
    #: Pillow's name for what the file holds: ``"RGB"``, ``"L"``, ``"P"``, ``"I;16"``, ``"CMYK"``, ...
    mode: str

    @property
    def unit(self) -> NDArray:
        """The pixels as float32 in [0, 1], as segmenters want them."""
        return np.asarray(self.pixels.astype(np.float32) / np.float32(255))

    @property
    def reduced(self) -> bool:
        """Whether ``pixels`` is a smaller working copy."""
        return tuple(self.pixels.shape[:2]) != self.size


def read(path: str | Path, *, longest: int | None = 4096) -> Picture:
    """The picture in a file, upright, in RGB.

    ``longest`` limits the longer side of the working copy (None: no limit), so that a picture of 100 megapixels does
    not become gigabytes of maps. The size of the file's own picture is kept in ``size``.

    Raises:
        UnreadablePictureError: in one sentence, if the file is missing, damaged, or no picture.
    """
    if longest is not None:
        check.whole_number("longest", longest, least=1)
    path = Path(path)
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise UnreadablePictureError(path, f"it {what}", "Give the path of a picture file.")
    from PIL import Image, UnidentifiedImageError

    # Pillow warns about big pictures, odd EXIF blocks and more; where warnings are errors they must not end the reading
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with Image.open(path) as image:
                return _upright(path, image, longest)
        except UnreadablePictureError:
            raise
        except UnidentifiedImageError:
            raise UnreadablePictureError(path, "it is not a picture in a known format", "Convert it to PNG.") from None
        except Image.DecompressionBombError as error:
            raise UnreadablePictureError(path, "it has too many pixels to open safely", "Shrink it first.") from error
        except MemoryError as error:
            raise UnreadablePictureError(path, "it does not fit into memory", "Shrink it first.") from error
        except PermissionError as error:
            raise UnreadablePictureError(path, "permission was denied", "Check who may read the file.") from error
        except Exception as error:  # decoders raise whatever they like: SyntaxError, struct.error, zlib.error, ...
            reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
            raise UnreadablePictureError(path, f"it cannot be decoded ({reason})", "Is it complete?") from error


def _upright(path: Path, image: Image.Image, longest: int | None) -> Picture:
    """Decode, convert, shrink, turn: in the order that needs the least memory."""
    from PIL import Image, ImageOps

    mode, (width, height) = image.mode, image.size
    scale = 1.0 if longest is None else min(1.0, longest / max(width, height))
    small = (max(1, round(width * scale)), max(1, round(height * scale)))
    if small != image.size:
        # JPEG can decode straight to 1/2, 1/4, 1/8 of the size; other formats ignore this
        image.draft(image.mode, small)
    rgb = _rgb(path, image)
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
    return Picture(path, np.array(rgb), (width, height) if orientation in (5, 6, 7, 8) else (height, width), mode)


def _rgb(path: Path, image: Image.Image) -> Image.Image:
    """Three channels of eight bits."""
    from PIL import Image

    if image.mode == "F" or image.mode.startswith("I"):
        return Image.fromarray(_eight_bits(path, np.asarray(image))).convert("RGB")
    if image.mode in _TRANSPARENT or "transparency" in image.info:
        layer = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")
    return image.convert("RGB")


def _eight_bits(path: Path, values: NDArray) -> NDArray:
    """Grey of 16 bits, or of floating point in [0, 1] or [0, 255], as 8 bits.

    >>> _eight_bits(Path("grey.png"), np.array([0, 257, 65535], np.uint16)).tolist()
    [0, 1, 255]
    """
    low, high = float(values.min()), float(values.max())
    whole = np.issubdtype(values.dtype, np.integer)
    top = 65535.0 if whole else 1.0 if high <= 1 else 255.0
    if not (low >= 0 and high <= top):
        raise UnreadablePictureError(
            path, f"its grey values run from {low:.4g} to {high:.4g}", "Rescale them to 16 bits, or to [0, 1]."
        )
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
