"""Textures as one table of texels with their reduced copies (mip levels), looked up for many places at once."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int, UInt8
from PIL import Image

from g_ray_lab.meshes.mesh_files import LINEAR_OF_BYTE, linear_to_srgb_bytes


class TexelTable:
    """Images behind each other in one table, with `levels` copies of each, every one half as large as the one before.

    An image that is one texel wide or high stays so; levels after the last of an image repeat it.
    """

    def __init__(self, images: Sequence[UInt8[np.ndarray, "_ _ 3"]], levels: int = 1) -> None:
        pyramids = [_build_pyramid(image, levels) for image in images]
        flat = [level for pyramid in pyramids for level in pyramid]
        ends = np.cumsum([0] + [level.shape[0] * level.shape[1] for level in flat])
        number = iter(range(len(flat)))
        self.first = np.empty((len(images), levels), np.int64)
        self.size = np.empty((len(images), levels, 2), np.int64)  # width, height
        for i, pyramid in enumerate(pyramids):
            rows = [next(number) for _ in pyramid]
            for level in range(levels):
                at = min(level, len(pyramid) - 1)
                self.first[i, level] = ends[rows[at]]
                self.size[i, level] = pyramid[at].shape[1], pyramid[at].shape[0]
        self.texels = np.concatenate([level.reshape(-1, 3) for level in flat])
        self.levels = levels

    def sample(
        self,
        image: Int[np.ndarray, "hit"],
        uv: Float[np.ndarray, "hit 2"],
        repeat: Bool[np.ndarray, "hit"],
        level: Int[np.ndarray, "hit"] | None = None,
    ) -> Float[np.ndarray, "hit 3"]:
        """Linear light, bilinear between the centers of texels: uv (0, 0) is the lower left corner of an image, its
        rows run downwards."""
        at = image * self.levels + (0 if level is None else level)
        width, height = (self.size[..., axis].take(at) for axis in (0, 1))
        first = self.first.take(at)
        u, v = (np.where(repeat, uv[:, i] - np.floor(uv[:, i]), uv[:, i].clip(0, 1)) for i in (0, 1))
        columns, across = _find_neighbors(u * width - 0.5, width, repeat)
        rows, down = _find_neighbors((1 - v) * height - 0.5, height, repeat)
        total = np.zeros((len(uv), 3), np.float32)
        for row, share_down in zip(rows, (1 - down, down), strict=True):
            start = first + row * width
            for column, share_across in zip(columns, (1 - across, across), strict=True):
                texel = self.texels.take(start + column, axis=0)
                total += (share_across * share_down)[:, None] * LINEAR_OF_BYTE.take(texel)
        return total


def _find_neighbors(
    place: np.ndarray, size: np.ndarray, repeat: np.ndarray
) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray]:
    """Return the texels before and after a place along one axis, and the share of the second."""
    low = np.floor(place)
    share = (place - low).astype(np.float32)
    index = low.astype(np.int64)
    return (_wrap_or_clamp(index, size, repeat), _wrap_or_clamp(index + 1, size, repeat)), share


def _wrap_or_clamp(index: np.ndarray, size: np.ndarray, repeat: np.ndarray) -> np.ndarray:
    """Move an index that is one step outside the texture inside: wrap around, or clamp to the border."""
    outside = (index < 0).astype(np.int64) - (index >= size)
    return index + outside * np.where(repeat, size, 1)


def _build_pyramid(image: UInt8[np.ndarray, "row column 3"], levels: int) -> list[np.ndarray]:
    pyramid = [image]
    light = LINEAR_OF_BYTE[image] if levels > 1 else None
    while len(pyramid) < levels and light is not None and max(light.shape[:2]) > 1:
        light = _halve(light)
        pyramid.append(linear_to_srgb_bytes(light))
    return pyramid


def _halve(light: Float[np.ndarray, "row column 3"]) -> Float[np.ndarray, "row2 column2 3"]:
    """Average the area of each new texel: light is averaged, not stored values."""
    rows, columns = light.shape[:2]
    if rows % 2 == 0 and columns % 2 == 0:
        return (light[::2, ::2] + light[1::2, ::2] + light[::2, 1::2] + light[1::2, 1::2]) / 4
    size = (max(1, columns // 2), max(1, rows // 2))
    channels = [np.ascontiguousarray(light[..., i]) for i in range(3)]
    return np.stack([np.asarray(Image.fromarray(c).resize(size, Image.Resampling.BOX)) for c in channels], -1)
