"""scene.glb: points and camera frusta as one binary glTF 2.0 file, for Blender, browsers and MeshLab.

glTF's world has y up and z towards the reader; a node above everything turns ours (y down, z forward) into it, so the
numbers in the file stay those of points.ply.
"""

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from g_ray.export.points import PointCloud
from g_ray.runtime.files import write_atomically

MAGIC, JSON_CHUNK, BINARY_CHUNK = 0x46546C67, 0x4E4F534A, 0x004E4942
FLOAT, BYTE = 5126, 5121
POINTS, LINES = 0, 1
UP_FROM_DOWN = [1.0, 0, 0, 0, 0, -1.0, 0, 0, 0, 0, -1.0, 0, 0, 0, 0, 1.0]
FRUSTUM_COLOR = (224, 130, 20)


class _Buffer:
    """glTF's parts that numbers go through: one binary chunk, its views, and accessors that say what they are."""

    def __init__(self) -> None:
        self.data, self.views, self.accessors = bytearray(), [], []

    def add(self, array: np.ndarray, component: int, **more: Any) -> int:
        content = np.ascontiguousarray(array).tobytes()
        self.views.append({"buffer": 0, "byteOffset": len(self.data), "byteLength": len(content)})
        self.data += content + bytes(-len(content) % 4)
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


def write_glb(path: Path, cloud: PointCloud, frusta: Sequence[tuple[str, np.ndarray]]) -> None:
    """`frusta`: names and line segments [s 2 3], a node each."""
    buffer = _Buffer()
    meshes = [{"name": "points", "primitives": [buffer.add_primitive(cloud.positions, cloud.colors, POINTS)]}]
    for name, segments in frusta:
        ends = segments.reshape(-1, 3)
        colors = np.tile(np.array(FRUSTUM_COLOR, np.uint8), (len(ends), 1))
        meshes.append({"name": name, "primitives": [buffer.add_primitive(ends, colors, LINES)]})
    nodes = [{"name": mesh["name"], "mesh": index} for index, mesh in enumerate(meshes)]
    root = {"name": "world", "matrix": UP_FROM_DOWN, "children": list(range(len(nodes)))}
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


def _encode_container(document: dict[str, Any], data: bytes) -> bytes:
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 4)
    chunks = struct.pack("<II", len(text), JSON_CHUNK) + text
    chunks += struct.pack("<II", len(data), BINARY_CHUNK) + data
    return struct.pack("<III", MAGIC, 2, 12 + len(chunks)) + chunks


# points.ply: binary little-endian, x y z, red green blue, confidence.


VERTEX = np.dtype(
    [
        *((axis, "<f4") for axis in ("x", "y", "z")),
        *((channel, "u1") for channel in ("red", "green", "blue")),
        ("confidence", "<f4"),
    ]
)
NAMES = {"f": "float", "u": "uchar"}


def write_ply(path: Path, cloud: PointCloud) -> None:
    """Positions in the world of the result: OpenCV axes of the first view's kind, y down."""
    table = np.empty(len(cloud), VERTEX)
    for index, axis in enumerate(("x", "y", "z")):
        table[axis] = cloud.positions[:, index]
    for index, channel in enumerate(("red", "green", "blue")):
        table[channel] = cloud.colors[:, index]
    table["confidence"] = cloud.confidence
    properties = [f"property {NAMES[VERTEX[name].kind]} {name}" for name in VERTEX.names or ()]
    head = ["ply", "format binary_little_endian 1.0", "comment made by g-ray", f"element vertex {len(cloud)}"]
    write_atomically(path, "\n".join([*head, *properties, "end_header\n"]).encode() + table.tobytes())
