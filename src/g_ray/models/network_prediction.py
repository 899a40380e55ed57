"""Prediction: what the reconstruction network says of views, in the frame of the first one."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from g_ray.geometry.pose import Pose, rotation_from_quaternion


@dataclass(frozen=True)
class Prediction:
    """Maps over the pixels of views of one size, and their poses; up to one scale for the whole scene.

    `camera_points` (DPT head) are in the frame of each camera, `world_points` (linear head) in that of the first
    view; poses come from a head of their own. The three are independent estimates.
    """

    world_points: Float[Tensor, "*batch h w 3"]
    world_confidence: Float[Tensor, "*batch h w"]
    camera_points: Float[Tensor, "*batch h w 3"]
    camera_confidence: Float[Tensor, "*batch h w"]
    translation: Float[Tensor, "*batch 3"]
    quaternion: Float[Tensor, "*batch 4"]

    @property
    def rays(self) -> Float[Tensor, "*batch h w 3"]:
        """Unit directions of the camera-space points."""
        return F.normalize(self.camera_points, dim=-1)

    @property
    def ray_depth(self) -> Float[Tensor, "*batch h w"]:
        """Distance from the camera along the ray."""
        return self.camera_points.norm(dim=-1)

    @property
    def z_depth(self) -> Float[Tensor, "*batch h w"]:
        """Distance from the camera's plane; negative behind it."""
        return self.camera_points[..., 2]

    @property
    def poses(self) -> Pose:
        """world_from_cam, where the world is the first view as predicted (its own pose is not forced to be 1)."""
        return Pose.from_parts(rotation_from_quaternion(self.quaternion), self.translation)

    def map_tensors(self, change: Callable[[Tensor], Tensor]) -> "Prediction":
        """Pass each tensor through a function that keeps the last axes."""
        return Prediction(**{name: change(value) for name, value in vars(self).items()})

    def select_view(self, index: int) -> "Prediction":
        """Select one view of a prediction whose second batch axis runs over views."""
        return self.map_tensors(lambda tensor: tensor[:, index])

    def to(self, *args: Any, **kwargs: Any) -> "Prediction":
        return self.map_tensors(lambda tensor: tensor.to(*args, **kwargs))
