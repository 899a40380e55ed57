"""Absolute trajectory error after the best rigid motion."""

import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.geometry.precision import disable_autocast


def pose_ate(
    truth: Float[Tensor, "*set view 3"], predicted: Float[Tensor, "*set view 3"]
) -> Float[Tensor, "*set"]:
    """Mean distance between camera centres after rotation and translation, without scale (Pose ATE).

    Of two views only the lengths of their baselines count: ATE = |b − b̂|/2.
    """
    with disable_autocast(truth):
        return torch.linalg.vector_norm(align_rigidly(truth, predicted) - predicted, dim=-1).mean(-1)


def align_rigidly(
    points: Float[Tensor, "*set point 3"], target: Float[Tensor, "*set point 3"]
) -> Float[Tensor, "*set point 3"]:
    """R p + t with the rotation and translation that minimise Σ ‖R pᵢ + t − qᵢ‖² (Horn; Umeyama with scale 1)."""
    center, goal = points.mean(-2, keepdim=True), target.mean(-2, keepdim=True)
    covariance = (target - goal).mT @ (points - center)
    left, _, right = torch.linalg.svd(covariance)
    # The last axis is flipped where the best orthogonal matrix would be a reflection.
    flip = torch.ones_like(center[..., 0, :])
    flip[..., 2] = torch.linalg.det(left @ right).sign()
    return (points - center) @ (left * flip[..., None, :] @ right).mT + goal
