"""Similarities: rotation, translation and one scale, between worlds that agree up to these."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.geometry.pose import Pose

ROUNDS = 5  # of reweighting in a robust fit


@dataclass(frozen=True)
class Similarity:
    """x ↦ scale · R x + t, from one world to another."""

    scale: Float[Tensor, ""]
    rotation: Float[Tensor, "3 3"]
    translation: Float[Tensor, "3"]

    @staticmethod
    def identity() -> "Similarity":
        return Similarity.from_scale(1.0)

    @staticmethod
    def from_scale(scale: float) -> "Similarity":
        return Similarity(
            torch.tensor(scale, dtype=torch.float64), torch.eye(3).double(), torch.zeros(3).double()
        )

    def apply(self, points: Float[Tensor, "*shape 3"]) -> Float[Tensor, "*shape 3"]:
        moved = self.scale * points.double() @ self.rotation.mT + self.translation
        return moved.to(points.dtype)

    def transform_pose(self, pose: Pose) -> Pose:
        """Express world_from_cam in the other world. Lengths in the camera's own frame grow by `scale`."""
        pose64 = pose.to(torch.float64)
        moved = Pose.from_parts(self.rotation @ pose64.rotation, self.apply(pose64.translation))
        return moved.to(pose.dtype)

    def __matmul__(self, first: "Similarity") -> "Similarity":
        """Apply `first`, then this one."""
        return Similarity(
            self.scale * first.scale, self.rotation @ first.rotation, self.apply(first.translation)
        )


def fit_similarity(
    source: Float[Tensor, "n 3"],
    target: Float[Tensor, "n 3"],
    weight: Float[Tensor, "n"] | None = None,
    *,
    rigid: bool = False,
    min_points: int = 3,
) -> Similarity:
    """Find the similarity that minimizes Σ wᵢ ‖s R pᵢ + t − qᵢ‖² (Umeyama); `rigid` keeps s = 1.

    Two points, or points on a line, fix its scale and the residuals, but not the rotation about their line. Callers
    that need no more than these pass `min_points=2`.
    """
    # Centering subtracts large numbers: points far from the origin (meters in a national grid) need float64.
    source, target = source.double(), target.double()
    weight = torch.ones_like(source[:, 0]) if weight is None else weight.double()
    if len(source) < min_points or not float(weight.sum()) > 0:
        raise ValueError(
            f"{len(source)} points do not fix a similarity: give {min_points} or more, with weights above 0"
        )
    share = (weight / weight.sum())[:, None]
    center, goal = (share * source).sum(0), (share * target).sum(0)
    from_center, from_goal = source - center, target - goal
    spread = (share * from_center.square()).sum()
    if not float(spread) > 1e-24:
        raise ValueError("all points coincide: they do not fix a scale")
    # Covariance Σ w (q − q̄)(p − p̄)ᵀ = U S Vᵀ; then R = U diag(1, 1, det UVᵀ) Vᵀ and s = tr(S diag(…)) / var(p).
    left, size, right = torch.linalg.svd((share * from_goal).mT @ from_center)
    flip = torch.ones_like(size)
    flip[2] = torch.linalg.det(left @ right).sign()  # the best rotation, not a reflection
    rotation = left * flip @ right
    scale = torch.ones_like(spread) if rigid else (size * flip).sum() / spread
    return Similarity(scale, rotation, goal - scale * rotation @ center)


def fit_similarity_robustly(
    source: Float[Tensor, "n 3"],
    target: Float[Tensor, "n 3"],
    weight: Float[Tensor, "n"],
    *,
    rigid: bool = False,
) -> Similarity:
    """Find a similarity that most points agree with: least squares, reweighted with Cauchy weights."""
    similarity = fit_similarity(source, target, weight, rigid=rigid)
    for _ in range(ROUNDS):
        off = (similarity.apply(source) - target).norm(dim=-1)
        # The median adapts the kernel's width to how well the points fit at all.
        agreement = 1 / (1 + (off / off.median().clamp(min=1e-9)).square())
        similarity = fit_similarity(source, target, weight * agreement, rigid=rigid)
    return similarity


def fit_similarity_to_poses(source: Pose, target: Pose) -> Similarity:
    """Find the similarity from two or more cameras [view] known in both worlds.

    Each camera gives its center and the tips of its axes, which are as long as the cameras lie apart: orientations
    count as much as places, and cameras on a line, or only two of them, suffice.
    """
    reach = [_compute_spread(pose) for pose in (source, target)]
    if min(reach) <= 0:
        raise ValueError("cameras in one place do not fix a scale: give poses of cameras that are apart")
    return fit_similarity(
        *(_compute_axis_tips(pose, length) for pose, length in zip((source, target), reach, strict=True))
    )


def _compute_spread(pose: Pose) -> float:
    centers = pose.translation.double()
    return float((centers - centers.mean(0)).square().sum(-1).mean().sqrt())


def _compute_axis_tips(pose: Pose, length: float) -> Float[Tensor, "n 3"]:
    axes = pose.rotation.double().mT * length
    centers = pose.translation.double()[:, None]
    # Both ends of each axis, so that the mean of a camera's seven points is its center.
    return torch.cat([centers, centers + axes, centers - axes], 1).flatten(0, 1)
