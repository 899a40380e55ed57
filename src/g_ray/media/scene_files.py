"""Write points and lines as binary glTF 2.0 (.glb) and as PLY, for Blender, browsers and MeshLab.

glTF's world has y up and z towards the viewer; a node above all others turns ours (y down, z forward) into it, so the
numbers in the file stay those of the world. Meshes in glTF are read in `g_ray_lab.meshes.mesh_files`.
"""

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8

from g_ray.runtime.files import write_atomically

# Numbers of the standard: magic and chunk types of the container, component types, primitive modes.
MAGIC, JSON_CHUNK, BINARY_CHUNK = 0x46546C67, 0x4E4F534A, 0x004E4942
FLOAT, BYTE = 5126, 5121
POINTS, LINES = 0, 1
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
    nodes = [{"name": mesh["name"], "mesh": index} for index, mesh in enumerate(meshes)]
    root = {"name": "world", "matrix": Y_UP_FROM_Y_DOWN, "children": list(range(len(nodes)))}
    document = {
        "asset": {"version": "2.0", "generator": "g-ray"},
        "scene": 0,
        "scenes": [{"nodes": [len(nodes)]}],
        "nodes": [*nodes, root],
        "meshes": meshes,
        "accessors": buffer.accessors,
        "bufferViews": buffer.views,
        "buffers": [{"byteLength": len(buffer.data)}],
    }
    write_atomically(path, _encode_container(document, bytes(buffer.data)))


class _Buffer:
    """The binary chunk, its views, and the accessors that describe its numbers."""

    def __init__(self) -> None:
        self.data, self.views, self.accessors = bytearray(), [], []

    def add(self, array: np.ndarray, component: int, **more: Any) -> int:
        """Append an array; returns the number of its accessor."""
        content = np.ascontiguousarray(array).tobytes()
        self.views.append({"buffer": 0, "byteOffset": len(self.data), "byteLength": len(content)})
        self.data += content + bytes(-len(content) % 4)  # offsets must be multiples of four
        kind = f"VEC{array.shape[1]}"
        view = len(self.views) - 1
        self.accessors.append(
            {"bufferView": view, "componentType": component, "count": len(array), "type": kind, **more}
        )
        return len(self.accessors) - 1

    def add_primitive(self, positions: np.ndarray, colors: np.ndarray, mode: int) -> dict[str, Any]:
        places = positions.astype("<f4")
        opaque = np.concatenate([colors, np.full((len(colors), 1), 255, np.uint8)], 1)
        bounds = {"min": places.min(0).tolist(), "max": places.max(0).tolist()}
        attributes = {
            "POSITION": self.add(places, FLOAT, **bounds),
            "COLOR_0": self.add(opaque, BYTE, normalized=True),
        }
        return {"attributes": attributes, "mode": mode}


def _encode_container(document: dict[str, Any], data: bytes) -> bytes:
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 4)
    chunks = struct.pack("<II", len(text), JSON_CHUNK) + text
    chunks += struct.pack("<II", len(data), BINARY_CHUNK) + data
    return struct.pack("<III", MAGIC, 2, 12 + len(chunks)) + chunks


# Point clouds as PLY
#
# Meshes in PLY are read in `g_ray_lab.meshes.mesh_files`.


VERTEX = [
    *((axis, "<f4") for axis in ("x", "y", "z")),
    *((channel, "u1") for channel in ("red", "green", "blue")),
    ("confidence", "<f4"),
]
NORMAL = [(axis, "<f4") for axis in ("nx", "ny", "nz")]
TYPES = {"f": "float", "u": "uchar"}


def write_ply(
    path: Path,
    positions: Float[np.ndarray, "n 3"],
    colors: UInt8[np.ndarray, "n 3"],
    confidence: Float[np.ndarray, "n"],
    normals: Float[np.ndarray, "n 3"] | None = None,
) -> None:
    """Write points; positions are stored in their own world, with OpenCV axes: y down."""
    kind = np.dtype(VERTEX if normals is None else VERTEX + NORMAL)
    table = np.empty(len(positions), kind)
    for index, axis in enumerate(("x", "y", "z")):
        table[axis] = positions[:, index]
    for index, channel in enumerate(("red", "green", "blue")):
        table[channel] = colors[:, index]
    table["confidence"] = confidence
    if normals is not None:
        for index, (axis, _) in enumerate(NORMAL):
            table[axis] = normals[:, index]
    properties = [f"property {TYPES[kind[name].kind]} {name}" for name in kind.names or ()]
    head = ["ply", "format binary_little_endian 1.0", "comment made by g-ray", f"element vertex {len(table)}"]
    write_atomically(path, "\n".join([*head, *properties, "end_header\n"]).encode() + table.tobytes())
