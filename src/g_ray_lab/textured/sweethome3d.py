"""Read furniture libraries of Sweet Home 3D: zip archives (`*.sh3f`) with a catalog of real sizes and OBJ models.

`PluginFurnitureCatalog.properties` is a Java properties file: `width#7=120.5` is the width in centimeters of entry 7.
Models have y up and face +z; they are scaled to the size of their entry. Here z is up, an entry faces −y, its
footprint is centered at the origin and its lowest point at z = 0.
"""

import posixpath
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image

from g_ray_lab.meshes.mesh_files import Mesh, UnreadableMesh, find_bounds, format_reason, rotate_z_up
from g_ray_lab.textured.wavefront import parse_obj

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
