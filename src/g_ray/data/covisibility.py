"""Covisibility: how much of one view another one sees, and walks through views that overlap."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.cameras.base import Camera
from g_ray.formats.depth import DepthFile, convert_to_ray_depth, resize_depth
from g_ray.formats.scene import PosedScene
from g_ray.geometry.pointmap import transform_points
from g_ray.geometry.pose import Pose
from g_ray.rays.ray_map import RayMap

TOLERANCE_M = 0.17
TOLERANCE_SHARE = 0.005
"""Depths that differ by no more than this are of one surface: 0.17 m and half a per cent, as MapAnything's."""


def compute_covisibility(
    cameras: Sequence[Camera],
    poses: Pose,
    camera_points: Float[Tensor, "set view h w 3"],
    valid: Bool[Tensor, "set view h w"],
) -> Float[Tensor, "set view view"]:
    """Share of the pixels of view i whose points view j images too, unhidden, at [i, j]; pixels without depth count
    as unseen.

    Depth is the distance along the ray, so that any lens will do; one lookup at the nearest pixel.
    """
    depth = torch.linalg.vector_norm(camera_points, dim=-1)
    world = transform_points(camera_points, poses)
    columns = [
        find_visible(camera, poses[:, view : view + 1].inverse(), world, depth[:, view]) & valid
        for view, camera in enumerate(cameras)
    ]
    return torch.stack([column.float().mean((-2, -1)) for column in columns], -1)


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
    """Share of view i that view j sees, at [i, j]; ValueError or OSError, with the file, if it cannot be had."""
    if scene.covisibility is not None:
        return read_covisibility(scene.covisibility, len(scene))
    return compute_scene_covisibility(scene)


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
    poses = scene.poses.to(torch.float32)
    points, masks, cameras, maps = [], [], [], []
    for camera, file in zip(scene.cameras, scene.depth, strict=True):
        depth = None if file is None else file.read()
        grid, valid, _ = _load_ray_depth(camera, file, depth, _fit_size(camera, POINTS_PX, square=True))
        points.append(grid)
        masks.append(valid)
        _, _, (fine, small) = _load_ray_depth(camera, file, depth, _fit_size(camera, LOOKUP_PX))
        cameras.append(small)
        maps.append(fine)
    local, valid = torch.stack(points)[None], torch.stack(masks)[None]
    world = transform_points(local, poses[None])
    distance = torch.linalg.vector_norm(local, dim=-1)[valid]
    near = NEAR * float(distance.median()) if len(distance) else 0.0
    columns = [
        find_visible(camera, poses[None, view : view + 1].inverse(), world, depth[None], near) & valid
        for view, (camera, depth) in enumerate(zip(cameras, maps, strict=True))
    ]
    return torch.stack([column.float().mean((-2, -1))[0] for column in columns], -1).numpy()


def _load_ray_depth(
    camera: Camera, file: DepthFile | None, depth: Tensor | None, size: tuple[int, int]
) -> tuple[Tensor, Tensor, tuple[Tensor, Camera]]:
    """Points and validity on a small grid, the depth along its rays, and the camera that takes it."""
    small = camera.resize(*size).to(torch.float32)
    rays = RayMap.from_camera(small)
    if file is None or depth is None:
        along, valid = torch.zeros(rays.shape), torch.zeros(rays.shape, dtype=torch.bool)
    else:
        box = (0.0, 0.0, float(camera.width), float(camera.height))
        sampled = resize_depth(depth, (camera.width, camera.height), *size, box)
        along, valid = convert_to_ray_depth(sampled, rays, file.convention)
    return along[..., None] * rays.directions, valid, (along, small)


def _fit_size(camera: Camera, longest: int, square: bool = False) -> tuple[int, int]:
    if square:
        return longest, longest
    scale = min(1.0, longest / max(camera.width, camera.height))
    return max(2, round(camera.width * scale)), max(2, round(camera.height * scale))


# Which views of a scene make a set: a walk from view to view, each step to one that sees much of the same.


RESTARTS = 4
"""Further walks, elsewhere, if one does not get far enough."""


def compute_overlap(covisibility: Float[np.ndarray, "view view"], view: int) -> Float[np.ndarray, "view"]:
    """Of one view with every other: the mean of both directions over what it sees of itself, its share of pixels with
    depth; 0 with itself. As MapAnything samples its sets: c_ij = (C_ij + C_ji) / 2 C_ii."""
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
) -> list[int]:
    """`count` of the allowed views, the first any of them; every further one overlaps with an earlier one by more than
    `threshold`.

    A walk that is stuck continues from the previous view. If no walk finds so many views, views of the longest one come
    more than once.
    """
    free = np.zeros(len(covisibility), dtype=bool)
    free[list(allowed)] = True
    unvisited, longest = free.copy(), list[int]()
    for _ in range(1 + RESTARTS):
        if not unvisited.any():
            break
        start = int(random.choice(np.flatnonzero(unvisited)))
        visited = _walk(random, covisibility, count, threshold, start, free.copy())
        unvisited[visited] = False
        if len(visited) > len(longest):
            longest = visited
        if len(longest) == count:
            return longest
    again = random.choice(len(longest), count - len(longest))
    return [*longest, *(longest[int(index)] for index in again)]


def _walk(
    random: np.random.Generator,
    covisibility: np.ndarray,
    count: int,
    threshold: float,
    start: int,
    free: np.ndarray,
) -> list[int]:
    """Takes what it visits out of `free`."""
    visited, path = [start], [start]
    free[start] = False
    while path and len(visited) < count:
        near = np.flatnonzero((compute_overlap(covisibility, path[-1]) > threshold) & free)
        if not len(near):
            path.pop()
            continue
        step = int(random.choice(near))
        free[step] = False
        visited.append(step)
        path.append(step)
    return visited
