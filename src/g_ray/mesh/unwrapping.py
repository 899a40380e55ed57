"""Unwrap a mesh: charts of neighboring faces that face one of six directions, projected along it and packed in rows.

Charts of an angle-preserving parameterization (xatlas) waste less of a texture, but took 28 CPU seconds for 60,000
faces of a reconstructed room, where these take one.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from g_ray.mesh.surface_mesh import SurfaceMesh, find_components

SMOOTHING = 6
"""Times that normals are averaged with those of neighboring faces before directions are chosen."""
FLATTEST = 0.15
"""Cosine between a face and the direction of its chart, below which the face gets the direction of its own normal."""
PADDING = 2
"""Texels between charts."""


@dataclass(frozen=True, eq=False)
class Unwrapped:
    """A mesh whose vertices have one place in the texture each, and the texture's size."""

    mesh: SurfaceMesh
    """With `uv`; vertices on borders of charts are doubled."""
    source: Int[np.ndarray, "vertex"]
    """Vertex of the mesh before, of each vertex."""
    width: int
    height: int
    density: float
    """Texels per unit of length."""


def unwrap(mesh: SurfaceMesh, density: float, max_size: int) -> Unwrapped:
    """Give faces places in a texture with `density` texels per unit of length, or with fewer if `max_size` needs it."""
    pairs = mesh.list_neighbors()
    direction = _choose_directions(mesh, pairs)
    same = direction[pairs[:, 0]] == direction[pairs[:, 1]]
    _, chart = np.unique(find_components(len(mesh.faces), pairs[same]), return_inverse=True)
    # One vertex for each chart that uses it.
    keys = chart[:, None].astype(np.int64) * len(mesh.vertices) + mesh.faces
    used, corners = np.unique(keys, return_inverse=True)
    source, own_chart = used % len(mesh.vertices), used // len(mesh.vertices)
    facing = np.zeros(chart.max() + 1, np.int64)
    facing[chart] = direction
    flat = _project(mesh.vertices[source], facing[own_chart])
    low, extent = _find_extents(flat, own_chart)
    density, width, height, place = _fit(extent, density, max_size)
    texels = (flat - low[own_chart]) * density + PADDING + place[own_chart]
    uv = (texels / [width, height]).astype(np.float32)
    unwrapped = SurfaceMesh(mesh.vertices[source], corners.reshape(-1, 3).astype(np.int32), uv=uv)
    return Unwrapped(unwrapped, source, width, height, density)


def _choose_directions(mesh: SurfaceMesh, pairs: Int[np.ndarray, "pair 2"]) -> Int[np.ndarray, "face"]:
    """Choose for each face one of +x −x +y −y +z −z that its neighborhood faces."""
    own = mesh.compute_face_normals()
    own /= np.maximum(np.linalg.norm(own, axis=1, keepdims=True), 1e-300)
    smooth = own
    for _ in range(SMOOTHING):
        total = smooth.copy()
        for side in (0, 1):
            for axis in range(3):
                total[:, axis] += np.bincount(pairs[:, side], smooth[pairs[:, 1 - side], axis], len(total))
        smooth = total / np.maximum(np.linalg.norm(total, axis=1, keepdims=True), 1e-300)
    direction = _find_nearest_axis(smooth)
    toward = own[np.arange(len(own)), direction // 2] * np.where(direction % 2, -1, 1)
    return np.where(toward < FLATTEST, _find_nearest_axis(own), direction)


def _find_nearest_axis(normals: Float[np.ndarray, "face 3"]) -> Int[np.ndarray, "face"]:
    axis = np.abs(normals).argmax(1)
    return 2 * axis + (normals[np.arange(len(normals)), axis] < 0)


def _project(points: Float[np.ndarray, "n 3"], direction: Int[np.ndarray, "n"]) -> Float[np.ndarray, "n 2"]:
    """Drop the coordinate along the direction; mirrored for negative ones, so that no chart is turned over."""
    axis = direction // 2
    rows = np.arange(len(points))
    u, v = points[rows, (axis + 1) % 3], points[rows, (axis + 2) % 3]
    return np.stack([np.where(direction % 2, -u, u), v], 1)


def _find_extents(
    flat: Float[np.ndarray, "vertex 2"], chart: Int[np.ndarray, "vertex"]
) -> tuple[Float[np.ndarray, "chart 2"], Float[np.ndarray, "chart 2"]]:
    """Return the lowest coordinates and the size of every chart; vertices are sorted by chart."""
    starts = np.nonzero(np.diff(chart, prepend=-1))[0]
    low = np.minimum.reduceat(flat, starts)
    return low, np.maximum.reduceat(flat, starts) - low


SHRINK = 0.95


def _fit(
    extent: Float[np.ndarray, "chart 2"], density: float, max_size: int
) -> tuple[float, int, int, Int[np.ndarray, "chart 2"]]:
    """Pack charts, with fewer texels per unit until they fit."""
    while True:
        size = np.ceil(extent * density).astype(np.int64) + 2 * PADDING + 1
        width = int(min(max_size, max(size[:, 0].max(), np.sqrt(size.prod(1).sum() * 1.1))))
        if size[:, 0].max() <= max_size:
            place, height = _pack_rows(size, width)
            if height <= max_size:
                return density, width, height, place
        density *= SHRINK


def _pack_rows(size: Int[np.ndarray, "chart 2"], width: int) -> tuple[Int[np.ndarray, "chart 2"], int]:
    """Place charts in rows, the highest first; returns their top-left corners and the height of all rows."""
    place = np.zeros_like(size)
    left, top, row_height = 0, 0, 0
    for chart in np.argsort(-size[:, 1], kind="stable"):
        across, down = size[chart]
        if left + across > width:
            left, top, row_height = 0, top + row_height, 0
        row_height = row_height or int(down)
        place[chart] = left, top
        left += int(across)
    return place, top + row_height
