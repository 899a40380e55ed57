"""Accuracy of relative poses over all pairs of views: the share below an angle, and the area under its curve.

VGGT and DA3-BENCH publish the same area of different errors: see `PairKind`.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.geometry.pose import Pose
from g_ray_lab.metrics.trajectory_metrics import check_poses, rotation_angle

PairKind = Literal["relative", "da3-bench"]
"""relative: the pose of view j in the camera of view i, as VGGT evaluates it; no world is involved.
da3-bench: with poses world_from_cam P relative to the first view, DA3-BENCH compares P_i P_j⁻¹ instead of P_i⁻¹ P_j,
whose rotation and direction depend on the first view. Use it only beside the numbers of DA3-BENCH."""
THRESHOLDS_DEG = (3, 5, 15, 30)
NO_DIRECTION_DEG = 90.0
"""Error of a predicted baseline of length 0."""


@dataclass(frozen=True)
class PairErrors:
    """Errors of the relative poses of all pairs i < j of a set, in degrees."""

    rotation_deg: Float[Tensor, "pair"]
    direction_deg: Float[Tensor, "pair"]
    """Angle between the lines of both baselines, at most 90: the sign is not compared, as published. It is 0 for
    views that truly have one center, which have no direction; the published code counts 90 there."""

    @property
    def largest_deg(self) -> Float[Tensor, "pair"]:
        return torch.maximum(self.rotation_deg, self.direction_deg)


@torch.no_grad()
def compute_pair_errors(truth: Pose, predicted: Pose, kind: PairKind = "relative") -> PairErrors:
    """Compare the relative poses of all pairs of views [view]. ValueError for fewer than two views."""
    check_poses(truth, predicted)
    first, second = torch.combinations(torch.arange(truth.batch_shape[0]), 2).unbind(-1)
    relative = []
    for poses in (truth.to(torch.float64), predicted.to(torch.float64)):
        local = poses.relative_to_first()
        a, b = local[first], local[second]
        relative.append(a.inverse() @ b if kind == "relative" else a @ b.inverse())
    true, guess = relative
    return PairErrors(
        torch.rad2deg(rotation_angle(true.rotation.mT @ guess.rotation)),
        _compare_directions(true.translation, guess.translation),
    )


def _compare_directions(
    truth: Float[Tensor, "pair 3"], predicted: Float[Tensor, "pair 3"]
) -> Float[Tensor, "pair"]:
    sine = torch.linalg.vector_norm(torch.linalg.cross(truth, predicted), dim=-1)
    cosine = (truth * predicted).sum(-1).abs()
    angle = torch.rad2deg(torch.atan2(sine, cosine))
    lengths = [torch.linalg.vector_norm(baseline, dim=-1) for baseline in (truth, predicted)]
    # Rounding moves centers that coincide apart; a baseline below it has no direction.
    absent = [length <= 1e-12 * length.max() for length in lengths]
    angle = torch.where(absent[1], NO_DIRECTION_DEG, angle)
    return torch.where(absent[0], 0.0, angle)


def compute_auc(errors_deg: Float[Tensor, "pair"], threshold_deg: int) -> float:
    """Return the mean over k = 1, …, threshold of the share of errors below k degrees, in [0, 1].

    This is the published area under the curve: a sum over bins of one degree, of which the last is closed.
    """
    limits = torch.arange(1, threshold_deg + 1, dtype=errors_deg.dtype)
    below = errors_deg[:, None] < limits
    below[:, -1] = errors_deg <= threshold_deg
    return below.double().mean().item()


def score_pairs(truth: Pose, predicted: Pose, kind: PairKind = "relative") -> dict[str, float]:
    """Return rra_T and rta_T, the shares of pairs below T degrees, and auc_T of the larger error for all thresholds."""
    errors = compute_pair_errors(truth, predicted, kind)
    scores = {}
    for threshold in THRESHOLDS_DEG:
        scores[f"rra_{threshold}"] = (errors.rotation_deg < threshold).double().mean().item()
        scores[f"rta_{threshold}"] = (errors.direction_deg < threshold).double().mean().item()
        scores[f"auc_{threshold}"] = compute_auc(errors.largest_deg, threshold)
    return scores
