"""What is compared: points, rays and poses of a set of views, in one frame and at one scale (appendix "Inlier and
Pose Metric Definitions")."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.geometry.pointmap import compute_mean_distance, transform_points
from g_ray.geometry.pose import Pose
from g_ray.geometry.precision import disable_autocast, promote_to_float32

SLACK = 1e-8
"""Keeps the scale of a set without a valid pixel away from 0."""


@dataclass(frozen=True)
class SetGeometry:
    """A set of views as ground truth or as a network has it, in any frame and at any scale."""

    world_points: Float[Tensor, "*set view h w 3"]
    camera_points: Float[Tensor, "*set view h w 3"]  # the same pixels, each in its own camera's frame
    rays: Float[Tensor, "*set view h w 3"]  # unit, in the camera's frame
    poses: Pose  # world_from_cam [*set view]

    @staticmethod
    def from_points(
        world_points: Float[Tensor, "*set view h w 3"],
        camera_points: Float[Tensor, "*set view h w 3"],
        poses: Pose,
    ) -> "SetGeometry":
        """For networks that predict no rays of their own: those that their camera-space points lie on."""
        rays = torch.nn.functional.normalize(promote_to_float32(camera_points), dim=-1)
        return SetGeometry(world_points, camera_points, rays, poses)

    @property
    def dtype(self) -> torch.dtype:
        return self.world_points.dtype

    def to(self, dtype: torch.dtype) -> "SetGeometry":
        return SetGeometry(
            self.world_points.to(dtype),
            self.camera_points.to(dtype),
            self.rays.to(dtype),
            self.poses.to(dtype),
        )

    def to_first_view(self) -> "SetGeometry":
        """World points and poses in the frame of the set's own first camera."""
        with disable_autocast(self.world_points):
            world = transform_points(self.world_points, self.poses[..., :1].inverse())
            return replace(self, world_points=world, poses=self.poses.relative_to_first())

    def normalize(self, valid: Bool[Tensor, "*set view h w"]) -> "SetGeometry":
        """Points and translations in units of the set's mean distance of valid points: one factor for all views."""
        scale = compute_mean_distance(self.world_points, valid, slack=SLACK).clamp(min=SLACK)
        per_point = scale[..., None, None, None, None]
        return SetGeometry(
            self.world_points / per_point,
            self.camera_points / per_point,
            self.rays,
            self.poses.scale_translation(1 / scale[..., None]),
        )
