"""Write point clouds as binary little-endian PLY: x y z, red green blue, confidence, and nx ny nz if known.

Meshes in PLY are read in `g_ray_lab.meshes.mesh_files`.
"""

from pathlib import Path

import numpy as np
from jaxtyping import Float, UInt8

from g_ray.runtime.files import write_atomically

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
