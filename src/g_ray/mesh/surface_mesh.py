"""Triangles of a reconstructed surface, and operations on their graph: parts, rings of neighbors, finer triangles."""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int, UInt8


@dataclass(frozen=True, eq=False)
class SurfaceMesh:
    """Triangles in the world; their corners turn counterclockwise seen from outside, in a right-handed frame."""

    vertices: Float[np.ndarray, "vertex 3"]
    faces: Int[np.ndarray, "face 3"]
    colors: UInt8[np.ndarray, "vertex 3"] | None = None
    uv: Float[np.ndarray, "vertex 2"] | None = None
    """Place in the texture: (0, 0) is its top-left corner and (1, 1) its bottom-right one, as in glTF."""
    texture: UInt8[np.ndarray, "row column 3"] | None = None

    def select_faces(self, keep: Bool[np.ndarray, "face"]) -> "SurfaceMesh":
        """Keep some of the faces, and the vertices that they use."""
        faces = self.faces[keep]
        used, corners = np.unique(faces, return_inverse=True)
        return replace(
            self,
            vertices=self.vertices[used],
            faces=corners.reshape(-1, 3).astype(np.int32),
            colors=None if self.colors is None else self.colors[used],
            uv=None if self.uv is None else self.uv[used],
        )

    def compute_face_normals(self) -> Float[np.ndarray, "face 3"]:
        """Return the normals of triangles, twice their area long."""
        a, b, c = (self.vertices[self.faces[:, corner]] for corner in range(3))
        return np.cross(b - a, c - a)

    def compute_normals(self) -> Float[np.ndarray, "vertex 3"]:
        """Return unit normals of vertices: those of their triangles, weighted by area."""
        total = np.zeros((len(self.vertices), 3))
        normals = self.compute_face_normals()
        for corner in range(3):
            for axis in range(3):
                total[:, axis] += np.bincount(
                    self.faces[:, corner], normals[:, axis], minlength=len(self.vertices)
                )
        return total / np.maximum(np.linalg.norm(total, axis=1, keepdims=True), 1e-300)

    def list_edges(self) -> Int[np.ndarray, "edge 2"]:
        """Return every edge of every triangle, smaller vertex first; an inner edge is there twice."""
        return np.sort(self.faces[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2), axis=1)

    def list_neighbors(self) -> Int[np.ndarray, "pair 2"]:
        """Return pairs of faces that share an edge."""
        edges = self.list_edges().astype(np.int64)
        keys = edges[:, 0] * len(self.vertices) + edges[:, 1]
        order = np.argsort(keys, kind="stable")
        same = np.nonzero(keys[order][1:] == keys[order][:-1])[0]
        return np.stack([order[same] // 3, order[same + 1] // 3], 1)


def find_components(count: int, pairs: Int[np.ndarray, "pair 2"]) -> Int[np.ndarray, "n"]:
    """Return for each of `count` things the smallest number that pairs connect it with."""
    label = np.arange(count)
    while True:
        before = label.copy()
        low = np.minimum(label[pairs[:, 0]], label[pairs[:, 1]])
        for side in (0, 1):
            # Roots take the smaller label too, so that long chains join in few steps.
            np.minimum.at(label, before[pairs[:, side]], low)
            np.minimum.at(label, pairs[:, side], low)
        label = label[label]
        if np.array_equal(label, before):
            return label


def spread(
    chosen: Bool[np.ndarray, "vertex"], edges: Int[np.ndarray, "edge 2"], rings: int
) -> Bool[np.ndarray, "vertex"]:
    """Return the chosen vertices and those at most `rings` edges away."""
    chosen = chosen.copy()
    for _ in range(rings):
        before = chosen.copy()
        chosen[edges[:, 0]] |= before[edges[:, 1]]
        chosen[edges[:, 1]] |= before[edges[:, 0]]
    return chosen


def drop_small_parts(mesh: SurfaceMesh, share: float) -> SurfaceMesh:
    """Drop connected parts with less than a share of all faces."""
    if not len(mesh.faces):
        return mesh
    _, part = np.unique(find_components(len(mesh.faces), mesh.list_neighbors()), return_inverse=True)
    return mesh.select_faces(np.bincount(part)[part] >= share * len(mesh.faces))


SPLITS = 6
"""Times that a triangle is cut into four, at most."""


def split_large_faces(mesh: SurfaceMesh, longest: float) -> SurfaceMesh:
    """Cut triangles with a longer edge into four, until none has. The surface stays the same; colors are dropped."""
    vertices, faces = mesh.vertices, mesh.faces
    for _ in range(SPLITS):
        corners = vertices[faces]
        length = np.linalg.norm(corners - np.roll(corners, -1, axis=1), axis=-1).max(1)
        large = length > longest
        if not large.any():
            break
        middles = (corners[large] + np.roll(corners[large], -1, axis=1)) / 2
        ab, bc, ca = len(vertices) + np.arange(3 * int(large.sum())).reshape(-1, 3).T
        a, b, c = faces[large].T
        vertices = np.concatenate([vertices, middles.reshape(-1, 3)])
        parts = [np.stack(part, 1) for part in ((a, ab, ca), (ab, b, bc), (ca, bc, c), (ab, bc, ca))]
        faces = np.concatenate([faces[~large], *parts])
    return SurfaceMesh(vertices, faces)
