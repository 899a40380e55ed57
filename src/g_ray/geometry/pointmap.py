"""Pointmaps: a point for every pixel of every view."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.geometry.pose import Pose
from g_ray.geometry.precision import disable_autocast


def transform_points(points: Float[Tensor, "*view h w 3"], poses: Pose) -> Float[Tensor, "*view h w 3"]:
    """Compute R p + t for all pixels of a view: one product per view, where `Pose.apply` makes one per point."""
    with disable_autocast(points):
        moved = points.flatten(-3, -2) @ poses.rotation.mT + poses.translation[..., None, :]
    return moved.unflatten(-2, points.shape[-3:-1])


def compute_mean_distance(
    points: Float[Tensor, "*set view h w 3"], valid: Bool[Tensor, "*set view h w"], *, slack: float
) -> Float[Tensor, "*set"]:
    """Compute Σ ‖p‖ / (count + slack) over the valid pixels of all views of a set; 0 where there are none."""
    # where, not a product with the mask: an invalid point may be NaN or infinite.
    distance = torch.where(valid, torch.linalg.vector_norm(points, dim=-1), 0)
    return distance.sum((-3, -2, -1)) / (valid.sum((-3, -2, -1)) + slack)
