"""Read furniture libraries of Sweet Home 3D: zip archives (`*.sh3f`) with a catalog of real sizes and OBJ models.

`PluginFurnitureCatalog.properties` is a Java properties file: `width#7=120.5` is the width in centimeters of entry 7.
Models have y up and face +z; they are scaled to the size of their entry. Here z is up, an entry faces −y, its
footprint is centered at the origin and its lowest point at z = 0.
"""

import io
import posixpath
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int
from PIL import Image

from g_ray.media.images import FORMATS
from g_ray_lab.meshes.mesh_files import (
    DEFAULT_COLOR,
    Mesh,
    UnreadableMesh,
    find_bounds,
    format_reason,
    rotate_z_up,
)

CATALOG = "PluginFurnitureCatalog.properties"
INSTALLED = Path("/usr/share/sweethome3d/furniture")
"""Where Debian's package sweethome3d-furniture puts its libraries."""

MAX_CATALOG_BYTES, MAX_MODEL_BYTES, MAX_FACES = 16 << 20, 64 << 20, 400_000
MAX_TEXTURE = 512  # pixels of the longer side; larger images are reduced
MIN_OPACITY = 0.5  # surfaces that let more light through are left out, as glass is not opaque
MAX_CUTOUT = 0.02  # share of transparent texels above which an image is a cut-out, such as leaves on a square


# Catalog


@dataclass(frozen=True)
class FurnitureEntry:
    """A piece of furniture in a library, with its real size in meters."""

    library: Path
    key: str
    """Its id, unique in all libraries, such as `Scopia#sofa`."""
    name: str
    category: str
    model: str
    """Name of the model's file in the archive."""
    width: float
    depth: float
    height: float
    elevation: float
    """Height of its lowest point above the floor."""
    top: float | None
    """Height above its lowest point at which things stand on it; None if nothing can."""
    door_or_window: bool
    rotation: tuple[float, ...] | None
    """Rows of the matrix that turns the model before it is scaled."""

    @property
    def size(self) -> tuple[float, float, float]:
        return self.width, self.depth, self.height


def find_libraries(folder: Path = INSTALLED) -> list[Path]:
    """Find the furniture libraries of a folder; none where the folder does not exist."""
    return sorted(folder.glob("*.sh3f"))


def read_catalog(library: Path) -> list[FurnitureEntry]:
    """Read all entries of a library, in the order of its catalog."""
    with open_library(library) as archive:
        text = _read_member(archive, CATALOG, MAX_CATALOG_BYTES, str(library)).decode("latin-1")
    fields: dict[int, dict[str, str]] = {}
    for key, value in parse_properties(text):
        name, mark, number = key.partition("#")
        if mark and number.isdecimal():
            fields.setdefault(int(number), {})[name] = value
    if not fields:
        raise ValueError(f"{library}: its {CATALOG} has no entries; is it a furniture library?")
    return [
        _parse_entry(library, values, f"{library}, entry {number}")
        for number, values in sorted(fields.items())
    ]


def parse_properties(text: str) -> Iterator[tuple[str, str]]:
    """Parse a Java properties file: `key=value` lines, comments, continued lines and escapes."""
    for line in re.sub(r"\\\r?\n[ \t]*", "", text).splitlines():
        line = line.strip()
        key, mark, value = line.partition("=")
        if mark and line[0] not in "#!":
            yield key.strip(), _unescape(value.strip())


def _unescape(value: str) -> str:
    value = re.sub(r"\\u([0-9a-fA-F]{4})", lambda match: chr(int(match[1], 16)), value)
    return re.sub(r"\\(.)", r"\1", value)


def _parse_entry(library: Path, values: Mapping[str, str], where: str) -> FurnitureEntry:
    missing = [name for name in ("model", "width", "depth", "height") if not values.get(name)]
    if missing:
        raise ValueError(f"{where}: it has no {', '.join(missing)}")
    size = [_parse_number(values[name], f"{where}, {name}") / 100 for name in ("width", "depth", "height")]
    if not all(0 < value < 1000 for value in size):
        raise ValueError(f"{where}: a size of {size} meters; widths, depths and heights must be positive")
    top = _parse_number(values.get("dropOnTopElevation", str(100 * size[2])), f"{where}, dropOnTopElevation")
    model = values["model"].lstrip("/")
    return FurnitureEntry(
        library=library,
        key=values.get("id", model),
        name=values.get("name", posixpath.basename(model)),
        category=values.get("category", ""),
        model=model,
        width=size[0],
        depth=size[1],
        height=size[2],
        elevation=_parse_number(values.get("elevation", "0"), f"{where}, elevation") / 100,
        top=top / 100 if top >= 0 else None,
        door_or_window=values.get("doorOrWindow", "false") == "true",
        rotation=_parse_rotation(values.get("modelRotation"), where),
    )


def _parse_number(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{where}: {text!r} is not a number") from None
    if not np.isfinite(value):
        raise ValueError(f"{where}: {text!r} is not a finite number")
    return value


def _parse_rotation(text: str | None, where: str) -> tuple[float, ...] | None:
    if not text:
        return None
    values = tuple(_parse_number(word, f"{where}, modelRotation") for word in text.split())
    if len(values) != 9:
        raise ValueError(f"{where}: modelRotation has {len(values)} numbers instead of 9")
    return values


# Models


def read_furniture(entry: FurnitureEntry, archive: zipfile.ZipFile | None = None) -> tuple[Mesh, ...]:
    """Read a model at its real size, one mesh for each material; without its glass.

    Opening a library reads its whole index: give the opened `archive` when reading many.
    """
    where = f"{entry.library}, {entry.model}"
    if not entry.model.lower().endswith(".obj"):
        raise UnreadableMesh(f"{where}: only OBJ models are read")
    try:
        with nullcontext(archive) if archive is not None else open_library(entry.library) as opened:
            parts = _read_model(entry, opened)
    except Exception as error:  # a broken file makes its parser fail in any way at all
        raise UnreadableMesh(f"{where}: {format_reason(error)}") from error
    return _scale_to_size(parts, entry.size, where)


def _read_model(entry: FurnitureEntry, archive: zipfile.ZipFile) -> tuple[Mesh, ...]:
    folder = posixpath.dirname(entry.model)

    def read(name: str) -> bytes:
        """Read a file by its path relative to the model. Archives have no parents: what leaves it is not found."""
        path = posixpath.normpath(posixpath.join(folder, name.replace("\\", "/")))
        return _read_member(archive, path, MAX_MODEL_BYTES, folder)

    model = read(posixpath.basename(entry.model))
    if model.count(b"\nf ") > MAX_FACES:
        raise ValueError(f"it has more than {MAX_FACES} faces")
    parts = parse_obj(model, read)
    if not parts:
        raise ValueError("it has no triangles")
    # Cut-out images, such as leaves on a square, would show as squares.
    if any(part.material.image is not None and _has_cutout(part.material.image) for part in parts):
        raise ValueError("its images have transparent parts")
    opaque = [_reduce_image(part.mesh) for part in parts if part.material.opacity >= MIN_OPACITY]
    if not opaque:
        raise ValueError("all of it is transparent")
    return tuple(rotate_z_up(_rotate(part, entry.rotation)) for part in opaque)


def _has_cutout(image: Image.Image) -> bool:
    if image.mode not in ("RGBA", "LA", "PA") and "transparency" not in image.info:
        return False
    alpha = np.asarray(image.convert("RGBA"))[..., 3]
    return float((alpha < 128).mean()) > MAX_CUTOUT


def _reduce_image(part: Mesh) -> Mesh:
    """Reduce large images."""
    if part.texture is None or max(part.texture.shape[:2]) <= MAX_TEXTURE:
        return part
    image = Image.fromarray(part.texture)
    image.thumbnail((MAX_TEXTURE, MAX_TEXTURE), Image.Resampling.BOX)
    return replace(part, texture=np.asarray(image))


def _rotate(part: Mesh, rotation: tuple[float, ...] | None) -> Mesh:
    if rotation is None:
        return part
    return replace(part, vertices=part.vertices @ np.array(rotation).reshape(3, 3).T)


def _scale_to_size(parts: Sequence[Mesh], size: tuple[float, float, float], where: str) -> tuple[Mesh, ...]:
    low, high = find_bounds(parts)
    if not (high - low > 0).any():
        raise UnreadableMesh(f"{where}: all its vertices are one point")
    # A flat model, such as a poster, has no extent along one axis: that axis is left as it is.
    scale = np.array(size) / np.where(high > low, high - low, np.array(size))
    base = np.array([(low[0] + high[0]) / 2, (low[1] + high[1]) / 2, low[2]])
    return tuple(replace(part, vertices=(part.vertices - base) * scale) for part in parts)


# Archives


def open_library(library: Path) -> zipfile.ZipFile:
    """Open a furniture library."""
    try:
        return zipfile.ZipFile(library)
    except zipfile.BadZipFile:
        raise ValueError(f"{library}: not a zip archive, so no furniture library") from None


def _read_member(archive: zipfile.ZipFile, name: str, limit: int, where: str) -> bytes:
    """Read a file of an archive; the size it declares bounds what is unpacked."""
    try:
        size = archive.getinfo(name).file_size
    except KeyError:
        raise ValueError(f"{where}: the archive has no file {name}") from None
    if size > limit:
        raise ValueError(f"{where}: {name} has {size} bytes, more than the {limit} that are read")
    try:
        return archive.read(name)
    except (OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{where}: {name} is damaged ({error}); download the library again") from None


# Wavefront OBJ models with their material files: whole blocks of numbers at a time, for models by the hundred
#
# A mesh for each material. Polygons become fans of triangles; normals, curves and groups are left out.

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
