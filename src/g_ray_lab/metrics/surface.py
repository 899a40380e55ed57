"""Extract the surface of a volume of signed distances as triangles, and sample points on triangles."""

from collections.abc import Iterator
from itertools import permutations

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray_lab.metrics.neighbors import Points
from g_ray_lab.metrics.tsdf import BLOCK, TsdfVolume, pack_keys, unpack_keys

BLOCKS_AT_ONCE = 512

# Corner c of a cell lies at the bits of c: x = c >> 2, y = c >> 1 & 1, z = c & 1.
CORNERS = torch.tensor([[c >> 2, c >> 1 & 1, c & 1] for c in range(8)])
# Six tetrahedra around the diagonal 0–7, one for each order of the axes. Neighboring cells cut their common face along
# the same diagonal, so that the surface has no cracks.
TETRAHEDRA = torch.tensor([[0, a, a | b, 7] for a, b, _ in permutations((1, 2, 4))])
# Edges of a tetrahedron, whose corners are sorted by value, that carry the corners of its triangles.
TRIANGLES = {
    1: [[(0, 1), (0, 2), (0, 3)]],
    2: [[(0, 2), (0, 3), (1, 3)], [(0, 2), (1, 3), (1, 2)]],
    3: [[(0, 3), (1, 3), (2, 3)]],
}
"""By how many corners lie behind the surface."""


def extract_triangles(volume: TsdfVolume) -> Float[np.ndarray, "triangle 3 3"]:
    """Return the zero level of the distance as triangles, by marching tetrahedra; their orientation is arbitrary.

    Distances are linear along edges. Only cells of which all eight corners were seen take part. Marching cubes, which
    published scores use, cut each cell into fewer triangles; their surfaces differ by a fraction of a voxel.
    """
    parts = [_cut_cells(*cells, volume.voxel) for cells in _list_cells(volume)]
    return torch.cat(parts).numpy() if parts else np.zeros((0, 3, 3))


def _list_cells(volume: TsdfVolume) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the first voxel [cell, 3] and the corner values [cell, 8] of the cells that the surface crosses."""
    for keys in volume.keys.split(BLOCKS_AT_ONCE):
        distance, seen = _pad(volume, keys)
        corners = torch.stack([_shift(distance, corner) for corner in CORNERS], -1)
        whole = torch.stack([_shift(seen, corner) for corner in CORNERS], -1).all(-1)
        block, *cell = (whole & (corners < 0).any(-1) & (corners >= 0).any(-1)).nonzero(as_tuple=True)
        yield (
            unpack_keys(keys)[block] * BLOCK + torch.stack(cell, -1),
            corners[block, cell[0], cell[1], cell[2]],
        )


def _pad(volume: TsdfVolume, keys: Tensor) -> tuple[Float[Tensor, "b x y z"], Bool[Tensor, "b x y z"]]:
    """Return blocks with one more layer of voxels at their upper sides, from the blocks beside them."""
    size = (len(keys), *(BLOCK + 1,) * 3)
    distance, seen = torch.zeros(size), torch.zeros(size, dtype=torch.bool)
    for corner in CORNERS:
        place, there = volume.find(pack_keys(unpack_keys(keys) + corner))
        inner = tuple(slice(BLOCK, None) if step else slice(0, BLOCK) for step in corner.tolist())
        outer = tuple(slice(0, 1) if step else slice(None) for step in corner.tolist())
        distance[(slice(None), *inner)] = volume.distance[place][(slice(None), *outer)]
        weight = volume.weight[place][(slice(None), *outer)]
        seen[(slice(None), *inner)] = there[:, None, None, None] & (weight > 0)
    return distance, seen


def _shift(values: Tensor, corner: Tensor) -> Tensor:
    x, y, z = corner.tolist()
    return values[:, x : x + BLOCK, y : y + BLOCK, z : z + BLOCK]


def _cut_cells(first: Tensor, values: Tensor, voxel: float) -> Float[Tensor, "triangle 3 3"]:
    """Cut the six tetrahedra of each cell at value 0."""
    values = values.double()[:, TETRAHEDRA].reshape(-1, 4)
    places = (first[:, None] + CORNERS + 0.5).double()[:, TETRAHEDRA].reshape(-1, 4, 3) * voxel
    # Sorted by value, the corners behind the surface come first, and each number of them is one case.
    values, order = values.sort(-1)
    places = places.gather(1, order[..., None].expand(-1, -1, 3))
    behind = (values < 0).sum(-1)
    parts = [
        torch.stack([_cross(places[behind == count], values[behind == count], edge) for edge in triangle], 1)
        for count, triangles in TRIANGLES.items()
        for triangle in triangles
    ]
    return torch.cat(parts)


def _cross(places: Tensor, values: Tensor, edge: tuple[int, int]) -> Float[Tensor, "n 3"]:
    """Return where an edge crosses 0. Its ends have values below 0 and not below 0, so that they differ."""
    a, b = edge
    share = values[:, a] / (values[:, a] - values[:, b])
    return places[:, a] + share[:, None] * (places[:, b] - places[:, a])


def sample_triangles(triangles: Float[np.ndarray, "triangle 3 3"], count: int, *, seed: int = 0) -> Points:
    """Draw points on triangles, uniformly by area; no points if the triangles have no area."""
    sides = triangles[:, 1:] - triangles[:, :1]
    areas = np.linalg.norm(np.cross(sides[:, 0], sides[:, 1]), axis=-1)
    if not areas.sum() > 0:
        return np.zeros((0, 3))
    rng = np.random.default_rng(seed)
    chosen = rng.choice(len(triangles), size=count, p=areas / areas.sum())
    a, b = rng.random((2, count, 1))
    # The upper half of the square of (a, b) is folded onto the triangle.
    a, b = np.where(a + b > 1, 1 - a, a), np.where(a + b > 1, 1 - b, b)
    return triangles[chosen, 0] + a * sides[chosen, 0] + b * sides[chosen, 1]


def thin_out(points: Points, voxel: float) -> Points:
    """Replace the points in each voxel by their mean; voxels begin half a voxel below the smallest coordinates."""
    if not len(points):
        return points
    cells = np.floor((points - points.min(0)) / voxel + 0.5).astype(np.int64)
    # One number per voxel sorts much faster than rows of three.
    extent = cells.max(0) + 1
    keys = (cells[:, 0] * extent[1] + cells[:, 1]) * extent[2] + cells[:, 2]
    _, place, count = np.unique(keys, return_inverse=True, return_counts=True)
    sums = np.stack([np.bincount(place, weights=points[:, axis]) for axis in range(3)], -1)
    return sums / count[:, None]
