"""Read image files as tensors in [0, 1], and turn them upright."""

import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Shaped
from PIL import Image, UnidentifiedImageError, features
from PIL.PngImagePlugin import PngImageFile
from torch import Tensor

FORMATS = (
    *("JPEG", "PNG", "TIFF", "BMP", "WEBP", "PPM", "JPEG2000", "GIF"),
    *(("AVIF",) if features.check("avif") else ()),
    *(("HEIF",) if find_spec("pillow_heif") else ()),
)
"""Formats that Pillow may decode, whatever the file's suffix. Its other formats are not photographs, and for one of
them (EPS) it starts an external program."""
HEIF_SUFFIXES = (".heic", ".heif", ".hif")
ORIENTATION = 274
"""EXIF tag: how a viewer has to turn the stored pixels."""
TURNED = (5, 6, 7, 8)
"""Orientations that exchange width and height."""
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
PNG_METADATA = (b"eXIf", b"tEXt", b"zTXt", b"iTXt")
"""Chunks that may hold an orientation."""
EIGHT_BIT = ("RGB", "RGBA", "L", "LA", "P", "CMYK", "YCbCr", "1", "HSV", "LAB", "PA", "RGBX", "La", "RGBa")
"""Modes that Pillow converts to 8-bit RGB without loss of range."""


# What Pillow raises for damaged files, in addition to OSError: its decoders trust the numbers in a header.
_DECODER_ERRORS = (
    *(
        OSError,
        ValueError,
        SyntaxError,
        EOFError,
        TypeError,
        IndexError,
        KeyError,
        OverflowError,
        MemoryError,
    ),
    *(ZeroDivisionError, struct.error, zlib.error, Image.DecompressionBombError),
)


@dataclass(frozen=True)
class ImageHeader:
    """Size of the stored pixels, and the orientation that EXIF gives them."""

    width: int
    height: int
    orientation: int = 1


def read_header(path: Path) -> ImageHeader:
    """Read size and orientation without decoding the pixels; OSError names a file that is not an image."""
    with open_photo(path) as image:
        orientation = read_orientation(image)
        return ImageHeader(*_read_stored_size(image, orientation), orientation)


def read_orientation(image: Image.Image) -> int:
    """Return the EXIF orientation; values that EXIF does not define, such as 0 of some editors, mean 1."""
    orientation = read_exif_tags(image).get(ORIENTATION, 1)
    return orientation if isinstance(orientation, int) and 1 <= orientation <= 8 else 1


def read_exif_tags(image: Image.Image) -> Image.Exif:
    """Read EXIF, decoding the pixels only where EXIF is behind them."""
    # Pillow decodes a whole PNG in search of EXIF behind the pixels, where hardly any program writes it.
    early = isinstance(image, PngImageFile) and not _has_late_metadata(image)
    return Image.Image.getexif(image) if early else image.getexif()


def _has_late_metadata(image: PngImageFile) -> bool:
    """Return whether a PNG has EXIF or text behind its pixels; only the heads of its chunks are read."""
    file = image.fp
    if file is None:
        return False
    place, late = file.tell(), False
    file.seek(len(PNG_SIGNATURE))
    while len(head := file.read(8)) == 8:
        length, kind = struct.unpack(">I4s", head)
        if kind == b"IDAT":
            late = True
        elif late and kind in PNG_METADATA:
            break
        file.seek(length + 4, 1)  # 4: its checksum
    else:
        late = False
    file.seek(place)
    return late


def read_photo_size(path: Path) -> tuple[int, int]:
    """Read width and height of the stored pixels from the file's header."""
    with open_photo(path) as image:
        if image.format != "TIFF":
            return image.size
        return _read_stored_size(image, read_orientation(image))


def _read_stored_size(image: Image.Image, orientation: int) -> tuple[int, int]:
    """Return width and height as stored. Pillow turns TIFF upright by itself, and no other format."""
    if image.format != "TIFF" or orientation not in TURNED:
        return image.size
    image.load()  # versions differ in when they exchange width and height; afterwards all have
    return image.height, image.width


def read_photo(path: Path, orientation: int = 1) -> Float[Tensor, "3 h w"]:
    """Read red, green and blue in [0, 1], turned as an EXIF orientation asks; 1 leaves pixels as stored.

    8 and 16 bits, floats in [0, 1], gray values and palettes are read; transparency is dropped. OSError names a file
    that cannot be read.
    """
    with open_photo(path) as image:
        values = _read_values(path, image)
    return rotate_upright(torch.from_numpy(values).movedim(-1, 0), orientation).contiguous()


def check_decodable(path: Path) -> None:
    """Decode a file as far as needed to know that it is whole and of a kind that is read; OSError names it if not."""
    with open_photo(path) as image:
        if image.format == "JPEG":
            # At an eighth of the size: all bytes are read, which finds truncated files, for a part of the time.
            image.draft(None, (image.width // 8, image.height // 8))
            image.load()
        else:
            _read_values(path, image)


def read_reduced_photo(path: Path, width: int, height: int) -> Float[Tensor, "3 {height} {width}"]:
    """Read a photograph at another size, by averaging; of a large JPEG only the detail that is needed is decoded."""
    with open_photo(path) as image:
        if image.mode in ("RGB", "L"):
            image.draft(image.mode, (width, height))
            small = image.resize((width, height), Image.Resampling.BOX).convert("RGB")
            values = np.asarray(small, dtype=np.float32) / 255
            return torch.from_numpy(values).movedim(-1, 0)
    return torch.nn.functional.interpolate(read_photo(path)[None], (height, width), mode="area")[0]


@contextmanager
def open_photo(path: Path) -> Iterator[Image.Image]:
    """Open a file with Pillow; any failure becomes one OSError with the file's name."""
    if path.is_symlink() and not path.exists():
        raise OSError(f"{path}: a link to nothing; copy the image itself")
    if path.exists() and not path.is_file():
        kind = "a folder" if path.is_dir() else "a pipe or a device"
        raise OSError(f"{path}: {kind}, not an image file")
    try:
        _register_heif()
        # As an open file: of a path Pillow maps the memory, and scrambles 16-bit TIFF that it has to turn.
        with path.open("rb") as file, Image.open(file, formats=FORMATS) as image:
            yield image
    except FileNotFoundError:
        raise OSError(f"{path}: no such image; check its name and folder") from None
    except _DECODER_ERRORS as error:
        if path.suffix.lower() == ".vrs":
            raise OSError(f"{path}: a VRS recording; take its images with `vrs extract-images`") from None
        if path.suffix.lower() in HEIF_SUFFIXES and "HEIF" not in FORMATS:
            raise OSError(
                f"{path}: HEIC photographs need pillow-heif: pip install 'g-ray[heif]', or convert them to JPEG"
            ) from None
        if isinstance(error, UnidentifiedImageError):
            raise OSError(
                f"{path}: cannot be read as an image of {', '.join(FORMATS)}; convert it, or leave it out"
            ) from None
        reason = getattr(error, "strerror", None) or " ".join(str(error).split()) or type(error).__name__
        raise OSError(
            f"{path}: cannot be read as an image ({reason}); copy it again, or leave it out"
        ) from None


@cache
def _register_heif() -> None:
    """Let Pillow read HEIC, if pillow-heif is installed; phones also store it under names that end in .jpg."""
    if "HEIF" in FORMATS:
        import pillow_heif

        pillow_heif.register_heif_opener(thumbnails=False)


def rotate_upright(image: Shaped[Tensor, "c h w"], orientation: int) -> Shaped[Tensor, "c h2 w2"]:
    """Turn and mirror stored pixels as EXIF orientations 1 to 8 ask a viewer to do."""
    if orientation in TURNED:
        image = image.mT
    flipped_axes = {2: (-1,), 3: (-1, -2), 4: (-2,), 6: (-1,), 7: (-1, -2), 8: (-2,)}.get(orientation, ())
    return image.flip(flipped_axes) if flipped_axes else image


def _read_values(path: Path, image: Image.Image) -> np.ndarray:
    """Return stored pixels as float32 [h, w, 3] in [0, 1]."""
    orientation = read_orientation(image)
    values = _convert_values(path, image)
    if image.format != "TIFF" or orientation == 1:
        return values
    # Pillow has turned it upright: turn it back. All turns are their own inverse, but for quarter turns.
    back = {6: 8, 8: 6}.get(orientation, orientation)
    stored = rotate_upright(torch.from_numpy(values).movedim(-1, 0), back)
    return stored.movedim(0, -1).numpy()


def _convert_values(path: Path, image: Image.Image) -> np.ndarray:
    if image.mode in EIGHT_BIT:
        return np.asarray(image.convert("RGB"), dtype=np.float32) / np.float32(255)
    luminance = np.asarray(image)
    white = _find_white(path, image.mode, luminance)
    return np.repeat(luminance.astype(np.float32)[..., None] / np.float32(white), 3, -1)


def _find_white(path: Path, mode: str, luminance: np.ndarray) -> float:
    """Return the value that means white in a gray image of more than 8 bits."""
    low, high = float(luminance.min()), float(luminance.max())
    if mode.startswith("I;16") and low >= 0:
        return 65535.0
    if mode == "I" and low >= 0 and high <= 65535:
        return 65535.0
    if mode == "F" and low >= 0 and high <= 1:
        return 1.0
    raise OSError(
        f"{path}: pixels of mode {mode} with values from {low:g} to {high:g}; "
        "give 8 or 16 bits per channel, or floats between 0 and 1"
    )
