"""How much of one view another one sees."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.cameras.base import Camera
from g_ray.geometry.pointmap import transform_points
from g_ray.geometry.pose import Pose

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
