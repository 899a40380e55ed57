"""Textures of meshes in tables of texels: sampled by rays, reduced for prefiltering, and tinted by vertex colors."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int, UInt8
from PIL import Image

from g_ray_lab.meshes.mesh_files import LINEAR_OF_BYTE, Mesh, linear_to_srgb_bytes


class TexelTable:
    """Images behind each other in one table, with `levels` copies of each, every one half as large as the one before.

    An image that is one texel wide or high stays so; levels after the last of an image repeat it.
    """

    def __init__(self, images: Sequence[UInt8[np.ndarray, "_ _ 3"]], levels: int = 1) -> None:
        pyramids = [_build_pyramid(image, levels) for image in images]
        flat = [level for pyramid in pyramids for level in pyramid]
        counts = np.array([len(pyramid) for pyramid in pyramids])
        own = np.minimum(np.arange(levels), counts[:, None] - 1)
        at = np.cumsum(counts)[:, None] - counts[:, None] + own
        self.size = np.array([level.shape[1::-1] for level in flat], np.int64)[at]  # width, height
        self.first = np.cumsum([0, *(level.shape[0] * level.shape[1] for level in flat)])[at]
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


WHITE = np.full((1, 1, 3), 255, np.uint8)
"""Of meshes without a texture."""


class PaintTable:
    """Tints and uv of all vertices, and all textures and light maps in tables of texels.

    A mesh without a texture has one white texel: an object may have hundreds of materials, and none is a special
    case or a step of a loop.
    """

    def __init__(self, parts: Sequence[Mesh], faces: Int[np.ndarray, "face 3"], levels: int) -> None:
        self.textures, self.texture = _collect_images([part.texture for part in parts], levels)
        self.light_maps, self.light_map = _collect_images([part.light_map for part in parts], 1)
        self.repeat = np.array([part.repeat for part in parts])
        self.part = np.repeat(np.arange(len(parts)), [len(part.faces) for part in parts])  # of each face
        self.tint = np.concatenate([part.tint for part in parts]).astype(np.float32)
        self.uv = _join_uv([(part.uv, len(part.vertices)) for part in parts])
        self.light_uv = _join_uv([(part.light_uv, len(part.vertices)) for part in parts])
        self.has_light_maps = any(part.light_map is not None for part in parts)
        # Texels² that a face covers in its texture.
        size = self.textures.size[self.texture, 0].prod(-1)[self.part]
        a, b, c = (self.uv[faces[:, i]].astype(np.float64) for i in range(3))
        (x1, y1), (x2, y2) = (b - a).T, (c - a).T
        self.texels2 = np.abs(x1 * y2 - x2 * y1) / 2 * size

    def look_up_colors(
        self,
        face: Int[np.ndarray, "hit"],
        corners: Int[np.ndarray, "hit 3"],
        weights: Float[np.ndarray, "hit 3"],
        level: Int[np.ndarray, "hit"] | None = None,
    ) -> Float[np.ndarray, "hit 3"]:
        """Linear light at places in triangles given by their three vertices and barycentric weights, from textures
        reduced `level` times."""
        part = self.part.take(face)
        color = _interpolate(self.tint, corners, weights)
        uv = _interpolate(self.uv, corners, weights)
        color *= self.textures.sample(self.texture.take(part), uv, self.repeat.take(part), level)
        if self.has_light_maps:
            uv = _interpolate(self.light_uv, corners, weights)
            color *= self.light_maps.sample(self.light_map.take(part), uv, np.zeros(len(uv), bool))
        return color


def _collect_images(
    images: Sequence[UInt8[np.ndarray, "_ _ 3"] | None], levels: int
) -> tuple[TexelTable, Int[np.ndarray, "part"]]:
    """Put every image into a table once; returns the table and the number in it of each given image."""
    distinct: dict[int, np.ndarray] = {}
    for image in images:
        image = WHITE if image is None else image
        distinct.setdefault(id(image), image)
    numbers = {key: number for number, key in enumerate(distinct)}
    own = np.array([numbers[id(WHITE if image is None else image)] for image in images])
    return TexelTable(list(distinct.values()), levels), own


def _join_uv(each: Sequence[tuple[Float[np.ndarray, "_ 2"] | None, int]]) -> Float[np.ndarray, "vertex 2"]:
    joined = [np.zeros((count, 2)) if uv is None else uv for uv, count in each]
    return np.concatenate(joined).astype(np.float32)


def _interpolate(table: np.ndarray, corners: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return sum(weights[:, i : i + 1] * table.take(corners[:, i], axis=0) for i in range(3))  # type: ignore[return-value]
