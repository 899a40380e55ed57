"""Pixels of a photograph as red, green and blue in [0, 1], whatever their depth, and the right way up."""

from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Shaped
from PIL import Image
from torch import Tensor

from g_ray.data.photos import EIGHT_BIT, open_photo

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
