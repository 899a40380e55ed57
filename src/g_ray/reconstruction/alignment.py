"""Bring a scene to known poses, and measure how well they agree."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from g_ray.geometry.pose import Pose
from g_ray.geometry.similarity import Similarity, fit_similarity_to_poses


@dataclass(frozen=True)
class Alignment:
    """A similarity to the world of known poses, and how well the estimated ones then agree with them."""

    similarity: Similarity
    cameras: int
    position_rmse: float
    """Root mean square error of the camera centers, in the unit of the known poses."""
    position_extent: float
    """Root mean square distance of the known centers from their middle: what position_rmse compares with."""
    rotation_deg: float
    """Mean angle between estimated and known orientations."""

    def to_metrics(self) -> dict[str, float]:
        """Return the agreement, keyed by display names."""
        return {
            "cameras with known poses": float(self.cameras),
            "position error (RMSE)": self.position_rmse,
            "extent of the known positions (RMS)": self.position_extent,
            "rotation error (mean), deg": self.rotation_deg,
        }


def align_to_poses(estimated: Sequence[Pose], known: Sequence[Pose | None]) -> Alignment:
    """Align estimated poses to those that are known; at least two, at different places."""
    pairs = [(one, other) for one, other in zip(estimated, known, strict=True) if other is not None]
    if len(pairs) < 2:
        raise ValueError(f"{len(pairs)} known poses cannot align a scene: two or more can")
    source, target = (_stack(side) for side in zip(*pairs, strict=True))
    similarity = fit_similarity_to_poses(source, target)
    moved = similarity.transform_pose(source)
    off = (moved.translation - target.translation).square().sum(-1)
    extent = (target.translation - target.translation.mean(0)).square().sum(-1)
    return Alignment(
        similarity,
        len(pairs),
        float(off.mean().sqrt()),
        float(extent.mean().sqrt()),
        float(_compute_angle_deg(moved.rotation, target.rotation).mean()),
    )


def _stack(poses: Sequence[Pose]) -> Pose:
    return Pose(torch.stack([pose.world_from_cam.double() for pose in poses]))


def _compute_angle_deg(one: Tensor, other: Tensor) -> Tensor:
    """Return the angle between rotations, by ‖A − B‖ = √8 sin(angle / 2), which is accurate for small angles too."""
    half = (one - other).flatten(-2).norm(dim=-1) / 8**0.5
    return (2 * torch.asin(half.clamp(max=1))).rad2deg()
