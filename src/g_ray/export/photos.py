"""Photographs into a result's folder: upright, 8 bits, the size that their camera takes."""

import shutil
from pathlib import Path

from jaxtyping import Float
from PIL import Image
from torch import Tensor

from g_ray.cameras.base import Camera
from g_ray.data.photos import read_photo, read_photo_size
from g_ray.files import atomic_path

PhotoLike = Path | Float[Tensor, "3 _ _"]
"""A file that can be taken as it is, or red, green and blue in [0, 1]."""

ORIENTATION = 0x0112
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
        if image.getexif().get(ORIENTATION, 1) != 1:
            raise ValueError(f"{photo} is stored turned (EXIF orientation); give its upright pixels instead")
        return image.mode == "RGB" and photo.suffix.lower() == path.suffix.lower()


def _check_size(path: Path, camera: Camera, width: int, height: int) -> None:
    if (width, height) != (camera.width, camera.height):
        raise ValueError(
            f"{path}: a photograph of {width}×{height} px, but its camera takes {camera.width}×{camera.height}"
        )
