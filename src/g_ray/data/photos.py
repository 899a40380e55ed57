"""Photographs from disk.

Pixels are taken as they are stored: calibrations speak of stored pixels, so the orientation tag of EXIF is not applied.
Transparency is dropped.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor

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
