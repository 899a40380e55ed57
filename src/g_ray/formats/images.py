"""Photographs from disk.

Pixels are taken as they are stored: calibrations speak of stored pixels, so the orientation tag of EXIF is not applied.
Transparency is dropped.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Shaped
from PIL import Image
from torch import Tensor

from g_ray.cameras.base import Camera
from g_ray.runtime.files import atomic_path

EIGHT_BIT = ("RGB", "RGBA", "L", "LA", "P", "CMYK", "YCbCr")


def read_photo_size(path: Path) -> tuple[int, int]:
    """Width and height, from the file's header."""
    with open_photo(path) as image:
        return image.size


def read_photo(path: Path) -> Float[Tensor, "3 h w"]:
    """Red, green and blue in [0, 1]."""
    with open_photo(path) as image:
        mode, pixels = image.mode, np.asarray(image.convert("RGB"))
    if mode not in EIGHT_BIT:
        raise OSError(f"{path}: pixels of mode {mode}; give an image with 8 bits per channel")
    return torch.from_numpy(pixels.copy()).movedim(-1, 0).to(torch.float32) / 255


@contextmanager
def open_photo(path: Path) -> Iterator[Image.Image]:
    """Whatever Pillow has to say about a file becomes one OSError with its name."""
    try:
        with Image.open(path) as image:
            yield image
    except FileNotFoundError:
        raise OSError(f"{path}: no such image; check its name and folder") from None
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split()) or type(error).__name__
        raise OSError(
            f"{path}: cannot be read as an image ({reason}); copy it again, or leave it out"
        ) from None


# Pixels of a photograph as red, green and blue in [0, 1], whatever their depth, and the right way up.


ORIENTATION = 274
"""EXIF's tag: how a viewer has to turn the stored pixels."""
TURNED = (5, 6, 7, 8)
"""Orientations that exchange width and height."""


def read_pixels(path: Path, orientation: int = 1) -> Float[Tensor, "3 h w"]:
    """8 and 16 bits, floats in [0, 1], grey, palettes and transparency (which is dropped); OSError names the file."""
    with open_photo(path) as image:
        values = _read_values(path, image)
    return rotate_upright(torch.from_numpy(values).movedim(-1, 0), orientation).contiguous()


def rotate_upright(image: Shaped[Tensor, "c h w"], orientation: int) -> Shaped[Tensor, "c h2 w2"]:
    """What EXIF's orientations 1 to 8 ask a viewer to do."""
    if orientation in TURNED:
        image = image.mT
    across = {2: (-1,), 3: (-1, -2), 4: (-2,), 6: (-1,), 7: (-1, -2), 8: (-2,)}.get(orientation, ())
    return image.flip(across) if across else image


def _read_values(path: Path, image: Image.Image) -> np.ndarray:
    if image.mode in EIGHT_BIT or image.mode in ("1", "HSV", "LAB", "PA", "RGBX", "La", "RGBa"):
        return np.asarray(image.convert("RGB"), dtype=np.float32) / np.float32(255)
    luminance = np.asarray(image)
    top = _find_full_scale(path, image.mode, luminance)
    return np.repeat(luminance.astype(np.float32)[..., None] / np.float32(top), 3, -1)


def _find_full_scale(path: Path, mode: str, luminance: np.ndarray) -> float:
    """Grey images of more than 8 bits: the value that means white."""
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


# Photographs into a result's folder: upright, 8 bits, the size that their camera takes.


PhotoLike = Path | Float[Tensor, "3 _ _"]
"""A file that can be taken as it is, or red, green and blue in [0, 1]."""

EXIF_ORIENTATION = 0x0112
JPEG_QUALITY = 95


def store_photo(photo: PhotoLike, path: Path, camera: Camera) -> None:
    """A file is copied bit by bit if it is upright and of the right kind, and encoded anew if not."""
    if isinstance(photo, Path):
        if photo.absolute() == path.absolute():
            return
        _check_size(path, camera, *read_photo_size(photo))
        if _can_copy(photo, path):
            with atomic_path(path) as scratch:
                shutil.copyfile(photo, scratch)
            return
        photo = read_photo(photo)
    _check_size(path, camera, photo.shape[2], photo.shape[1])
    pixels = (255 * photo.clamp(0, 1)).round().byte().movedim(0, -1).numpy(force=True)
    with atomic_path(path) as scratch:
        Image.fromarray(pixels).save(scratch, quality=JPEG_QUALITY)  # formats without loss ignore it


def _can_copy(photo: Path, path: Path) -> bool:
    with Image.open(photo) as image:
        if image.getexif().get(EXIF_ORIENTATION, 1) != 1:
            raise ValueError(f"{photo} is stored turned (EXIF orientation); give its upright pixels instead")
        return image.mode == "RGB" and photo.suffix.lower() == path.suffix.lower()


def _check_size(path: Path, camera: Camera, width: int, height: int) -> None:
    if (width, height) != (camera.width, camera.height):
        raise ValueError(
            f"{path}: a photograph of {width}×{height} px, but its camera takes {camera.width}×{camera.height}"
        )
