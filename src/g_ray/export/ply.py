"""points.ply: binary little-endian, x y z, red green blue, confidence."""

from pathlib import Path

import numpy as np

from g_ray.export.points import PointCloud
from g_ray.files import write_atomically

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
