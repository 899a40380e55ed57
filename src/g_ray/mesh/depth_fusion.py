"""Fuse depth maps into a truncated signed distance volume (Curless and Levoy 1996) and extract its surface.

The volume is stored in blocks near surfaces. A voxel holds the mean over views of min(1, s/τ), where s is the distance
along the ray from the voxel's center to the surface that the view sees there, positive in front of it, and τ is the
truncation. Voxels with s ≤ −τ are hidden and not updated. Any lens will do: distances are measured along rays, and
voxels are projected by the camera.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.geometry.pointmap import estimate_normals
from g_ray.geometry.pose import Pose
from g_ray.mesh.surface_mesh import SurfaceMesh

BLOCK = 16
"""Voxels along the side of a block."""
MAX_BLOCKS = 150_000
"""About 5 GB; more come from depths that are scattered through space."""
REACH = 1 << 20
"""Blocks on either side of the origin: three coordinates fit into one 64-bit key."""
BLOCKS_AT_ONCE = 256


@dataclass(frozen=True, eq=False)
class DepthView:
    """What one view contributes: distances along the rays of its camera."""

    camera: Camera
    pose: Pose
    ray_depth: Float[Tensor, "h w"]
    valid: Bool[Tensor, "h w"]

    def __post_init__(self) -> None:
        if tuple(self.ray_depth.shape) != (self.camera.height, self.camera.width):
            raise ValueError(
                f"a depth map of {self.ray_depth.shape[1]}×{self.ray_depth.shape[0]} px for a camera of "
                f"{self.camera.width}×{self.camera.height} px"
            )
        if bool((self.valid & ~(self.ray_depth.isfinite() & (self.ray_depth > 0))).any()):
            raise ValueError("valid depths must be finite and above 0: mask out the others")

    def limit_depth(self, max_depth: float) -> "DepthView":
        """Mask out what is farther along the optical axis, as published."""
        rays, known = self.camera.unproject_grid()
        near = rays[..., 2] * self.ray_depth <= max_depth
        return DepthView(self.camera, self.pose, self.ray_depth, self.valid & known & near)

    def list_points(self) -> Float[Tensor, "point 3"]:
        """Return the valid pixels' points in the world, float64."""
        rays, known = self.camera.unproject_grid()
        used = self.valid & known
        local = rays[used].double() * self.ray_depth[used, None].double()
        pose = self.pose.to(torch.float64)
        return local @ pose.rotation.mT + pose.translation

    def list_oriented_points(self) -> tuple[Float[Tensor, "point 3"], Float[Tensor, "point 3"]]:
        """Return the valid pixels' points in the world and their normals, towards the camera, float64."""
        rays, known = self.camera.unproject_grid()
        used = self.valid & known
        local = rays.double() * self.ray_depth[..., None].double()
        normals = estimate_normals(local, used, torch.zeros(3, dtype=torch.float64))[used]
        return self.list_points(), normals @ self.pose.to(torch.float64).rotation.mT


@dataclass(frozen=True, eq=False)
class TsdfVolume:
    """Blocks of voxels, sorted by key. Voxel i of an axis has its center at (i + ½) · voxel."""

    voxel: float
    keys: Int[Tensor, "block"]
    distance: Float[Tensor, "block x y z"]  # in units of the truncation, within [−1, 1]
    weight: Float[Tensor, "block x y z"]  # how many views have updated a voxel

    def find(self, keys: Int[Tensor, "*n"]) -> tuple[Int[Tensor, "*n"], Bool[Tensor, "*n"]]:
        """Return the places of blocks, and whether they are there."""
        place = torch.searchsorted(self.keys, keys).clamp(max=max(len(self.keys) - 1, 0))
        return place, self.keys[place] == keys


def fuse_depth(
    views: Sequence[DepthView], *, voxel: float, truncation: float, carve: bool = False
) -> TsdfVolume:
    """Fuse depth maps. A view updates the blocks within the truncation of its points; with `carve` all blocks that it
    sees, so that free space in front of its points counts against surfaces of other views.

    ValueError if no view has a valid pixel, or if points are scattered over more blocks than fit into memory.
    """
    if not 0 < voxel <= truncation:
        raise ValueError(f"the voxel {voxel} must be above 0, and the truncation {truncation} no smaller")
    touched = [_find_blocks(view.list_points(), voxel * BLOCK, truncation) for view in views]
    keys = torch.cat(touched).unique() if touched else torch.zeros(0, dtype=torch.int64)
    if not len(keys):
        raise ValueError("no view has a valid depth: there is nothing to fuse")
    if len(keys) > MAX_BLOCKS:
        raise ValueError(
            f"depths are scattered over {len(keys)} blocks of {voxel * BLOCK:g}, more than {MAX_BLOCKS}: "
            "limit depths, or mask out those far away"
        )
    shape = (len(keys), BLOCK, BLOCK, BLOCK)
    volume = TsdfVolume(voxel, keys, torch.zeros(shape), torch.zeros(shape))
    for view, own in zip(views, touched, strict=True):
        for part in (keys if carve else own).split(BLOCKS_AT_ONCE):
            _update(volume, view, part, truncation)
    return volume


def pack_keys(blocks: Int[Tensor, "*n 3"]) -> Int[Tensor, "*n"]:
    """Pack block coordinates into one number, which orders blocks by x, then y, then z."""
    x, y, z = (blocks + REACH).unbind(-1)
    return (x * 2 * REACH + y) * 2 * REACH + z


def unpack_keys(keys: Int[Tensor, "*n"]) -> Int[Tensor, "*n 3"]:
    """Invert `pack_keys`."""
    side = 2 * REACH
    return torch.stack([keys // side // side, keys // side % side, keys % side], -1) - REACH


def _find_blocks(points: Float[Tensor, "point 3"], side: float, truncation: float) -> Int[Tensor, "block"]:
    """Return the keys of all blocks that the cubes of half side `truncation` around points meet."""
    if not len(points):
        return torch.zeros(0, dtype=torch.int64)
    if float(points.abs().max()) + truncation >= (REACH - 1) * side:
        raise ValueError(f"points are {float(points.abs().max()):.3g} away: too far for blocks of {side:g}")
    low, high = (((points + offset) / side).floor().long() for offset in (-truncation, truncation))
    # Points of a surface share their ranges of blocks: few distinct ones remain.
    ranges = torch.cat([low, high], 1).unique(dim=0)
    low, high = ranges[:, :3], ranges[:, 3:]
    keys = []
    for offset in _list_offsets(int((high - low).max()) + 1):
        blocks = low + offset
        keys.append(pack_keys(blocks[(blocks <= high).all(1)]))
    return torch.cat(keys).unique()


def _list_offsets(count: int) -> Iterator[Int[Tensor, "3"]]:
    yield from torch.cartesian_prod(*[torch.arange(count)] * 3).reshape(-1, 3)


def _update(volume: TsdfVolume, view: DepthView, keys: Int[Tensor, "block"], truncation: float) -> None:
    """Add one view to the running means of some blocks, in place."""
    axis = torch.arange(BLOCK)
    cell = torch.stack(torch.meshgrid(axis, axis, axis, indexing="ij"), -1)
    centers = (unpack_keys(keys)[:, None, None, None] * BLOCK + cell + 0.5).double() * volume.voxel
    cam_from_world = view.pose.to(torch.float64).inverse()
    local = centers @ cam_from_world.rotation.mT + cam_from_world.translation
    camera = view.camera.to(torch.float64)
    pixels, imaged = camera.project(local)
    seen = imaged & camera.contains(pixels)
    column = pixels[..., 0].nan_to_num().long().clamp(0, camera.width - 1)
    row = pixels[..., 1].nan_to_num().long().clamp(0, camera.height - 1)
    signed = view.ray_depth[row, column].double() - torch.linalg.vector_norm(local, dim=-1)
    new = seen & view.valid[row, column] & (signed > -truncation)
    value = (signed / truncation).clamp(max=1).to(volume.distance.dtype)
    place, _ = volume.find(keys)
    distance, weight = volume.distance[place], volume.weight[place]
    volume.distance[place] = torch.where(new, (distance * weight + value) / (weight + 1), distance)
    volume.weight[place] = weight + new


# Surfaces


BLOCKS_PER_CUT = 512

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
    """Return the zero level of the distance as triangles, by marching tetrahedra; corners turn counterclockwise seen
    from the side of the views.

    Distances are linear along edges. Only cells of which all eight corners were seen take part. Marching cubes, which
    published scores use, cut each cell into fewer triangles; their surfaces differ by a fraction of a voxel.
    """
    parts = [_cut_cells(*cells, volume.voxel) for cells in _list_cells(volume)]
    return torch.cat(parts).numpy() if parts else np.zeros((0, 3, 3))


def _list_cells(volume: TsdfVolume) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the first voxel [cell, 3] and the corner values [cell, 8] of the cells that the surface crosses."""
    for keys in volume.keys.split(BLOCKS_PER_CUT):
        distance, seen = _pad(volume, keys)
        corners = torch.stack([_shift(distance, corner) for corner in CORNERS], -1)
        whole = torch.stack([_shift(seen, corner) for corner in CORNERS], -1).all(-1)
        block, *cell = (whole & (corners < 0).any(-1) & (corners >= 0).any(-1)).nonzero(as_tuple=True)
        yield (
            unpack_keys(keys)[block] * BLOCK + torch.stack(cell, -1),
            corners[block, cell[0], cell[1], cell[2]],
        )


def _pad(volume: TsdfVolume, keys: Tensor) -> tuple[Float[Tensor, "b x y z"], Bool[Tensor, "b x y z"]]:
    """Return blocks with one more layer of voxels at their upper sides, from the neighboring blocks."""
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
    parts = []
    for count, triangles in TRIANGLES.items():
        corners, levels = places[behind == count], values[behind == count]
        toward = corners[:, 3] - corners[:, 0]  # from behind the surface to its front
        for triangle in triangles:
            cut = torch.stack([_cross(corners, levels, edge) for edge in triangle], 1)
            normal = torch.linalg.cross(cut[:, 1] - cut[:, 0], cut[:, 2] - cut[:, 0])
            turned = ((normal * toward).sum(-1) < 0)[:, None, None]
            parts.append(torch.where(turned, cut.flip(1), cut))
    return torch.cat(parts)


def _cross(places: Tensor, values: Tensor, edge: tuple[int, int]) -> Float[Tensor, "n 3"]:
    """Return where an edge crosses 0. Its ends have values below 0 and not below 0, so that they differ."""
    a, b = edge
    share = values[:, a] / (values[:, a] - values[:, b])
    return places[:, a] + share[:, None] * (places[:, b] - places[:, a])


WELD = 1e-4
"""Corners of triangles that are nearer than this share of a voxel are one vertex."""


def build_fused_mesh(volume: TsdfVolume) -> SurfaceMesh:
    """Return the zero level of the distance as a mesh: triangles with common vertices, without degenerate ones."""
    triangles = extract_triangles(volume)
    corners = triangles.reshape(-1, 3)
    if not len(corners):
        return SurfaceMesh(corners, np.zeros((0, 3), np.int32))
    cells = np.rint((corners - corners.min(0)) / (WELD * volume.voxel)).astype(np.int64)
    order = np.lexsort(cells.T)
    starts = np.concatenate([[True], (cells[order][1:] != cells[order][:-1]).any(1)])
    number = np.empty(len(corners), np.int64)
    number[order] = np.cumsum(starts) - 1
    faces = number.reshape(-1, 3).astype(np.int32)
    distinct = (faces != np.roll(faces, 1, axis=1)).all(1)
    return SurfaceMesh(corners[order[starts]], faces[distinct])
