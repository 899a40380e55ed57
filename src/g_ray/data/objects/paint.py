"""The colours of many meshes as flat tables, looked up for many triangles at once."""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
from jaxtyping import Float, Int

from g_ray.data.objects.meshes import Mesh
from g_ray.data.objects.srgb import LINEAR_OF_BYTE

WHITE = np.full((1, 1, 3), 255, np.uint8)


class PaintTable:
    """Tints and uv of all vertices, and all textures behind each other in one table of texels.

    A mesh without a texture has one white texel: an object may have hundreds of materials, and none is a special
    case or a step of a loop.
    """

    def __init__(self, parts: Sequence[Mesh]) -> None:
        textures = [WHITE if part.texture is None else part.texture for part in parts]
        ends = list(accumulate(image.shape[0] * image.shape[1] for image in textures))
        self.texels = np.concatenate([image.reshape(-1, 3) for image in textures])
        self.first = np.array([0, *ends[:-1]])  # texel of each part
        self.size = np.array([(image.shape[1], image.shape[0]) for image in textures])  # width, height
        self.repeat = np.array([part.repeat for part in parts])
        self.part = np.repeat(np.arange(len(parts)), [len(part.faces) for part in parts])  # of each face
        self.tint = np.concatenate([part.tint for part in parts]).astype(np.float32)
        uv = [np.zeros((len(part.vertices), 2)) if part.uv is None else part.uv for part in parts]
        self.uv = np.concatenate(uv).astype(np.float32)

    def look_up_colors(
        self,
        face: Int[np.ndarray, "hit"],
        corners: Int[np.ndarray, "hit 3"],
        weights: Float[np.ndarray, "hit 3"],
    ) -> Float[np.ndarray, "hit 3"]:
        """Linear light of white light, at places in triangles given by their three vertices and barycentric weights."""
        return _interpolate(self.tint, corners, weights) * self._sample_texture(
            self.part[face], _interpolate(self.uv, corners, weights)
        )

    def _sample_texture(
        self, part: Int[np.ndarray, "hit"], uv: Float[np.ndarray, "hit 2"]
    ) -> Float[np.ndarray, "hit 3"]:
        """Bilinear between texel centres: uv (0, 0) is the lower left corner of the image, its rows run downwards."""
        size, repeat, first = self.size[part], self.repeat[part], self.first[part]
        uv = np.where(repeat[:, None], uv - np.floor(uv), uv.clip(0, 1))
        place = np.stack([uv[:, 0], 1 - uv[:, 1]], -1) * size - 0.5
        low = np.floor(place).astype(np.int64)
        share = (place - low).astype(np.float32)
        total = np.zeros((len(uv), 3), np.float32)
        for right in (0, 1):
            column = _wrap_or_clamp(low[:, 0] + right, size[:, 0], repeat)
            across = share[:, 0] if right else 1 - share[:, 0]
            for below in (0, 1):
                row = _wrap_or_clamp(low[:, 1] + below, size[:, 1], repeat)
                amount = across * (share[:, 1] if below else 1 - share[:, 1])
                texel = self.texels.take(first + row * size[:, 0] + column, axis=0)
                total += amount[:, None] * LINEAR_OF_BYTE[texel]
        return total


def _wrap_or_clamp(index: np.ndarray, size: np.ndarray, repeat: np.ndarray) -> np.ndarray:
    """An index at most one step outside the texture: around to the other side, or the border again."""
    around = np.where(index < 0, index + size, np.where(index >= size, index - size, index))
    return np.where(repeat, around, index.clip(0, size - 1))


def _interpolate(table: np.ndarray, corners: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return sum(weights[:, i : i + 1] * table.take(corners[:, i], axis=0) for i in range(3))  # type: ignore[return-value]
