"""Surfaces from which rooms and simple furniture are built: panels, boxes, and meshes cut finely enough to be lit.

Light is stored at vertices, so a surface shows no finer shadow than its triangles.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from jaxtyping import Bool, Float

from g_ray_lab.meshes.mesh_files import Mesh, cross_edges, join_triangles
from g_ray_lab.textured.patterns import Material

Vector = Sequence[float | int] | np.ndarray
"""Three numbers."""

UP = np.array([0.0, 0.0, 1.0])
CELL = 0.2  # meters between the vertices of large surfaces
MAX_EDGE = 0.35  # of furniture


@dataclass(frozen=True, eq=False)
class Surface:
    """A mesh of a scene before it is lit."""

    mesh: Mesh
    glows: bool = False
    """Shows its own color whatever the light, and casts no shadow: lamps, and the world behind windows."""


def space_evenly(low: float, high: float, cell: float = CELL, between: Sequence[float] = ()) -> np.ndarray:
    """Space values at most `cell` apart from `low` to `high`, with all values of `between` among them."""
    stops = np.unique(np.round([low, *(value for value in between if low < value < high), high], 6))
    parts = [
        np.linspace(a, b, max(int(np.ceil((b - a) / cell)), 1), endpoint=False) for a, b in pairwise(stops)
    ]
    return np.concatenate([*parts, stops[-1:]])


def make_panel(
    corner: Vector,
    along: Vector,
    up: Vector,
    steps: tuple[np.ndarray, np.ndarray],
    material: Material,
    keep: Bool[np.ndarray, "row column"] | None = None,
    shift: tuple[float, float] = (0.0, 0.0),
) -> Mesh:
    """Make a flat grid, corner + s · along + t · up for unit vectors, that shows `material` at its size.

    `steps` are the values of s and t. Only the cells between them that are in `keep` are made. The front side, which
    sees along × up towards it, is lit like the back side.
    """
    s, t = np.meshgrid(*steps, indexing="xy")
    vertices = np.asarray(corner) + s[..., None] * np.asarray(along) + t[..., None] * np.asarray(up)
    columns, rows = len(steps[0]), len(steps[1])
    first = (np.arange(rows - 1)[:, None] * columns + np.arange(columns - 1))[
        np.ones((rows - 1, columns - 1), bool) if keep is None else keep
    ]
    right, above, across = first + 1, first + columns, first + columns + 1
    faces = np.concatenate([np.stack([first, right, across], -1), np.stack([first, across, above], -1)])
    uv = (np.stack([s, t], -1).reshape(-1, 2) / material.meters + shift).astype(np.float32)
    vertices = vertices.reshape(-1, 3).astype(np.float64)
    return Mesh(vertices, faces, np.ones_like(vertices, dtype=np.float32), uv, material.image)


def make_picture(
    corner: Vector,
    along: Vector,
    up: Vector,
    size: tuple[float, float],
    image: np.ndarray,
    tint: float = 1.0,
    cell: float = CELL,
) -> Mesh:
    """Make a flat grid that shows one image as a whole."""
    steps = (space_evenly(0.0, size[0], cell), space_evenly(0.0, size[1], cell))
    panel = make_panel(corner, along, up, steps, Material(image, 1.0))
    assert panel.uv is not None
    return replace(
        panel, uv=panel.uv / np.array(size, np.float32), repeat=False, tint=panel.tint * np.float32(tint)
    )


def make_box(
    low: Vector,
    high: Vector,
    material: Material,
    cell: float = MAX_EDGE,
    shift: float = 0.0,
) -> Mesh:
    """Make the six sides of a box with axis-aligned edges, facing outward."""
    low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
    axes, size = np.eye(3), high - low
    sides = []
    for axis in range(3):
        i, j = ((1, 2), (0, 2), (0, 1))[axis]
        steps = (space_evenly(0.0, float(size[i]), cell), space_evenly(0.0, float(size[j]), cell))
        for end in (0.0, size[axis]):
            # Each pair of sides shows another piece of the material.
            place = (shift + 0.37 * axis, shift)
            side = make_panel(low + end * axes[axis], axes[i], axes[j], steps, material, shift=place)
            # y × z and x × y point along their axis, x × z against it: turn the sides that face inward.
            inward = (axis == 1) == (end > 0)
            sides.append(replace(side, faces=side.faces[:, ::-1].copy()) if inward else side)
    return join_meshes(sides)


def join_meshes(parts: Sequence[Mesh]) -> Mesh:
    """Join meshes that share the texture of the first."""
    vertices, faces = join_triangles(parts)
    tint = np.concatenate([part.tint for part in parts])
    uv = [part.uv for part in parts if part.uv is not None]
    return replace(parts[0], vertices=vertices, faces=faces, tint=tint, uv=np.concatenate(uv) if uv else None)


def place_mesh(mesh: Mesh, position: Vector, yaw_rad: float = 0.0) -> Mesh:
    """Turn a mesh about the z axis, then move it."""
    cos, sin = np.cos(yaw_rad), np.sin(yaw_rad)
    turn = np.array([[cos, -sin, 0], [sin, cos, 0], [0, 0, 1.0]])
    return replace(mesh, vertices=mesh.vertices @ turn.T + np.asarray(position))


# Furniture from files


def split_creases(mesh: Mesh) -> Mesh:
    """Give the triangles around a vertex vertices of their own, one for each of the six directions they mostly face.

    Models share vertices across the edges of a box, where light and box-mapped textures jump.
    """
    normals = cross_edges(mesh.vertices, mesh.faces)
    axis = np.abs(normals).argmax(-1)
    direction = 2 * axis + (np.take_along_axis(normals, axis[:, None], 1)[:, 0] < 0)
    keys, index = np.unique(mesh.faces * 6 + direction[:, None], return_inverse=True)
    vertex = keys // 6
    return replace(
        mesh,
        vertices=mesh.vertices[vertex],
        faces=index.reshape(-1, 3),
        tint=mesh.tint[vertex],
        uv=None if mesh.uv is None else mesh.uv[vertex],
    )


def map_material(mesh: Mesh, material: Material, tint: Float[np.ndarray, "vertex 3"]) -> Mesh:
    """Cover a mesh that `split_creases` cut with a material, projected along the axis that each triangle faces."""
    axis = np.abs(cross_edges(mesh.vertices, mesh.faces)).argmax(-1)
    along = np.zeros(len(mesh.vertices), np.int64)
    along[mesh.faces] = axis[:, None]
    # Upright surfaces show the material upright: its second axis is z.
    first, second = np.array([1, 0, 0])[along], np.array([2, 2, 1])[along]
    rows = np.arange(len(mesh.vertices))
    uv = np.stack([mesh.vertices[rows, first], mesh.vertices[rows, second]], -1) / material.meters
    return replace(mesh, uv=uv.astype(np.float32), texture=material.image, tint=tint, repeat=True)


def subdivide(mesh: Mesh, max_edge: float = MAX_EDGE, max_faces: int = 60_000) -> Mesh:
    """Halve triangles at their longest edges until none is longer than `max_edge`, or there are too many."""
    vertices, faces, tint, uv = mesh.vertices, mesh.faces, mesh.tint, mesh.uv
    while len(faces) < max_faces:
        corners = vertices[faces]
        length = np.linalg.norm(corners - np.roll(corners, -1, 1), axis=-1)
        long = np.flatnonzero(length.max(-1) > max_edge)
        if not len(long):
            break
        # Turn each long triangle so that its longest edge comes first.
        turn = (np.arange(3) + length[long].argmax(-1)[:, None]) % 3
        a, b, c = np.take_along_axis(faces[long], turn, 1).T
        middle = len(vertices) + np.arange(len(long))
        vertices = np.concatenate([vertices, (vertices[a] + vertices[b]) / 2])
        tint = np.concatenate([tint, (tint[a] + tint[b]) / 2])
        uv = None if uv is None else np.concatenate([uv, (uv[a] + uv[b]) / 2])
        faces = np.delete(faces, long, axis=0)
        faces = np.concatenate([faces, np.stack([a, middle, c], -1), np.stack([middle, b, c], -1)])
    return replace(mesh, vertices=vertices, faces=faces, tint=tint, uv=uv)
