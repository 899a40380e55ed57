"""What is compared: points, rays and poses of a set of views, in one frame and at one scale (appendix "Inlier and
Pose Metric Definitions")."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.geometry.pose import Pose
from g_ray.geometry.precision import at_least_float32

SMALLEST_SCALE = 1e-8


@dataclass(frozen=True)
class SetGeometry:
    """A set of views as ground truth or as a network has it, in any frame and at any scale."""

    world_points: Float[Tensor, "*set view h w 3"]
    camera_points: Float[Tensor, "*set view h w 3"]  # the same pixels, each in its own camera's frame
    rays: Float[Tensor, "*set view h w 3"]  # unit, in the camera's frame
    poses: Pose  # world_from_cam [*set view]

    @staticmethod
    def of_points(
        world_points: Float[Tensor, "*set view h w 3"],
        camera_points: Float[Tensor, "*set view h w 3"],
        poses: Pose,
    ) -> "SetGeometry":
        """For networks that predict no rays of their own: those that their camera-space points lie on."""
        rays = torch.nn.functional.normalize(at_least_float32(camera_points), dim=-1)
        return SetGeometry(world_points, camera_points, rays, poses)

    def in_first_view(self) -> "SetGeometry":
        """World points and poses in the frame of the set's own first camera."""
        world = at_least_float32(self.world_points)
        poses = self.poses.to(world.dtype)
        first = poses[..., :1].inverse()
        # One product per set: Pose.apply would make one per pixel.
        moved = world.flatten(-4, -2) @ first.rotation[..., 0, :, :].mT + first.translation
        return SetGeometry(
            moved.unflatten(-2, world.shape[-4:-1]),
            at_least_float32(self.camera_points),
            at_least_float32(self.rays),
            poses.relative_to_first(),
        )

    def normalised(self, valid: Bool[Tensor, "*set view h w"]) -> "SetGeometry":
        """Points and translations in units of the set's mean distance of valid points: one factor for all views."""
        scale = mean_distance(self.world_points, valid)
        per_point = scale[..., None, None, None, None]
        return SetGeometry(
            self.world_points / per_point,
            self.camera_points / per_point,
            self.rays,
            self.poses.scaled(1 / scale[..., None]),
        )


def mean_distance(
    points: Float[Tensor, "*set view h w 3"], valid: Bool[Tensor, "*set view h w"]
) -> Float[Tensor, "*set"]:
    """Mean of ‖p‖ over the valid pixels of all views, and never 0."""
    distance = torch.where(valid, torch.linalg.vector_norm(points, dim=-1), 0)
    mean = distance.sum((-3, -2, -1)) / (valid.sum((-3, -2, -1)) + SMALLEST_SCALE)
    return mean.clamp(min=SMALLEST_SCALE)
