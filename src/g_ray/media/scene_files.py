"""Write points, lines and triangles as binary glTF 2.0 (.glb) and as PLY, for Blender, browsers and MeshLab.

glTF's world has y up and z towards the viewer; a node above all others turns ours (y down, z forward) into it, so the
numbers in the file stay those of the world. Meshes in glTF are read in `g_ray_lab.meshes.mesh_files`.
"""

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, UInt8

from g_ray.runtime.files import write_atomically

# Numbers of the standard: magic and chunk types of the container, component types, primitive modes.
MAGIC, JSON_CHUNK, BINARY_CHUNK = 0x46546C67, 0x4E4F534A, 0x004E4942
FLOAT, BYTE, INTEGER = 5126, 5121, 5125
POINTS, LINES = 0, 1
CLAMP = 33071
Y_UP_FROM_Y_DOWN = [1.0, 0, 0, 0, 0, -1.0, 0, 0, 0, 0, -1.0, 0, 0, 0, 0, 1.0]
LINE_COLOR = (224, 130, 20)


def write_glb(
    path: Path,
    positions: Float[np.ndarray, "n 3"],
    colors: UInt8[np.ndarray, "n 3"],
    lines: Sequence[tuple[str, Float[np.ndarray, "_ 2 3"]]],
) -> None:
    """Write a node of colored points, and for each of `lines` a node with a name and line segments."""
    buffer = _Buffer()
    meshes = []
    if len(positions):  # a mesh without points is not valid
        meshes.append({"name": "points", "primitives": [buffer.add_primitive(positions, colors, POINTS)]})
    for name, segments in lines:
        ends = segments.reshape(-1, 3)
        line_colors = np.tile(np.array(LINE_COLOR, np.uint8), (len(ends), 1))
        meshes.append({"name": name, "primitives": [buffer.add_primitive(ends, line_colors, LINES)]})
    write_atomically(path, buffer.encode(meshes))


def write_mesh_glb(
    path: Path,
    vertices: Float[np.ndarray, "vertex 3"],
    faces: Int[np.ndarray, "face 3"],
    colors: UInt8[np.ndarray, "vertex 3"] | None = None,
    uv: Float[np.ndarray, "vertex 2"] | None = None,
    jpeg: bytes | None = None,
) -> None:
    """Write triangles with a texture, an encoded JPEG at `uv`, or with colors (sRGB) of vertices.

    The material is unlit (KHR_materials_unlit): photographs have their light in them already.
    """
    buffer = _Buffer()
    attributes = {"POSITION": buffer.add_positions(vertices)}
    paint: dict[str, Any] = {"metallicFactor": 0.0, "roughnessFactor": 1.0}
    more: dict[str, Any] = {"extensionsUsed": ["KHR_materials_unlit"]}
    if uv is not None and jpeg is not None:
        attributes["TEXCOORD_0"] = buffer.add(uv.astype("<f4"), FLOAT)
        paint["baseColorTexture"] = {"index": 0}
        more["images"] = [{"bufferView": buffer.add_bytes(jpeg), "mimeType": "image/jpeg"}]
        more["samplers"] = [{"wrapS": CLAMP, "wrapT": CLAMP}]
        more["textures"] = [{"source": 0, "sampler": 0}]
    elif colors is not None:
        attributes["COLOR_0"] = buffer.add_colors(_to_linear_bytes(colors))
    corners = buffer.add(faces.astype("<u4").reshape(-1, 1), INTEGER)
    more["materials"] = [{"pbrMetallicRoughness": paint, "extensions": {"KHR_materials_unlit": {}}}]
    primitive = {"attributes": attributes, "indices": corners, "material": 0}
    write_atomically(path, buffer.encode([{"name": "mesh", "primitives": [primitive]}], **more))


def _to_linear_bytes(colors: UInt8[np.ndarray, "n 3"]) -> UInt8[np.ndarray, "n 3"]:
    """Convert sRGB to linear light, which colors of vertices are by the standard."""
    values = np.arange(256) / 255
    linear = np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
    return np.rint(255 * linear).astype(np.uint8)[colors]


class _Buffer:
    """The binary chunk, its views, and the accessors that describe its numbers."""

    def __init__(self) -> None:
        self.data, self.views, self.accessors = bytearray(), [], []

    def add(self, array: np.ndarray, component: int, **more: Any) -> int:
        """Append an array; returns the number of its accessor."""
        kind = "SCALAR" if array.shape[1] == 1 else f"VEC{array.shape[1]}"
        view = self.add_bytes(np.ascontiguousarray(array).tobytes())
        self.accessors.append(
            {"bufferView": view, "componentType": component, "count": len(array), "type": kind, **more}
        )
        return len(self.accessors) - 1

    def add_bytes(self, content: bytes) -> int:
        """Append bytes; returns the number of their view."""
        self.views.append({"buffer": 0, "byteOffset": len(self.data), "byteLength": len(content)})
        self.data += content + bytes(-len(content) % 4)  # offsets must be multiples of four
        return len(self.views) - 1

    def add_positions(self, positions: np.ndarray) -> int:
        places = positions.astype("<f4")
        return self.add(places, FLOAT, min=places.min(0).tolist(), max=places.max(0).tolist())

    def add_colors(self, colors: np.ndarray) -> int:
        opaque = np.concatenate([colors, np.full((len(colors), 1), 255, np.uint8)], 1)
        return self.add(opaque, BYTE, normalized=True)

    def add_primitive(self, positions: np.ndarray, colors: np.ndarray, mode: int) -> dict[str, Any]:
        attributes = {"POSITION": self.add_positions(positions), "COLOR_0": self.add_colors(colors)}
        return {"attributes": attributes, "mode": mode}

    def encode(self, meshes: Sequence[dict[str, Any]], **more: Any) -> bytes:
        """Return a file with a node for each mesh, below one that turns the world."""
        nodes = [{"name": mesh["name"], "mesh": index} for index, mesh in enumerate(meshes)]
        root = {"name": "world", "matrix": Y_UP_FROM_Y_DOWN, "children": list(range(len(nodes)))}
        document = {
            "asset": {"version": "2.0", "generator": "g-ray"},
            "scene": 0,
            "scenes": [{"nodes": [len(nodes)]}],
            "nodes": [*nodes, root],
            "meshes": meshes,
            "accessors": self.accessors,
            "bufferViews": self.views,
            "buffers": [{"byteLength": len(self.data)}],
            **more,
        }
        return _encode_container(document, bytes(self.data))


def _encode_container(document: dict[str, Any], data: bytes) -> bytes:
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 4)
    chunks = struct.pack("<II", len(text), JSON_CHUNK) + text
    chunks += struct.pack("<II", len(data), BINARY_CHUNK) + data
    return struct.pack("<III", MAGIC, 2, 12 + len(chunks)) + chunks


# PLY
#
# Meshes of any kind are read in `g_ray_lab.meshes.mesh_files`.


PLACE = [(axis, "<f4") for axis in ("x", "y", "z")]
COLOR = [(channel, "u1") for channel in ("red", "green", "blue")]
VERTEX = [*PLACE, *COLOR, ("confidence", "<f4")]
FILLED = ("filled", "u1")
NORMAL = [(axis, "<f4") for axis in ("nx", "ny", "nz")]
FACE = np.dtype([("count", "u1"), ("corners", "<i4", 3)])
TYPES = {"f": "float", "u": "uchar"}
NUMBERS = {"float": "<f4", "double": "<f8", "uchar": "u1", "int": "<i4", "uint": "<u4"}
HEAD = ["ply", "format binary_little_endian 1.0", "comment made by g-ray"]


def write_ply(
    path: Path,
    positions: Float[np.ndarray, "n 3"],
    colors: UInt8[np.ndarray, "n 3"],
    confidence: Float[np.ndarray, "n"],
    normals: Float[np.ndarray, "n 3"] | None = None,
    filled: Bool[np.ndarray, "n"] | None = None,
) -> None:
    """Write points; positions are stored in their own world, with OpenCV axes: y down.

    Where some are `filled`, guesses, the property of this name is 1 for them.
    """
    marked = filled is not None and bool(filled.any())
    columns = [*VERTEX, *(NORMAL if normals is not None else ()), *([FILLED] if marked else ())]
    table = np.empty(len(positions), np.dtype(columns))
    _fill(table, PLACE, positions)
    _fill(table, COLOR, colors)
    table["confidence"] = confidence
    if normals is not None:
        _fill(table, NORMAL, normals)
    if marked:
        table["filled"] = filled
    head = [*HEAD, *_describe_vertices(table), "end_header\n"]
    write_atomically(path, "\n".join(head).encode() + table.tobytes())


def write_mesh_ply(
    path: Path,
    vertices: Float[np.ndarray, "vertex 3"],
    faces: Int[np.ndarray, "face 3"],
    colors: UInt8[np.ndarray, "vertex 3"] | None = None,
) -> None:
    """Write triangles with colors of their vertices, in their own world."""
    table = np.empty(len(vertices), np.dtype(PLACE if colors is None else PLACE + COLOR))
    _fill(table, PLACE, vertices)
    if colors is not None:
        _fill(table, COLOR, colors)
    triangles = np.empty(len(faces), FACE)
    triangles["count"], triangles["corners"] = 3, faces
    head = [*HEAD, *_describe_vertices(table), f"element face {len(faces)}"]
    head += ["property list uchar int vertex_indices", "end_header\n"]
    write_atomically(path, "\n".join(head).encode() + table.tobytes() + triangles.tobytes())


def read_mesh_ply(path: Path) -> tuple[Float[np.ndarray, "vertex 3"], Int[np.ndarray, "face 3"]]:
    """Read the triangles of a binary PLY as COLMAP and g-ray write it; colors are ignored."""
    head, _, content = path.read_bytes().partition(b"end_header\n")
    words = [line.split() for line in head.decode("ascii").splitlines()]
    counts = {line[1]: int(line[2]) for line in words if line[0] == "element"}
    plain = [(line[2], NUMBERS[line[1]]) for line in words if line[0] == "property" and line[1] != "list"]
    lists = next(line for line in words if line[:2] == ["property", "list"])
    kind = np.dtype(plain)
    table = np.frombuffer(content, kind, counts["vertex"])
    triangle = np.dtype([("count", NUMBERS[lists[2]]), ("corners", NUMBERS[lists[3]], 3)])
    faces = np.frombuffer(content, triangle, counts["face"], table.nbytes)
    vertices = np.stack([table[axis] for axis, _ in PLACE], 1).astype(np.float64)
    return vertices, faces["corners"].astype(np.int32)


def _fill(table: np.ndarray, columns: Sequence[tuple[str, str]], values: np.ndarray) -> None:
    for index, (name, _) in enumerate(columns):
        table[name] = values[:, index]


def _describe_vertices(table: np.ndarray) -> list[str]:
    kind = table.dtype
    properties = [f"property {TYPES[kind[name].kind]} {name}" for name in kind.names or ()]
    return [f"element vertex {len(table)}", *properties]
