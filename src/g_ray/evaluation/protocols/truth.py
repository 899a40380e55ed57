"""The true geometry of a set of views, as the metrics of the main table take it."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor

from g_ray.evaluation.datasets.scene import EvaluationView
from g_ray.geometry.pointmap import transform_points
from g_ray.geometry.pose import Pose
from g_ray.metrics.reconstruction import SetGeometry
from g_ray.rays.ray_map import RayMap


@dataclass(frozen=True, eq=False)
class SetTruth:
    """Points, rays and poses of one set, float32; the world is the first view's camera."""

    geometry: SetGeometry
    """[1, view, …]"""
    valid: Bool[Tensor, "1 view h w"]
    """Where depth is known."""
    known_rays: Bool[Tensor, "1 view h w"]
    """Where the lens has a ray."""


def build_truth(views: Sequence[EvaluationView]) -> SetTruth:
    """Stack views of one size; ValueError if sizes differ or a view has no pose."""
    sizes = {(view.camera.width, view.camera.height) for view in views}
    if len(sizes) != 1:
        raise ValueError(f"views of {len(sizes)} sizes: a set has one; use a protocol with a fixed size")
    poses = [view.pose for view in views]
    if any(pose is None for pose in poses):
        raise ValueError(f"view {views[0].name} has no pose: its dataset has depth alone")
    maps = [RayMap.from_camera(view.camera) for view in views]
    rays = torch.stack([one.directions for one in maps])[None]
    depth = torch.stack([view.ray_depth for view in views])[None]
    # Relative poses in float64: world coordinates may be large.
    world = torch.stack([pose.world_from_cam for pose in poses if pose is not None])[None]
    relative = Pose(world).relative_to_first().to(torch.float32)
    local = depth[..., None] * rays
    geometry = SetGeometry(transform_points(local, relative), local, rays, relative)
    valid = torch.stack([view.valid for view in views])[None]
    return SetTruth(geometry, valid, torch.stack([one.valid for one in maps])[None])
