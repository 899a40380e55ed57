"""Read colored meshes from GLB, glTF, OBJ, PLY (through trimesh) and npz; convert between sRGB and linear light.

An object is a sequence of meshes, one for each of its materials; z is up. Colors are linear light, because light is
added and averaged, and stored sRGB values are not.
"""

import hashlib
import io
import re
import zipfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int, UInt8
from PIL import Image

from g_ray.media.images import FORMATS

# Color


def srgb_to_linear(values: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """Convert sRGB in [0, 1] to linear light (IEC 61966-2-1)."""
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4).astype(values.dtype)


LINEAR_OF_BYTE = srgb_to_linear(np.arange(256, dtype=np.float32) / 255)
"""Linear light of the 256 values of an 8-bit image."""

_STEPS = 1 << 14
_BYTE_OF_LINEAR = np.searchsorted(
    srgb_to_linear((np.arange(255, dtype=np.float64) + 0.5) / 255),
    np.linspace(0, 1, _STEPS + 1),
    side="right",
).astype(np.uint8)


def linear_to_srgb_bytes(linear: Float[np.ndarray, "*shape"]) -> UInt8[np.ndarray, "*shape"]:
    """Convert linear light in [0, 1] to 8-bit sRGB, by a table with finer steps than any two neighboring values."""
    return _BYTE_OF_LINEAR[(linear.clip(0, 1) * _STEPS + 0.5).astype(np.int32)]


# Triangles


@dataclass(frozen=True, eq=False)
class Mesh:
    """Triangles whose color is tint times texture times light map; without these two, the tint alone.

    uv (0, 0) is the lower left corner of the texture and (1, 1) its upper right one (as OBJ), corners and not the
    centers of texels. Outside [0, 1] the texture repeats, or its border is extended.
    """

    vertices: Float[np.ndarray, "vertex 3"]
    faces: Int[np.ndarray, "face 3"]
    tint: Float[np.ndarray, "vertex 3"]  # linear light, 1 leaves the texture as it is
    uv: Float[np.ndarray, "vertex 2"] | None = None
    texture: UInt8[np.ndarray, "row column 3"] | None = None  # sRGB
    repeat: bool = True
    light_uv: Float[np.ndarray, "vertex 2"] | None = None
    light_map: UInt8[np.ndarray, "light_row light_column 3"] | None = None  # sRGB; its border is extended
    sky: bool = False  # not a surface: rays that end here see the sky

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
        if (self.light_uv is None) != (self.light_map is None):
            raise ValueError("a light map and its uv coordinates need each other")
        maps = [uv for uv in (self.uv, self.light_uv) if uv is not None]
        if any(len(values) != count for values in (self.tint, *maps)):
            raise ValueError("it has fewer colors or uv coordinates than vertices")
        if not all(np.isfinite(uv).all() for uv in maps):
            raise ValueError("it has uv coordinates that are not finite numbers")


def join_triangles(
    parts: Sequence[Mesh],
) -> tuple[Float[np.ndarray, "vertex 3"], Int[np.ndarray, "face 3"]]:
    """Join the vertices and faces of several meshes."""
    first = np.cumsum([0, *(len(part.vertices) for part in parts[:-1])])
    faces = [part.faces + at for part, at in zip(parts, first, strict=True)]
    return np.concatenate([part.vertices for part in parts]), np.concatenate(faces)


def cross_edges(
    vertices: Float[np.ndarray, "vertex 3"], faces: Int[np.ndarray, "face 3"]
) -> Float[np.ndarray, "face 3"]:
    """Return the normals of triangles, twice their area long."""
    a, b, c = vertices[faces].swapaxes(0, 1)
    return np.cross(b - a, c - a)


def find_bounds(parts: Sequence[Mesh]) -> tuple[Float[np.ndarray, "3"], Float[np.ndarray, "3"]]:
    """Return the lowest and highest coordinates of the vertices that triangles use."""
    used = np.concatenate([part.vertices[np.unique(part.faces)] for part in parts])
    return used.min(0), used.max(0)


def scale_to_unit_size(parts: Sequence[Mesh]) -> tuple[Mesh, ...]:
    """Move and scale an object so that its bounding box is centered at the origin with a longest side of 1."""
    low, high = find_bounds(parts)
    extent = float((high - low).max())
    if not 0 < extent < np.inf:
        raise ValueError("all its vertices are one point")
    middle = (low + high) / 2
    return tuple(replace(part, vertices=(part.vertices - middle) / extent) for part in parts)


# Files


UP = {".glb": "y", ".gltf": "y", ".obj": "y", ".ply": "z", ".npz": "z"}
"""Axis that points up in a file, as Blender takes it: by the standard in glTF, by habit in the others."""

DEFAULT_COLOR = 0.5  # linear; for surfaces without any color


class UnreadableMesh(ValueError):
    """A file that holds no mesh to render; the message names it."""


def read_meshes(path: Path, up: str | None = None) -> tuple[Mesh, ...]:
    """Read all meshes of a file, z up. `up` names the axis that points up in it, "y" or "z"; by default `UP`."""
    suffix = path.suffix.lower()
    if suffix not in UP:
        raise UnreadableMesh(f"{path}: meshes are {', '.join(UP)} files")
    try:
        parts = _read_npz(path) if suffix == ".npz" else _read_trimesh(path)
    except ImportError:
        raise
    except Exception as error:  # a broken file makes its parser fail in any way at all
        raise UnreadableMesh(f"{path}: {format_reason(error)}") from error
    return tuple(rotate_z_up(part) for part in parts) if (up or UP[suffix]) == "y" else parts


def format_reason(error: Exception) -> str:
    """Format in one line why a parser failed."""
    text = " ".join(str(error).split())
    return text if isinstance(error, ValueError) and text else f"{type(error).__name__} {text}".strip()


def rotate_z_up(mesh: Mesh) -> Mesh:
    """Turn a mesh whose y axis points up so that z does; what faced +z then faces −y."""
    x, y, z = mesh.vertices.T
    return Mesh(np.stack([x, -z, y], -1), mesh.faces, mesh.tint, mesh.uv, mesh.texture, mesh.repeat)


# Names


def find_meshes(folder: Path) -> dict[str, Path]:
    """Find the mesh files below a folder by uid: a unique name that is safe as the name of a folder."""
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder of meshes; --meshes none makes objects by itself")
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in UP and path.is_file())
    if not paths:
        raise ValueError(f"no {', '.join(UP)} files below {folder}")
    plain = [make_safe_name(path.stem) for path in paths]
    often = Counter(name.casefold() for name in plain)
    return {
        name
        if name == path.stem and often[name.casefold()] == 1
        else f"{name}-{_hash_path(path, folder)}": path
        for name, path in zip(plain, paths, strict=True)
    }


def make_safe_name(text: str) -> str:
    """Keep letters, digits, `_`, `-` and inner dots of a name, so that it is no path and not hidden; shorten it."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text)[:100].strip(".") or "_"


def _hash_path(path: Path, folder: Path) -> str:
    return hashlib.blake2b(path.relative_to(folder).as_posix().encode(), digest_size=4).hexdigest()


# npz


def _read_npz(path: Path) -> tuple[Mesh, ...]:
    """Read a quantized mesh: vertices = lo + v / 65535 · scale, uv / 65535, triangles f, the bytes of an image tex, and
    wrap, whether it repeats."""
    if not zipfile.is_zipfile(path):
        raise ValueError("not an npz archive")
    with np.load(path, allow_pickle=False) as stored:
        missing = [name for name in ("v", "f", "lo", "scale", "uv", "tex") if name not in stored]
        if missing:
            raise ValueError(f"it has no array {', '.join(missing)}")
        vertices = stored["lo"].astype(np.float64) + stored["v"] / 65535 * float(stored["scale"])
        texture = _to_rgb(Image.open(io.BytesIO(stored["tex"].tobytes()), formats=FORMATS))
        return (
            Mesh(
                vertices=vertices,
                faces=stored["f"].astype(np.int32),
                tint=np.ones_like(vertices, dtype=np.float32),
                uv=stored["uv"] / np.float32(65535),
                texture=texture,
                repeat=bool(stored["wrap"]) if "wrap" in stored else False,
            ),
        )


# trimesh


def _read_trimesh(path: Path) -> tuple[Mesh, ...]:
    import trimesh

    scene = trimesh.load_scene(path, process=False)
    linear = path.suffix.lower() in (".glb", ".gltf")  # vertex colors are light by the standard there
    surfaces = [part for part in scene.dump() if isinstance(part, trimesh.Trimesh) and len(part.faces)]
    if not surfaces:
        raise ValueError("it has no triangles")
    return tuple(_convert_mesh(surface, linear) for surface in surfaces)


def _convert_mesh(surface: Any, linear: bool) -> Mesh:
    vertices, faces = np.array(surface.vertices, dtype=np.float64), np.array(surface.faces, dtype=np.int64)
    visual = surface.visual
    if visual.kind == "texture":
        return _make_textured(vertices, faces, visual)
    if visual.kind == "face":
        tint = np.repeat(_to_linear_light(visual.face_colors, linear), 3, axis=0)
        return Mesh(vertices[faces].reshape(-1, 3), np.arange(faces.size).reshape(-1, 3), tint)
    if visual.kind == "vertex":
        return Mesh(vertices, faces, _to_linear_light(visual.vertex_colors, linear))
    return Mesh(vertices, faces, np.full((len(vertices), 3), DEFAULT_COLOR, np.float32))


def _make_textured(vertices: np.ndarray, faces: np.ndarray, visual: Any) -> Mesh:
    """Make a mesh with base color only.

    Its factor multiplies the texture in glTF. OBJ files often have Kd 0 with a texture, so there the texture is used
    alone, as Blender does.
    """
    material = visual.material
    gltf = hasattr(material, "baseColorTexture")
    image = material.baseColorTexture if gltf else material.image
    factor = material.baseColorFactor if gltf else (None if image is not None else material.diffuse)
    tint = np.ones((len(vertices), 3), np.float32)
    if factor is not None:
        tint = tint * _to_linear_light(np.asarray(factor)[None], linear=True)
    painted = (visual.vertex_attributes or {}).get("color") if gltf else None
    if painted is not None and len(painted) == len(vertices):
        tint = tint * _to_linear_light(np.asarray(painted), linear=True)
    if image is None or visual.uv is None:
        return Mesh(vertices, faces, tint)
    uv = np.array(visual.uv, dtype=np.float32)[:, :2]
    return Mesh(vertices, faces, tint, uv, _to_rgb(image))


def _to_linear_light(colors: np.ndarray, linear: bool) -> np.ndarray:
    """Convert RGB or RGBA, bytes or numbers up to 1, to linear light."""
    scale = 255 if np.issubdtype(colors.dtype, np.integer) else 1
    values = (colors[:, :3] / scale).astype(np.float32)
    return values if linear else srgb_to_linear(values)


def _to_rgb(image: Image.Image) -> np.ndarray:
    """Convert an image to RGB without transparency: every surface is opaque."""
    return np.array(image.convert("RGB"))
