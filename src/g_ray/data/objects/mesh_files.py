"""Meshes from files: GLB, glTF, OBJ, PLY (through trimesh) and npz."""

import hashlib
import io
import re
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from g_ray.data.objects.meshes import Mesh
from g_ray.data.objects.srgb import srgb_to_linear

UP = {".glb": "y", ".gltf": "y", ".obj": "y", ".ply": "z", ".npz": "z"}
"""Which axis points up in a file, as Blender takes it: by the standard in glTF, by habit in the others."""

DEFAULT_COLOR = 0.5  # linear; what has no colour at all


class UnreadableMesh(ValueError):
    """A file that holds no mesh to render; the message names it."""


def read_meshes(path: Path, up: str | None = None) -> tuple[Mesh, ...]:
    """All meshes of a file, z up. `up` says which axis points up in it, "y" or "z"; by default `UP`."""
    suffix = path.suffix.lower()
    if suffix not in UP:
        raise UnreadableMesh(f"{path}: meshes are {', '.join(UP)} files")
    try:
        parts = _read_npz(path) if suffix == ".npz" else _read_trimesh(path)
    except ImportError:
        raise
    except Exception as error:  # a broken file makes its parser fail in any way at all
        raise UnreadableMesh(f"{path}: {_format_reason(error)}") from error
    return tuple(_rotate_z_up(part) for part in parts) if (up or UP[suffix]) == "y" else parts


def _format_reason(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, ValueError) and text else f"{type(error).__name__} {text}".strip()


def _rotate_z_up(mesh: Mesh) -> Mesh:
    x, y, z = mesh.vertices.T
    return Mesh(np.stack([x, -z, y], -1), mesh.faces, mesh.tint, mesh.uv, mesh.texture, mesh.repeat)


# Names


def find_meshes(folder: Path) -> dict[str, Path]:
    """The mesh files below a folder by their uid: a name that is safe as a folder's name and unlike all others."""
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
    """Letters, digits, `_`, `-` and dots inside: no separator, not hidden, never "..", of bounded length."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text)[:100].strip(".") or "_"


def _hash_path(path: Path, folder: Path) -> str:
    return hashlib.blake2b(path.relative_to(folder).as_posix().encode(), digest_size=4).hexdigest()


# npz


def _read_npz(path: Path) -> tuple[Mesh, ...]:
    """Quantised: vertices = lo + v / 65535 · scale, uv / 65535, f triangles, tex the bytes of an image, wrap whether
    it repeats."""
    with _load_arrays(path) as stored:
        missing = [name for name in ("v", "f", "lo", "scale", "uv", "tex") if name not in stored]
        if missing:
            raise ValueError(f"it has no array {', '.join(missing)}")
        vertices = stored["lo"].astype(np.float64) + stored["v"] / 65535 * float(stored["scale"])
        texture = _to_rgb(Image.open(io.BytesIO(stored["tex"].tobytes())))
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


def _load_arrays(path: Path) -> Any:
    if not zipfile.is_zipfile(path):
        raise ValueError("not an npz archive")
    return np.load(path, allow_pickle=False)


# trimesh


def _read_trimesh(path: Path) -> tuple[Mesh, ...]:
    import trimesh

    scene = trimesh.load_scene(path, process=False)
    linear = path.suffix.lower() in (".glb", ".gltf")  # vertex colours are light by the standard there
    surfaces = [part for part in scene.dump() if isinstance(part, trimesh.Trimesh) and len(part.faces)]
    if not surfaces:
        raise ValueError("it has no triangles")
    return tuple(_convert_mesh(surface, linear) for surface in surfaces)


def _convert_mesh(surface: Any, linear: bool) -> Mesh:
    vertices = np.array(surface.vertices, dtype=np.float64)
    faces = np.array(surface.faces, dtype=np.int64)
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
    """Base colour only. Its factor multiplies the texture in glTF; OBJ files often say Kd 0 beside a texture, which
    therefore stands alone there (as Blender has it)."""
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
    """RGB or RGBA, bytes or numbers up to 1, to linear light."""
    scale = 255 if np.issubdtype(colors.dtype, np.integer) else 1
    values = (colors[:, :3] / scale).astype(np.float32)
    return values if linear else srgb_to_linear(values)


def _to_rgb(image: Image.Image) -> np.ndarray:
    """Transparency is left out: every surface is opaque."""
    return np.array(image.convert("RGB"))
