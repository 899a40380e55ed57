"""Metrics of camera poses: errors of trajectories (TUM RGB-D, Sintel), and of all pairs of views (VGGT, DA3-BENCH).

A predicted trajectory is aligned to the true one by a similarity. evo computes the same numbers with
`align=True, correct_scale=True, delta=1, all_pairs=True`, but refuses trajectories on a line and those of two poses.
"""

import math
from dataclasses import asdict, dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.geometry.pose import Pose
from g_ray.geometry.similarity import Similarity, fit_similarity


@dataclass(frozen=True)
class TrajectoryScores:
    """Root mean squares over one trajectory. Lengths are in the unit of the truth."""

    ate: float
    """Distance between camera centers."""
    rpe_trans: float
    """Length of the translation of the relative pose error between consecutive views."""
    rpe_rot_deg: float
    """Angle of its rotation, in degrees."""

    def rows(self) -> dict[str, float]:
        """Return the values by name."""
        return asdict(self)


@torch.no_grad()
def score_trajectory(truth: Pose, predicted: Pose) -> TrajectoryScores:
    """Align a predicted trajectory [view] to the true one and compute ATE and RPE between consecutive views.

    Alignment minimizes the distances between camera centers over rotation, translation and scale. Two poses can always
    be aligned: their ATE is 0. ValueError for fewer than two poses, for non-finite ones, and for a true camera that
    stands still: any prediction, shrunk to one point, would fit it.
    """
    check_poses(truth, predicted)
    if _stands_still(truth):
        raise ValueError(
            "the true camera stands still: a similarity aligns any trajectory to one point, so ATE has no meaning"
        )
    truth, predicted = truth.to(torch.float64), predicted.to(torch.float64)
    similarity = align_trajectory(truth, predicted)
    aligned = similarity.transform_pose(predicted)
    errors = relative_pose_errors(truth, aligned)
    return TrajectoryScores(
        ate=_rms(torch.linalg.vector_norm(aligned.translation - truth.translation, dim=-1)),
        rpe_trans=_rms(torch.linalg.vector_norm(errors.translation, dim=-1)),
        rpe_rot_deg=_rms(torch.rad2deg(rotation_angle(errors.rotation))),
    )


def align_trajectory(truth: Pose, predicted: Pose) -> Similarity:
    """Find the similarity that moves the predicted camera centers [view] closest to the true ones.

    A prediction that stands still fixes no scale: it keeps its own, and its center is moved to the true one. Every
    other choice of scale and rotation would give the same errors.
    """
    centers, goals = predicted.translation.double(), truth.translation.double()
    if _stands_still(predicted):
        still = Similarity.identity()
        return Similarity(still.scale, still.rotation, goals.mean(0) - centers.mean(0))
    return fit_similarity(centers, goals, min_points=2)


def relative_pose_errors(truth: Pose, predicted: Pose) -> Pose:
    """Return (Qᵢ⁻¹ Qᵢ₊₁)⁻¹ (Pᵢ⁻¹ Pᵢ₊₁) for consecutive views of the true poses Q and the predicted poses P."""
    true_motion, motion = (poses[:-1].inverse() @ poses[1:] for poses in (truth, predicted))
    return true_motion.inverse() @ motion


def rotation_angle(rotation: Float[Tensor, "*batch 3 3"]) -> Float[Tensor, "*batch"]:
    """Return the angle of a rotation in radians, in [0, π].

    The antisymmetric part of R has the length 2 sin θ and its trace is 1 + 2 cos θ. Both together keep all digits at
    every angle; the arc cosine of the trace alone loses half of them near 0.
    """
    sine = torch.stack(
        [
            rotation[..., 2, 1] - rotation[..., 1, 2],
            rotation[..., 0, 2] - rotation[..., 2, 0],
            rotation[..., 1, 0] - rotation[..., 0, 1],
        ],
        -1,
    )
    trace = rotation.diagonal(dim1=-2, dim2=-1).sum(-1)
    return torch.atan2(torch.linalg.vector_norm(sine, dim=-1), trace - 1)


def check_poses(truth: Pose, predicted: Pose) -> None:
    """Raise ValueError unless both are the same number of finite poses, two or more."""
    views = truth.batch_shape
    if len(views) != 1 or views != predicted.batch_shape:
        raise ValueError(
            f"true poses have the shape {views}, predicted ones {predicted.batch_shape}: give one pose per view"
        )
    if views[0] < 2:
        raise ValueError(f"{views[0]} pose is no trajectory: pose metrics need two views or more")
    for name, poses in (("true", truth), ("predicted", predicted)):
        broken = ~poses.world_from_cam.isfinite().flatten(1).all(1)
        if bool(broken.any()):
            raise ValueError(
                f"{int(broken.sum())} of {views[0]} {name} poses are not finite, first that of view "
                f"{int(broken.nonzero()[0])}"
            )


def _stands_still(poses: Pose) -> bool:
    """Tell whether the centers coincide up to the rounding of their dtype."""
    centers = poses.translation
    extent = torch.linalg.vector_norm(centers - centers.mean(0), dim=-1).max()
    return bool(extent <= 8 * torch.finfo(poses.dtype).eps * centers.abs().max())


def _rms(errors: Float[Tensor, "n"]) -> float:
    return math.sqrt(errors.square().mean().item())


# Pairs of views


PairKind = Literal["relative", "da3-bench"]
"""relative: the pose of view j in the camera of view i, as VGGT evaluates it; no world is involved.
da3-bench: with poses world_from_cam P relative to the first view, DA3-BENCH compares P_i P_j⁻¹ instead of P_i⁻¹ P_j,
whose rotation and direction depend on the first view. Use it only to compare with the numbers of DA3-BENCH."""
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
