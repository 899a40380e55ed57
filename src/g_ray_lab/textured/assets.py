"""Find what rooms are furnished with, as far as present: furniture libraries, scanned objects, images of a game.

Nothing is copied: all is read when a room is made. One in ten of all products belongs to the test split and is
seen by no room of the training split: variants of a model are on one side (see `objects.products`).
"""

import io
import re
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from g_ray.media.images import FORMATS
from g_ray_lab.meshes.mesh_files import Mesh, UnreadableMesh, find_meshes, read_meshes
from g_ray_lab.sources.object_index import assign_split
from g_ray_lab.textured.panels import MAX_EDGE, split_creases, subdivide
from g_ray_lab.textured.quake3 import OPENARENA
from g_ray_lab.textured.sweethome3d import (
    INSTALLED,
    FurnitureEntry,
    find_libraries,
    open_library,
    read_catalog,
    read_furniture,
)

ROOM_SPLITS = ("train", "test")
MAX_IMAGE_BYTES = 16 << 20
MAX_MODEL_FACES = 40_000  # larger models cost more light than they show
KEPT = 400  # models and images in memory

STONE = re.compile(r"concre?t|brick|stone|marble|tile|wood|plaster|crete", re.I)
NOT_STONE = re.compile(
    r"light|fx|sky|env|liquid|glass|trans|grate|lava|decal|blood|gore|sign|skull|flesh|kill|broke|slime|iron|pipe|"
    r"met|step|stair|trim|logo|jump|switch|button|flame|fire|water|door|skin|zot|ladder|hole|bot|top|eye|tele|gun",
    re.I,
)


@dataclass(frozen=True)
class AssetFolders:
    """Where assets are looked for; None leaves them out."""

    furniture: Path | None = INSTALLED
    objects: Path | None = None
    images: Path | None = OPENARENA


@dataclass(frozen=True)
class ArchiveImage:
    """An image in a zip archive."""

    archive: Path
    name: str


@dataclass(frozen=True, eq=False)
class RoomAssets:
    """The pieces of one split, with those used last kept in memory."""

    furniture: tuple[FurnitureEntry, ...] = ()
    objects: tuple[Path, ...] = ()
    images: tuple[ArchiveImage, ...] = ()
    missing: tuple[str, ...] = ()
    """What was not found, a line for each."""
    _kept: dict[Any, Any] = field(default_factory=dict, repr=False)
    _opened: dict[Path, zipfile.ZipFile] = field(default_factory=dict, repr=False)

    def load_furniture(self, entry: FurnitureEntry) -> tuple[Mesh, ...] | None:
        """Load a model ready for light; None if it cannot be used."""
        return self._load(entry.key, lambda: _prepare(read_furniture(entry, self._open(entry.library))))

    def load_object(self, path: Path) -> tuple[Mesh, ...] | None:
        """Load a scanned object, standing on z = 0 around the z axis; None if it cannot be used."""
        try:
            return _stand_upright(read_meshes(path))
        except UnreadableMesh:
            return None

    def load_image(self, source: ArchiveImage) -> UInt8[np.ndarray, "row column 3"] | None:
        """Load an image; None if it cannot be used."""
        return self._load(source, lambda: _read_image(source, self._open(source.archive)))

    def _open(self, library: Path) -> zipfile.ZipFile:
        if library not in self._opened:
            self._opened[library] = open_library(library)
        return self._opened[library]

    def _load(self, key: Any, read: Callable[[], Any]) -> Any:
        if key not in self._kept:
            try:
                value = read()
            except UnreadableMesh:
                value = None  # rooms do without it
            while len(self._kept) >= KEPT:
                self._kept.pop(next(iter(self._kept)))
            self._kept[key] = value
        return self._kept[key]


def open_assets(folders: AssetFolders, split: str = "train") -> RoomAssets:
    """List the assets of a split that are there; the rest is named in `missing`."""
    if split not in ROOM_SPLITS:
        raise ValueError(f"unknown split {split!r}: choose one of {', '.join(ROOM_SPLITS)}")
    furniture, objects = _list_furniture(folders.furniture), _list_objects(folders.objects)
    images = _list_images(folders.images)
    missing = [
        f"no {what} in {folder}; {instead}"
        for what, folder, found, instead in (
            ("furniture libraries (*.sh3f)", folders.furniture, furniture, "furniture is made of boxes"),
            ("scanned objects", folders.objects, objects, "no small objects stand around"),
            ("game archives (*.pk3)", folders.images, images, "all materials are procedural"),
        )
        if not found
    ]
    return RoomAssets(
        tuple(entry for entry in furniture if assign_split(entry.key) == split),
        tuple(path for path in objects if assign_split(path.stem) == split),
        tuple(image for image in images if assign_split(image.name) == split),
        tuple(missing),
    )


def _list_furniture(folder: Path | None) -> list[FurnitureEntry]:
    if folder is None:
        return []
    return [entry for library in find_libraries(folder) for entry in read_catalog(library)]


def _list_objects(folder: Path | None) -> list[Path]:
    if folder is None or not folder.is_dir():
        return []
    return list(find_meshes(folder).values())


def _list_images(folder: Path | None) -> list[ArchiveImage]:
    """List the images of walls and floors, recognized by their names."""
    found: dict[str, ArchiveImage] = {}
    for archive in sorted(folder.glob("*.pk3")) if folder is not None else []:
        if not zipfile.is_zipfile(archive):
            continue
        with zipfile.ZipFile(archive) as opened:
            for name in opened.namelist():
                place, _, stem = name.partition("textures/")
                wanted = STONE.search(stem) and not NOT_STONE.search(stem)
                if not place and stem.lower().endswith(".jpg") and wanted:
                    found[name] = ArchiveImage(archive, name)
    return [found[name] for name in sorted(found)]


def _prepare(parts: Sequence[Mesh]) -> tuple[Mesh, ...]:
    """Cut a model at its creases, and finely enough for light."""
    if sum(len(part.faces) for part in parts) > MAX_MODEL_FACES:
        raise UnreadableMesh(f"more than {MAX_MODEL_FACES} triangles")
    return tuple(subdivide(split_creases(part), MAX_EDGE) for part in parts)


def _stand_upright(parts: Sequence[Mesh]) -> tuple[Mesh, ...]:
    points = np.concatenate([part.vertices for part in parts])
    low, high = points.min(0), points.max(0)
    base = np.array([(low[0] + high[0]) / 2, (low[1] + high[1]) / 2, low[2]])
    return tuple(replace(part, vertices=part.vertices - base) for part in parts)


def _read_image(source: ArchiveImage, archive: zipfile.ZipFile) -> np.ndarray:
    where = f"{source.archive}, {source.name}"
    if archive.getinfo(source.name).file_size > MAX_IMAGE_BYTES:
        raise UnreadableMesh(f"{where}: more than {MAX_IMAGE_BYTES} bytes")
    try:
        image = Image.open(io.BytesIO(archive.read(source.name)), formats=FORMATS).convert("RGB")
    except (OSError, ValueError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise UnreadableMesh(f"{where}: {error}") from None
    except Image.DecompressionBombError:
        raise UnreadableMesh(f"{where}: an image with too many pixels") from None
    if min(image.size) < 128:
        raise UnreadableMesh(f"{where}: {image.size} is too small")
    image.thumbnail((512, 512), Image.Resampling.BOX)
    return np.asarray(image)
