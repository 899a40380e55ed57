"""Covisibility: how much of one view another one sees, and walks through views that overlap."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.formats.posed_scene import PosedScene
from g_ray.geometry.pointmap import transform_points
from g_ray.geometry.pose import Pose
from g_ray.media.depth import DepthFile, convert_to_ray_depth, resize_depth
from g_ray.rays.ray_map import RayMap
from g_ray.runtime.files import atomic_path

TOLERANCE_M = 0.17
TOLERANCE_SHARE = 0.005
"""Depths that differ by no more than this are of one surface: 0.17 m and half a per cent, as MapAnything's."""


def find_visible(
    camera: Camera,
    cam_from_world: Pose,
    world: Float[Tensor, "set view h w 3"],
    depth: Float[Tensor, "set height width"],
    tolerance: float = TOLERANCE_M,
) -> Bool[Tensor, "set view h w"]:
    """Whether points of any view lie on the first surface along this camera's rays, whose ray depth is given."""
    local = transform_points(world, cam_from_world)
    pixels, imaged = camera.project(local)
    u, v = pixels.floor().long().unbind(-1)
    place = v.clamp(0, camera.height - 1) * camera.width + u.clamp(0, camera.width - 1)
    surface_depth = depth.flatten(1).gather(1, place.flatten(1)).reshape(place.shape)
    expected = torch.linalg.vector_norm(local, dim=-1)
    near = (expected - surface_depth).abs() < tolerance + TOLERANCE_SHARE * expected
    return imaged & camera.contains(pixels) & near & (surface_depth > 0)


# How much of each view of a scene folder every other one sees: as stored with it, or computed from its depth.


POINTS_PX = 20
"""Long side of the grid of points that is looked for in other views."""
LOOKUP_PX = 96
"""Long side of the depth maps that it is looked for in."""
NEAR = 0.05
"""Depths of one surface differ by less than this share of the scene's median depth: whatever its unit."""


def get_scene_covisibility(scene: PosedScene) -> Float[np.ndarray, "view view"]:
    """Share of view i that view j sees, at [i, j]; ValueError or OSError, with the file, if it cannot be had.

    As the scene's format stores it, as `store_covisibility` has, or else computed.
    """
    if scene.covisibility is not None:
        return read_covisibility(scene.covisibility, len(scene))
    stored = find_stored_path(scene)
    return read_covisibility(stored, len(scene)) if stored.is_file() else compute_scene_covisibility(scene)


def store_covisibility(scene: PosedScene) -> bool:
    """Compute and store the matrix of a scene, unless it is there; return whether it had to be computed."""
    path = find_stored_path(scene)
    if scene.covisibility is not None or path.is_file():
        return False
    matrix = compute_scene_covisibility(scene)
    with atomic_path(path) as scratch:
        np.save(scratch, matrix)
    return True


def find_stored_path(scene: PosedScene) -> Path:
    """Return where `store_covisibility` keeps the matrix of a scene: the name is a digest of all that it depends on.

    Depth files count by name, size and meaning: reading them would take as long as computing the matrix.
    """
    digest = hashlib.blake2b(f"{POINTS_PX} {LOOKUP_PX} {NEAR}".encode(), digest_size=16)
    for view, (name, camera) in enumerate(zip(scene.names, scene.cameras, strict=True)):
        file = scene.depth[view] if scene.depth else None
        if file is not None:
            size = file.path.stat().st_size if file.path.is_file() else 0
            name = f"{name} {file.path.name} {size} {file.convention} {file.unit} {file.nothing} {file.limit}"
        digest.update(f"{name} {camera.NAME} {camera.width} {camera.height}\n".encode())
        for tensor in camera._collect_tensors().values():
            digest.update(tensor.detach().cpu().contiguous().numpy().data)
    digest.update(scene.poses.world_from_cam.cpu().contiguous().numpy().data)
    return scene.folder / "covisibility" / "g-ray" / f"{digest.hexdigest()}.npy"


def read_covisibility(path: Path, views: int) -> Float[np.ndarray, "view view"]:
    """Read a stored matrix, in the order of the scene's views."""
    try:
        matrix = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise OSError(f"{path}: no such file; make it again, or remove it from the scene") from None
    except (ValueError, EOFError) as error:
        raise OSError(f"{path}: cannot be read as a numpy array ({error})") from None
    if matrix.shape != (views, views):
        raise ValueError(
            f"{path}: covisibility of shape {'×'.join(map(str, matrix.shape))} for {views} views; make it again"
        )
    return matrix


def compute_scene_covisibility(scene: PosedScene) -> Float[np.ndarray, "view view"]:
    """Compute the matrix from depth; views without depth have covisibility 0 with all others."""
    if not scene.depth:
        raise ValueError(f"{scene.folder}: neither depth nor covisibility: it is unknown which views overlap")
    views = [_make_coarse_view(*pair) for pair in zip(scene.cameras, scene.depth, strict=True)]
    distance = torch.cat([torch.linalg.vector_norm(view.points, dim=-1)[view.valid] for view in views])
    near = NEAR * float(distance.median()) if len(distance) else 0.0
    return compute_pairwise(views, scene.poses, near)


@dataclass(frozen=True, eq=False)
class CoarseView:
    """A grid of points to look for in other views, and a map of depth to look points of other views up in."""

    points: Float[Tensor, "h w 3"]
    """On a coarse grid of its pixels, in its camera's frame."""
    valid: Bool[Tensor, "h w"]
    camera: Camera
    """At the size of the map."""
    ray_depth: Float[Tensor, "rows columns"]
    """Along the camera's rays, so that any lens will do; 0 where unknown."""


def compute_pairwise(
    views: Sequence[CoarseView], poses: Pose, tolerance: float = TOLERANCE_M
) -> Float[np.ndarray, "view view"]:
    """Share of view i's grid that view j images too, unhidden, at [i, j]; points without depth count as unseen.

    Grids of all views have one size, cameras are any.
    """
    poses = poses.to(torch.float32)
    world = transform_points(torch.stack([view.points for view in views])[None], poses[None])
    valid = torch.stack([view.valid for view in views])
    columns = []
    for index, view in enumerate(views):
        cam_from_world = poses[None, index : index + 1].inverse()
        visible = find_visible(view.camera, cam_from_world, world, view.ray_depth[None], tolerance)[0]
        columns.append((visible & valid).float().mean((-2, -1)))
    return torch.stack(columns, -1).numpy()


def _make_coarse_view(camera: Camera, file: DepthFile | None) -> CoarseView:
    depth = None if file is None else file.read()
    scale = min(1.0, LOOKUP_PX / max(camera.width, camera.height))
    grid = camera.resize(POINTS_PX, POINTS_PX).to(torch.float32)
    width, height = (max(2, round(side * scale)) for side in (camera.width, camera.height))
    lookup = camera.resize(width, height).to(torch.float32)
    along, valid, rays = _sample_ray_depth(camera, grid, file, depth)
    return CoarseView(
        along[..., None] * rays.directions, valid, lookup, _sample_ray_depth(camera, lookup, file, depth)[0]
    )


def _sample_ray_depth(
    camera: Camera, small: Camera, file: DepthFile | None, depth: Tensor | None
) -> tuple[Tensor, Tensor, RayMap]:
    """Sample depth along the rays of the camera of a smaller image, with its validity and the rays."""
    rays = RayMap.from_camera(small)
    if file is None or depth is None:
        return torch.zeros(rays.shape), torch.zeros(rays.shape, dtype=torch.bool), rays
    box = (0.0, 0.0, float(camera.width), float(camera.height))
    sampled = resize_depth(depth, (camera.width, camera.height), small.width, small.height, box)
    return *convert_to_ray_depth(sampled, rays, file.convention), rays


# Which views of a scene make a set: a walk from view to view, each step to one that sees much of the same.


RESTARTS = 4
"""Further walks, elsewhere, if one does not get far enough."""


def compute_overlap(covisibility: Float[np.ndarray, "view view"], view: int) -> Float[np.ndarray, "view"]:
    """Compute the overlap of one view i with every other j, as MapAnything samples its sets; 0 with itself.

    c_ij = (C_ij + C_ji) / 2 C_ii, where C_ii is the share of its pixels with depth.
    """
    both = (covisibility[view] + covisibility[:, view]) / 2
    shared = both / (covisibility[view, view] + 1e-8)
    shared[view] = 0
    return shared


def draw_covisible_views(
    random: np.random.Generator,
    covisibility: Float[np.ndarray, "view view"],
    count: int,
    threshold: float,
    allowed: Sequence[int],
    groups: Sequence[str] | None = None,
) -> list[int]:
    """`count` of the allowed views, the first any of them; every further one overlaps with an earlier one by more than
    `threshold`.

    A walk that is stuck continues from the previous view. If no walk finds `count` views, views of the longest one come
    more than once. `groups` names a group of every view, such as its device: no group then gets more than its equal
    share of the views.
    """
    free = np.zeros(len(covisibility), dtype=bool)
    free[list(allowed)] = True
    quotas = _Quotas.make(groups, free, count)
    unvisited, longest = free.copy(), list[int]()
    for _ in range(1 + RESTARTS):
        if not unvisited.any():
            break
        start = int(random.choice(np.flatnonzero(unvisited)))
        visited = _walk(random, covisibility, count, threshold, start, free.copy(), quotas)
        unvisited[visited] = False
        if len(visited) > len(longest):
            longest = visited
        if len(longest) == count:
            return longest
    return quotas.repeat(random, longest, count, np.flatnonzero(free))


@dataclass(frozen=True, eq=False)
class _Quotas:
    """How many views of each group a set may have."""

    group: np.ndarray
    """[view]: number of the group."""
    most: int

    @staticmethod
    def make(groups: Sequence[str] | None, free: np.ndarray, count: int) -> "_Quotas":
        if groups is None:
            return _Quotas(np.zeros(len(free), dtype=np.int64), count)
        names = sorted({name for name, known in zip(groups, free, strict=True) if known})
        number = {name: index for index, name in enumerate(names)}
        group = np.array([number.get(name, 0) for name in groups], dtype=np.int64)
        return _Quotas(group, -(-count // len(names)))

    def close(self, visited: list[int], free: np.ndarray) -> None:
        """Take the views of groups that are full out of `free`."""
        counts = np.bincount(self.group[visited], minlength=self.group.max() + 1)
        free &= (counts < self.most)[self.group]

    def repeat(
        self, random: np.random.Generator, visited: list[int], count: int, allowed: np.ndarray
    ) -> list[int]:
        """Fill a set with views that it has already, or with any allowed ones of a group that it has none of."""
        chosen = list(visited)
        for number in range(self.group.max() + 1):
            members = [view for view in visited if self.group[view] == number]
            pool = members or allowed[self.group[allowed] == number].tolist()
            missing = min(self.most - len(members), count - len(chosen))
            if missing > 0 and pool:
                chosen += [pool[int(index)] for index in random.choice(len(pool), missing)]
        return chosen


def _walk(
    random: np.random.Generator,
    covisibility: np.ndarray,
    count: int,
    threshold: float,
    start: int,
    free: np.ndarray,
    quotas: _Quotas,
) -> list[int]:
    """Takes what it visits out of `free`."""
    visited, path = [start], [start]
    free[start] = False
    quotas.close(visited, free)
    while path and len(visited) < count:
        near = np.flatnonzero((compute_overlap(covisibility, path[-1]) > threshold) & free)
        if not len(near):
            path.pop()
            continue
        step = int(random.choice(near))
        free[step] = False
        visited.append(step)
        path.append(step)
        quotas.close(visited, free)
    return visited
