"""Read Quake-3 levels (BSP version 46) from the .pk3 archives of an installed game, in meters with z up.

A .pk3 is a zip; of two files with one name, that of the later archive (by name) counts. Nothing is unpacked to disk:
entries are read into memory, up to a size that no real file reaches. A level is polygons, meshes and quadratic Bézier
patches, all of which become triangles. Names of surfaces lead to images directly or through shader scripts; what the
engine blends over other surfaces (glass, water, beams, decals) is left out, since it has no depth of its own.

The engine multiplies stored 8-bit values of texture and light map. Powers keep products, so the product of their
linear light is the same picture in linear light.
"""

import io
import re
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int, UInt8
from PIL import Image

from g_ray_lab.meshes.mesh_files import LINEAR_OF_BYTE, Mesh

OPENARENA = Path("/usr/share/games/openarena/baseoa")
"""Where Debian's openarena packages put their archives."""
METERS_PER_UNIT = 1 / 39.37
MAGIC, VERSION, LUMPS = b"IBSP", 46, 17
ENTITIES, TEXTURES, MODELS, VERTICES, INDICES, FACES, LIGHT_MAPS = 0, 1, 7, 10, 11, 13, 14
SKY_FLAG, NOT_DRAWN_FLAG = 0x4, 0x80
POLYGON, PATCH, MESH = 1, 2, 3  # types of faces; 4 is a billboard, which has no place of its own
LIGHT_MAP_PX = 128
PATCH_STEPS = 6
"""Edges per 3×3 piece of a Bézier patch."""
FULL_BRIGHT = float(LINEAR_OF_BYTE[100])
"""Light on surfaces that the engine draws unlit; light maps are stored dark, to be doubled once or twice."""
NEUTRAL = np.full((1, 1, 3), 128, np.uint8)
"""Texture of surfaces whose image is missing."""
LARGEST = {".bsp": 256 << 20, ".shader": 4 << 20, ".tga": 64 << 20, ".jpg": 64 << 20, ".png": 64 << 20}
"""Bytes of an unpacked file, at most, by the kinds that are read."""
IMAGE_PX = 4096
"""Width and height of an image, at most."""
TEXTURE_PX = 512
"""Larger textures are reduced to this."""
IMAGE_SUFFIXES = (".tga", ".jpg", ".png")

TEXTURE = np.dtype([("name", "S64"), ("flags", "<i4"), ("contents", "<i4")])
MODEL = np.dtype([("box", "<f4", 6), ("face", "<i4"), ("faces", "<i4"), ("brushes", "<i4", 2)])
VERTEX = np.dtype(
    [("position", "<f4", 3), ("uv", "<f4", 2), ("light_uv", "<f4", 2), ("normal", "<f4", 3), ("color", "u1", 4)]
)  # fmt: skip
FACE = np.dtype(
    [
        ("texture", "<i4"), ("effect", "<i4"), ("type", "<i4"), ("vertex", "<i4"), ("vertices", "<i4"),
        ("index", "<i4"), ("indices", "<i4"), ("light_map", "<i4"), ("light_map_place", "<i4", 4),
        ("light_map_frame", "<f4", 9), ("normal", "<f4", 3), ("patch", "<i4", 2),
    ]
)  # fmt: skip


# Shader scripts


@dataclass(frozen=True)
class ShaderStage:
    """One layer of a shader."""

    image: str | None = None
    """Name of an image; None for light maps and reflections."""
    is_light_map: bool = False
    is_blended: bool = False
    has_holes: bool = False
    scale: tuple[float, float] = (1.0, 1.0)


@dataclass(frozen=True)
class Shader:
    """A surface as a script describes it."""

    stages: tuple[ShaderStage, ...] = ()
    keywords: frozenset[str] = frozenset()
    """Its parameters: sky, nodraw, fog, …, and sprite for faces that turn to the viewer."""

    @property
    def is_sky(self) -> bool:
        return "sky" in self.keywords

    @property
    def is_surface(self) -> bool:
        """Whether it hides what is behind it: nothing that is blended, from its first layer on, does."""
        if self.keywords & {"nodraw", "fog", "sprite"} or not self.stages:
            return False
        first = self.stages[0]
        return first.has_holes or not first.is_blended

    @property
    def is_lit(self) -> bool:
        return any(stage.is_light_map for stage in self.stages)

    @property
    def base(self) -> ShaderStage:
        """The layer that gives the surface its picture: the first with an image."""
        return next((stage for stage in self.stages if stage.image is not None), ShaderStage())


def parse_shaders(text: str) -> dict[str, Shader]:
    """Parse a script into shaders by name, in lower case; braces that do not match end the last shader."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    lines = [line.strip().lower() for line in re.sub(r"([{}])", r"\n\1\n", text).splitlines()]
    shaders: dict[str, Shader] = {}
    name, depth = "", 0
    general: list[list[str]] = []
    stages: list[list[list[str]]] = []
    for line in filter(None, lines):
        if line == "{":
            depth += 1
            if depth == 2:
                stages.append([])
        elif line == "}":
            depth = max(0, depth - 1)
            if depth == 0 and name:
                shaders[name] = _build_shader(general, stages)
                name, general, stages = "", [], []
        elif depth == 0:
            name = line.strip('"')
        else:
            (general if depth == 1 else stages[-1]).append(line.split())
    return shaders


def _build_shader(general: list[list[str]], stages: list[list[list[str]]]) -> Shader:
    keywords = {words[1] for words in general if words[0] == "surfaceparm" and len(words) > 1}
    keywords |= {"sprite" for words in general if words[0] == "deformvertexes" and "autosprite" in words[-1]}
    return Shader(tuple(_build_stage(stage) for stage in stages), frozenset(keywords))


def _build_stage(lines: list[list[str]]) -> ShaderStage:
    """Read the directives that matter here; the first is kept where one comes twice."""
    words = {line[0]: line[1:] for line in reversed(lines) if len(line) > 1}
    image = (words.get("map") or words.get("clampmap") or words.get("animmap", ["", ""])[1:] or [""])[0]
    blend = words.get("blendfunc", [])
    return ShaderStage(
        image=None
        if not image or image.startswith("$") or "environment" in words.get("tcgen", [])
        else image,
        is_light_map=image == "$lightmap",
        is_blended=bool(blend) and blend not in (["gl_one", "gl_zero"],),
        has_holes="alphafunc" in words,
        scale=_find_scale(lines),
    )


def _find_scale(lines: list[list[str]]) -> tuple[float, float]:
    for line in lines:
        if line[:2] == ["tcmod", "scale"] and len(line) >= 4:
            try:
                return float(line[2]), float(line[3])
            except ValueError:
                break
    return 1.0, 1.0


# Archives


@dataclass(frozen=True, eq=False)
class GameLevel:
    """The surfaces of a level, and places where players and things stand, which are in free space. Meters, z up."""

    name: str
    parts: tuple[Mesh, ...]
    places: Float[np.ndarray, "place 3"]


class LevelPackage:
    """The levels in the .pk3 archives of a folder."""

    def __init__(self, folder: Path) -> None:
        archives = sorted(Path(folder).glob("*.pk3"), key=lambda path: path.name.lower())
        if not archives:
            raise ValueError(f"{folder}: no .pk3 archives; give the folder of an installed game, as baseoa")
        self.folder = Path(folder)
        self._entries: dict[str, tuple[Path, zipfile.ZipInfo]] = {}
        self._open: dict[Path, zipfile.ZipFile] = {}
        for path in archives:
            try:
                self._open[path] = zipfile.ZipFile(path)
            except (OSError, zipfile.BadZipFile) as error:
                raise ValueError(f"{path}: not a zip archive ({error}); install the package again") from None
            for info in self._open[path].infolist():
                self._entries[info.filename.replace("\\", "/").lower()] = (path, info)
        self.names = sorted(name[5:-4] for name in self._entries if re.fullmatch(r"maps/[^/]+\.bsp", name))
        if not self.names:
            raise ValueError(f"{folder}: no levels (maps/*.bsp) in its .pk3 archives")
        self._shaders: dict[str, Shader] | None = None
        self._images: dict[str, UInt8[np.ndarray, "_ _ 3"] | None] = {}

    def read_level(self, name: str) -> GameLevel:
        """Read a level by its name; ValueError in one line if it cannot be read."""
        try:
            return build_level(name, self.read(f"maps/{name}.bsp"), self)
        except (ValueError, KeyError, IndexError, UnicodeDecodeError) as error:
            raise ValueError(f"{self.folder}: level {name}: {' '.join(str(error).split())}") from None

    def read(self, name: str) -> bytes:
        """Read an entry of the archives; ValueError if there is none or if it is too large."""
        if name not in self._entries:
            raise ValueError(f"no file {name} in the archives")
        path, info = self._entries[name]
        limit = LARGEST.get(Path(name).suffix, 0)
        if info.file_size > limit:
            raise ValueError(
                f"{path.name}: {name} has {info.file_size} bytes, more than {limit} are not read"
            )
        try:
            return self._open[path].read(info)
        except (OSError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
            raise ValueError(f"{path.name}: {name} is damaged ({error}); install the package again") from None

    @property
    def shaders(self) -> dict[str, Shader]:
        """Shaders of all scripts by name; where two have one name, the last script counts."""
        if self._shaders is None:
            scripts = sorted(n for n in self._entries if re.fullmatch(r"scripts/[^/]+\.shader", n))
            self._shaders = {}
            for script in scripts:
                self._shaders |= parse_shaders(self.read(script).decode("latin-1"))
        return self._shaders

    def load_image(self, name: str) -> UInt8[np.ndarray, "_ _ 3"] | None:
        """Load an image by its name with any suffix; None if there is none that can be read."""
        stem = re.sub(r"\.(tga|jpg|jpeg|png)$", "", name)
        if stem not in self._images:
            found = (stem + suffix for suffix in IMAGE_SUFFIXES if stem + suffix in self._entries)
            self._images[stem] = next((_decode_image(self.read(file)) for file in found), None)
        return self._images[stem]

    def __enter__(self) -> "LevelPackage":
        return self

    def __exit__(self, *_: Any) -> None:
        for archive in self._open.values():
            archive.close()


def _decode_image(content: bytes) -> UInt8[np.ndarray, "_ _ 3"] | None:
    try:
        with Image.open(io.BytesIO(content), formats=("TGA", "JPEG", "PNG")) as image:
            if max(image.size) > IMAGE_PX:
                return None
            picture = image.convert("RGB")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        return None  # a handful of packages have broken images; the engine shows a placeholder too
    picture.thumbnail((TEXTURE_PX, TEXTURE_PX), Image.Resampling.BOX)
    return np.asarray(picture)


# Levels


@dataclass(eq=False)
class _Piece:
    """Triangles of one surface and light map while a level is being read."""

    vertices: list[np.ndarray] = field(default_factory=list)
    triangles: list[np.ndarray] = field(default_factory=list)
    count: int = 0

    def add(self, vertices: np.ndarray, triangles: Int[np.ndarray, "face 3"]) -> None:
        self.vertices.append(vertices)
        self.triangles.append(triangles + self.count)
        self.count += len(vertices)


def build_level(name: str, content: bytes, package: LevelPackage) -> GameLevel:
    """Build the surfaces of a BSP file; textures come from the package. ValueError if the file is not one."""
    lumps = _split_lumps(content)
    textures = np.frombuffer(lumps[TEXTURES], TEXTURE)
    # A list, so that meshes share arrays and not only their memory: renderers store each array once.
    light_maps = list(np.frombuffer(lumps[LIGHT_MAPS], np.uint8).reshape(-1, LIGHT_MAP_PX, LIGHT_MAP_PX, 3))
    entities = list(_parse_entities(lumps[ENTITIES].decode("latin-1")))
    pieces: dict[tuple[int, int], _Piece] = {}
    for face, vertices, triangles in _iterate_faces(lumps, entities):
        key = (int(face["texture"]), int(face["light_map"]))
        if not 0 <= key[0] < len(textures):
            raise ValueError(f"a face has texture {key[0]} of {len(textures)}")
        pieces.setdefault(key, _Piece()).add(vertices, triangles)
    parts = [
        mesh
        for (texture, light_map), piece in sorted(pieces.items())
        if (mesh := _build_mesh(piece, textures[texture], light_maps, light_map, package)) is not None
    ]
    if not parts:
        raise ValueError("it has no surfaces")
    places = [
        origin
        for entity in entities
        if entity.get("classname", "").startswith(("info_player", "item_", "weapon_", "ammo_", "team_"))
        and (origin := _parse_vector(entity.get("origin"))) is not None
    ]
    return GameLevel(name, tuple(parts), np.array(places, np.float64).reshape(-1, 3) * METERS_PER_UNIT)


def _split_lumps(content: bytes) -> list[bytes]:
    header = 8 + 8 * LUMPS
    if len(content) < header or content[:4] != MAGIC:
        raise ValueError("not a BSP file of Quake 3 (no IBSP at its start)")
    version = int.from_bytes(content[4:8], "little")
    if version != VERSION:
        raise ValueError(f"BSP version {version}; version {VERSION} is read here")
    table = np.frombuffer(content[8:header], "<i4").reshape(LUMPS, 2)
    lumps = []
    for number, (start, length) in enumerate(table.tolist()):
        if start < 0 or length < 0 or start + length > len(content):
            raise ValueError(f"lump {number} leads out of the file; it is cut short or damaged")
        lumps.append(content[start : start + length])
    return lumps


def _parse_entities(text: str) -> Iterator[dict[str, str]]:
    for block in re.findall(r"\{([^{}]*)\}", text):
        yield {key.lower(): value for key, value in re.findall(r'"([^"]*)"\s+"([^"]*)"', block)}


def _parse_vector(text: str | None) -> list[float] | None:
    try:
        numbers = [float(word) for word in (text or "").split()]
    except ValueError:
        return None
    return numbers if len(numbers) == 3 and np.isfinite(numbers).all() else None


def _iterate_faces(
    lumps: Sequence[bytes], entities: Sequence[dict[str, str]]
) -> Iterator[tuple[Any, np.ndarray, Int[np.ndarray, "face 3"]]]:
    """Yield faces with their vertices and triangles, in the level's units; movable parts where they are at rest."""
    faces, vertices = np.frombuffer(lumps[FACES], FACE), np.frombuffer(lumps[VERTICES], VERTEX)
    indices = np.frombuffer(lumps[INDICES], "<i4")
    moved = {entity.get("model"): _parse_vector(entity.get("origin")) for entity in entities}
    for number, model in enumerate(np.frombuffer(lumps[MODELS], MODEL)):
        offset = moved.get(f"*{number}")
        for face in _slice(faces, model["face"], model["faces"], "faces of a model"):
            own = _slice(vertices, face["vertex"], face["vertices"], "vertices of a face").copy()
            if offset is not None:
                own["position"] += np.array(offset, np.float32)
            if face["type"] in (POLYGON, MESH):
                triangles = _slice(indices, face["index"], face["indices"], "indices of a face")
                # Corners turn clockwise in the file, seen from the front; counterclockwise here.
                triangles = triangles[: len(triangles) // 3 * 3].reshape(-1, 3)[:, ::-1].astype(np.int64)
                if triangles.size and not 0 <= triangles.min() <= triangles.max() < len(own):
                    raise ValueError("a face uses vertices that it does not have")
                yield face, own, triangles
            elif face["type"] == PATCH:
                yield face, *_tessellate(own, *face["patch"].tolist())


def _slice(table: np.ndarray, start: Any, count: Any, what: str) -> np.ndarray:
    if start < 0 or count < 0 or int(start) + int(count) > len(table):
        raise ValueError(f"the {what} lie outside of their table; the file is damaged")
    return table[int(start) : int(start) + int(count)]


def _tessellate(control: np.ndarray, columns: int, rows: int) -> tuple[np.ndarray, Int[np.ndarray, "face 3"]]:
    """Evaluate a grid of quadratic Bézier pieces, which share control points at their borders."""
    if columns < 3 or rows < 3 or columns % 2 == 0 or rows % 2 == 0 or columns * rows != len(control):
        raise ValueError(f"a patch of {columns}×{rows} control points with {len(control)} vertices")
    across, down = _make_bezier_matrix(columns), _make_bezier_matrix(rows)
    width, height = len(across), len(down)
    fine = np.zeros(width * height, VERTEX)
    for name in ("position", "uv", "light_uv", "color"):
        grid = control[name].reshape(rows, columns, -1).astype(np.float64)
        fine[name] = np.einsum("rR,cC,RCx->rcx", down, across, grid, optimize=True).reshape(
            width * height, -1
        )
    corner = np.arange(width * height).reshape(height, width)
    a, b, c, d = corner[:-1, :-1], corner[:-1, 1:], corner[1:, 1:], corner[1:, :-1]
    # Patches turn the other way than polygons: these corners are counterclockwise from the front.
    triangles = np.stack([np.stack([a, b, c], -1), np.stack([a, c, d], -1)], 2)
    return fine, triangles.reshape(-1, 3)


def _make_bezier_matrix(count: int) -> Float[np.ndarray, "place control"]:
    """Weights of control points at places along a row of pieces: (1−t)², 2t(1−t), t² of the three of a piece."""
    pieces = (count - 1) // 2
    place = np.linspace(0, pieces, pieces * PATCH_STEPS + 1)
    piece = np.minimum(place.astype(int), pieces - 1)
    t = place - piece
    matrix = np.zeros((len(place), count))
    for i, weight in enumerate(((1 - t) ** 2, 2 * t * (1 - t), t**2)):
        matrix[np.arange(len(place)), 2 * piece + i] = weight
    return matrix


def _build_mesh(
    piece: _Piece,
    texture: Any,
    light_maps: Sequence[UInt8[np.ndarray, "_ _ 3"]],
    light_map: int,
    package: LevelPackage,
) -> Mesh | None:
    """Build the mesh of a surface, or None where nothing is drawn that has a depth."""
    # Some tools leave garbage behind the end of the name.
    name = bytes(texture["name"]).split(b"\0")[0].decode("latin-1").lower()
    shader = package.shaders.get(name, Shader((ShaderStage(name), ShaderStage(is_light_map=True))))
    is_sky = bool(texture["flags"] & SKY_FLAG) or shader.is_sky
    if not is_sky and (texture["flags"] & NOT_DRAWN_FLAG or not shader.is_surface):
        return None
    vertices, triangles = np.concatenate(piece.vertices), np.concatenate(piece.triangles)
    if not len(triangles):
        return None
    position = vertices["position"].astype(np.float64) * METERS_PER_UNIT
    if is_sky:
        return Mesh(position, triangles, np.zeros((len(position), 3), np.float32), sky=True)
    image = package.load_image(shader.base.image or name)
    uv = vertices["uv"] * np.array(shader.base.scale, np.float32)
    tint, light = _find_light(shader, vertices, light_maps, light_map)
    return Mesh(
        position,
        triangles,
        tint,
        uv=_flip(uv),
        texture=NEUTRAL if image is None else image,
        light_uv=None if light is None else _flip(vertices["light_uv"]),
        light_map=light,
    )


def _flip(uv: np.ndarray) -> Float[np.ndarray, "vertex 2"]:
    """Count v from the lower border, as `Mesh` does; in the file it counts from the upper one."""
    return np.stack([uv[:, 0], 1 - uv[:, 1]], -1).astype(np.float32)


def _find_light(
    shader: Shader, vertices: np.ndarray, light_maps: Sequence[UInt8[np.ndarray, "_ _ 3"]], light_map: int
) -> tuple[Float[np.ndarray, "vertex 3"], UInt8[np.ndarray, "row column 3"] | None]:
    """Return light per vertex and the light map: one of the two holds the baked light, or neither does."""
    count = len(vertices)
    if not shader.is_lit:
        return np.full((count, 3), FULL_BRIGHT, np.float32), None
    if 0 <= light_map < len(light_maps):
        return np.ones((count, 3), np.float32), light_maps[light_map]
    return LINEAR_OF_BYTE[vertices["color"][:, :3]], None
