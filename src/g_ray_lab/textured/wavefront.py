"""Read Wavefront OBJ models with their material files: whole blocks of numbers at a time, for models by the hundred.

A mesh for each material. Polygons become fans of triangles; normals, curves and groups are left out.
"""

import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int
from PIL import Image

from g_ray.media.images import FORMATS
from g_ray_lab.meshes.mesh_files import DEFAULT_COLOR, Mesh

ReadFile = Callable[[str], bytes]
"""Returns the content of a file that a model names; raises ValueError or OSError where there is none."""


@dataclass(frozen=True)
class ObjMaterial:
    """The properties of a material that are used."""

    color: tuple[float, float, float] = (DEFAULT_COLOR, DEFAULT_COLOR, DEFAULT_COLOR)  # Kd
    opacity: float = 1.0  # d
    image: Image.Image | None = None  # map_Kd


@dataclass(frozen=True, eq=False)
class ObjPart:
    """The triangles of one material."""

    mesh: Mesh
    material: ObjMaterial


@dataclass(eq=False)
class _Blocks:
    """The lines of a model, sorted by what they are."""

    points: list[bytes] = field(default_factory=list)
    uv: list[bytes] = field(default_factory=list)
    libraries: list[str] = field(default_factory=list)
    faces: dict[str, list[bytes]] = field(default_factory=dict)  # of each material


def parse_obj(model: bytes, read: ReadFile) -> list[ObjPart]:
    """Parse a model; `read` gives the material files and images that it names."""
    blocks = _sort_lines(model)
    points, uv = _parse_rows(blocks.points, 3), _parse_rows(blocks.uv, 2)
    materials: dict[str, ObjMaterial] = {}
    for library in blocks.libraries:
        materials |= _read_materials(library, read)
    return [
        _make_part(lines, points, uv, materials.get(name, ObjMaterial()))
        for name, lines in blocks.faces.items()
        if lines
    ]


def _sort_lines(model: bytes) -> _Blocks:
    blocks, current = _Blocks(), ""
    # A backslash at the end continues a line.
    for line in model.replace(b"\\\r\n", b" ").replace(b"\\\n", b" ").splitlines():
        kind, _, rest = line.lstrip().partition(b" ")
        if kind == b"v":
            blocks.points.append(rest)
        elif kind == b"vt":
            blocks.uv.append(rest)
        elif kind == b"f":
            blocks.faces.setdefault(current, []).append(rest)
        elif kind == b"usemtl":
            current = rest.strip().decode("latin-1")
        elif kind == b"mtllib":
            blocks.libraries.append(rest.strip().decode("latin-1"))
    return blocks


def _parse_rows(lines: list[bytes], columns: int) -> Float[np.ndarray, "row column"]:
    """Parse lines of numbers that all have equally many; the first `columns` of each are kept."""
    if not lines:
        return np.zeros((0, columns))
    values = np.array(b" ".join(lines).split(), dtype=np.float64)
    if len(values) % len(lines) or len(values) // len(lines) < columns:
        rows = [line.split()[:columns] for line in lines]  # some have a weight, others do not
        if any(len(row) < columns for row in rows):
            raise ValueError(f"a vertex has fewer than {columns} coordinates")
        return np.array(rows, dtype=np.float64)
    return values.reshape(len(lines), -1)[:, :columns]


def _make_part(lines: list[bytes], points: np.ndarray, uv: np.ndarray, material: ObjMaterial) -> ObjPart:
    corners = np.concatenate(list(_parse_faces(lines)))
    corners = np.stack(
        [_resolve(corners[..., 0], len(points)), _resolve(corners[..., 1], len(uv), optional=True)], -1
    )
    # A vertex for each pair of a point and its place in the image.
    key, faces = np.unique(corners[..., 0] * np.int64(len(uv) + 1) + corners[..., 1] + 1, return_inverse=True)
    point, place = key // (len(uv) + 1), key % (len(uv) + 1) - 1
    textured = material.image is not None and len(uv) and (place >= 0).all()
    tint = np.ones(3) if textured else np.array(material.color)
    mesh = Mesh(
        vertices=points[point],
        faces=faces.reshape(-1, 3),
        tint=np.broadcast_to(tint, (len(point), 3)).astype(np.float32),
        uv=uv[place].astype(np.float32) if textured else None,
        texture=np.array(material.image.convert("RGB")) if textured and material.image else None,
    )
    return ObjPart(mesh, material)


def _resolve(
    index: Int[np.ndarray, "*shape"], count: int, optional: bool = False
) -> Int[np.ndarray, "*shape"]:
    """Turn numbers from 1, or from −1 backwards, into indices; 0 is a corner without one, which becomes −1."""
    resolved = np.where(index < 0, index + count, index - 1)
    if resolved.min() < (-1 if optional else 0) or resolved.max() >= count:
        raise ValueError(f"a face uses vertex {index.max()} of {count}")
    return resolved


def _parse_faces(lines: list[bytes]) -> Iterator[Int[np.ndarray, "triangle 3 2"]]:
    """Parse polygons of equally many corners together, and cut them into fans; yields (point, uv) numbers."""
    groups: dict[tuple[int, int], list[bytes]] = {}
    for line in lines:
        groups.setdefault((len(line.split()), line.count(b"/")), []).append(line)
    for (count, slashes), same in groups.items():
        if count < 3:
            continue  # a line or a point
        text = b" ".join(same)
        # v, v/vt, v//vn or v/vt/vn; without a number after the point it gets 0.
        numbers = np.array(text.replace(b"//", b"/0/").replace(b"/", b" ").split(), dtype=np.int64)
        if len(numbers) % (len(same) * count):
            raise ValueError("the corners of a face differ in what they have")
        corners = numbers.reshape(len(same), count, -1)
        if not slashes:
            corners = np.concatenate([corners, np.zeros_like(corners)], -1)
        fan = [[0, i, i + 1] for i in range(1, count - 1)]
        yield corners[:, fan, :2].reshape(-1, 3, 2)


def _read_materials(library: str, read: ReadFile) -> dict[str, ObjMaterial]:
    """Read a material file; models without one, or without an image that it names, are gray or of one color."""
    try:
        text = read(library).decode("latin-1")
    except (ValueError, OSError):
        return {}
    found: dict[str, ObjMaterial] = {}
    for block in re.split(r"^\s*newmtl\s+", text, flags=re.M)[1:]:
        name, *lines = block.splitlines()
        values = {words[0]: words[1:] for line in lines if len(words := line.split()) > 1}
        color = [float(value) for value in values.get("Kd", ())]
        opacity = float(values["d"][-1]) if "d" in values else 1.0
        image = _read_image(_find_image_name(lines), read)
        rgb = (color[0], color[1], color[2]) if len(color) == 3 else ObjMaterial.color
        found[name.strip()] = ObjMaterial(rgb, opacity, image)
    return found


def _find_image_name(lines: list[str]) -> str | None:
    """Find the name of the image: all after map_Kd, since it may have spaces, but for options such as `-s 1 1 1`."""
    for line in lines:
        kind, _, rest = line.strip().partition(" ")
        if kind == "map_Kd":
            return re.sub(r"^(-\w+(\s+(-?[\d.]+|on|off))*\s+)+", "", rest.strip())
    return None


def _read_image(name: str | None, read: ReadFile) -> Image.Image | None:
    if name is None:
        return None
    try:
        return Image.open(io.BytesIO(read(name)), formats=FORMATS)
    except (ValueError, OSError, Image.DecompressionBombError):
        return None
