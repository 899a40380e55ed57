"""Coloured triangles. An object is a sequence of meshes, one for each of its materials; z is up."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int, UInt8


@dataclass(frozen=True, eq=False)
class Mesh:
    """Triangles whose colour is tint times texture; without a texture, the tint alone.

    uv (0, 0) is the lower left corner of the texture and (1, 1) its upper right one (as OBJ), corners and not the
    centres of texels. Outside [0, 1] the texture repeats, or its border goes on.
    """

    vertices: Float[np.ndarray, "vertex 3"]
    faces: Int[np.ndarray, "face 3"]
    tint: Float[np.ndarray, "vertex 3"]  # linear light, 1 leaves the texture as it is
    uv: Float[np.ndarray, "vertex 2"] | None = None
    texture: UInt8[np.ndarray, "row column 3"] | None = None  # sRGB
    repeat: bool = True

    def __post_init__(self) -> None:
        count = len(self.vertices)
        if not len(self.faces) or not count:
            raise ValueError("it has no triangles")
        if not np.isfinite(self.vertices).all():
            raise ValueError("it has vertices that are not finite numbers")
        if self.faces.min() < 0 or self.faces.max() >= count:
            raise ValueError(f"its triangles use vertex {self.faces.max()} of {count}")
        if (self.uv is None) != (self.texture is None):
            raise ValueError("a texture and uv coordinates need each other")
        if len(self.tint) != count or (self.uv is not None and len(self.uv) != count):
            raise ValueError("it has fewer colours or uv coordinates than vertices")
        if self.uv is not None and not np.isfinite(self.uv).all():
            raise ValueError("it has uv coordinates that are not finite numbers")


def scale_to_unit_size(parts: Sequence[Mesh]) -> tuple[Mesh, ...]:
    """The object moved and scaled: its bounding box has its middle at the origin and a longest side of 1.

    Vertices that no triangle uses do not count.
    """
    used = np.concatenate([part.vertices[np.unique(part.faces)] for part in parts])
    low, high = used.min(0), used.max(0)
    extent = float((high - low).max())
    if not 0 < extent < np.inf:
        raise ValueError("all its vertices are one point")
    middle = (low + high) / 2
    return tuple(replace(part, vertices=(part.vertices - middle) / extent) for part in parts)
