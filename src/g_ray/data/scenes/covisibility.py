"""How much of each view of a scene folder every other one sees: as stored with it, or found out from its depth."""

from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.cameras.base import Camera
from g_ray.data.covisibility import find_visible
from g_ray.formats.depth import DepthFile, convert_to_ray_depth, resize_depth
from g_ray.formats.scene import PosedScene
from g_ray.geometry.pointmap import transform_points
from g_ray.rays.ray_map import RayMap

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
    """A matrix on disk, in the order of the scene's views."""
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
    """From depth: views without any see nothing and are seen by nobody."""
    if not scene.depth:
        raise ValueError(f"{scene.folder}: neither depth nor covisibility: nobody knows which views overlap")
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
