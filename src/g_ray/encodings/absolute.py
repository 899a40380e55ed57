"""Absolute conditioning: rays as input channels instead of rotations."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.geometry.pose import Pose
from g_ray.rays.ray_map import RayMap


def plucker(rays: RayMap, pose: Pose) -> Float[Tensor, "*shape 6"]:
    """Compute [d, o × d]: world direction and moment. Depends on where the world's origin is."""
    world = rays.to_world(pose)
    assert world.origins is not None
    return torch.cat([world.directions, torch.linalg.cross(world.origins, world.directions)], -1)


def camray(rays: RayMap, pose: Pose | None = None) -> Float[Tensor, "*shape 6"]:
    """Compute [d, 0]: the camera-local direction; no pose is used. Six channels, so that it can replace `plucker`."""
    return torch.cat([rays.directions, torch.zeros_like(rays.directions)], -1)


def raymap(rays: RayMap, pose: Pose) -> Float[Tensor, "*shape 6"]:
    """Compute [o, d]: where the ray starts in the world and where it goes."""
    world = rays.to_world(pose)
    assert world.origins is not None
    return torch.cat([world.origins, world.directions], -1)


CONDITIONINGS: dict[str, Callable[..., Float[Tensor, "*shape 6"]]] = {
    "plucker": plucker,
    "camray": camray,
    "raymap": raymap,
}
