"""Metrics of the reconstruction tables: six values per set of views (appendix "Inlier and Pose Metric Definitions").

`score_sets` brings truth and prediction into the frame of their first view and to unit scale, then computes the
relative error and the inliers of points and depth, the angle between rays, and the trajectory error.
"""

from dataclasses import dataclass, fields, replace
from functools import reduce
from itertools import accumulate
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.geometry.pointmap import compute_mean_distance, transform_points
from g_ray.geometry.pose import Pose
from g_ray.runtime.device import disable_autocast

DepthName = Literal["z", "ray"]
"""The paper evaluates z on PandaSet and ETH3D, and the distance along the ray on data with fisheyes (ScanNet++)."""
INLIER_RATIO = 1.03
"""Largest ratio between two norms that count as equal (paper, eq:inlier_ratio)."""
SLACK = 1e-8
"""Avoids a division by 0 in sets without a valid pixel."""


@dataclass(frozen=True)
class SetGeometry:
    """True or predicted geometry of a set of views, in any world frame and at any scale."""

    world_points: Float[Tensor, "*set view h w 3"]
    camera_points: Float[Tensor, "*set view h w 3"]  # the same pixels, each in its own camera's frame
    rays: Float[Tensor, "*set view h w 3"]  # unit, in the camera's frame
    poses: Pose  # world_from_cam [*set view]

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
        """Express world points and poses in the frame of the set's first camera."""
        with disable_autocast(self.world_points):
            world = transform_points(self.world_points, self.poses[..., :1].inverse())
            return replace(self, world_points=world, poses=self.poses.relative_to_first())

    def normalize(self, valid: Bool[Tensor, "*set view h w"]) -> "SetGeometry":
        """Divide points and translations by the mean distance of the set's valid points: one factor for all views."""
        scale = compute_mean_distance(self.world_points, valid, slack=SLACK).clamp(min=SLACK)
        # Without a valid pixel there is no scale; 1e-8 would blow up poses that are fine.
        scale = torch.where(valid.flatten(-3).any(-1), scale, 1)
        per_point = scale[..., None, None, None, None]
        return SetGeometry(
            self.world_points / per_point,
            self.camera_points / per_point,
            self.rays,
            self.poses.scale_translation(1 / scale[..., None]),
        )


def relative_error(
    truth: Float[Tensor, "*view h w channel"],
    predicted: Float[Tensor, "*view h w channel"],
    valid: Bool[Tensor, "*view h w"],
) -> Float[Tensor, "*view"]:
    """Return the mean of ‖p̂ − p‖ / ‖p‖ over valid pixels per view; NaN without a valid pixel.

    Of points it is "Points rel" of the tables; of depths, with one channel, "Depth rel".
    """
    size = torch.linalg.vector_norm(truth, dim=-1)
    error = torch.linalg.vector_norm(predicted - truth, dim=-1)
    return average_valid(error / torch.where(size > 0, size, 1), valid & (size > 0))


def norm_inliers(
    truth: Float[Tensor, "*view h w channel"],
    predicted: Float[Tensor, "*view h w channel"],
    valid: Bool[Tensor, "*view h w"],
    ratio: float = INLIER_RATIO,
) -> Float[Tensor, "*view"]:
    """Return the share of valid pixels with max(‖p̂‖/‖p‖, ‖p‖/‖p̂‖) < ratio (eq:inlier_ratio); NaN without any.

    As in the paper only norms count: a point at the right distance in a wrong direction is an inlier. A predicted
    0 is an outlier.
    """
    true_norms, predicted_norms = (torch.linalg.vector_norm(points, dim=-1) for points in (truth, predicted))
    # Products instead of quotients avoid a special case for 0.
    inlier = (predicted_norms < ratio * true_norms) & (true_norms < ratio * predicted_norms)
    return average_valid(inlier.to(truth.dtype), valid & (true_norms > 0))


def average_valid(
    values: Float[Tensor, "*view h w"], valid: Bool[Tensor, "*view h w"]
) -> Float[Tensor, "*view"]:
    """Return the mean over valid pixels per view; NaN without a valid pixel, so that callers must treat that case."""
    return torch.where(valid, values, 0).sum((-2, -1)) / valid.sum((-2, -1))


def ray_error_deg(
    truth: Float[Tensor, "*view h w 3"],
    predicted: Float[Tensor, "*view h w 3"],
    known: Bool[Tensor, "*view h w"] | None = None,
) -> Float[Tensor, "*view"]:
    """Return the mean angle between true and predicted rays in degrees per view, over all pixels (Rays err°).

    Pixels count with or without depth; `known` masks out those without a ray, such as the black corners of a
    circular fisheye. The angle is 2 asin(‖r − r̂‖/2): acos(r · r̂) loses all digits at small angles.
    """
    chord = torch.linalg.vector_norm(truth - predicted, dim=-1)
    angle = torch.rad2deg(2 * torch.asin((chord / 2).clamp(max=1)))
    if known is None:
        known = torch.ones_like(angle, dtype=torch.bool)
    return average_valid(angle, known)


def compute_depth(camera_points: Float[Tensor, "*shape 3"], kind: DepthName) -> Float[Tensor, "*shape 1"]:
    """Return z-depth (along the optical axis) or ray depth (distance from the camera), with one channel.

    The channel lets the same functions compare depths and points.
    """
    if kind == "z":
        return camera_points[..., 2:]
    if kind == "ray":
        return torch.linalg.vector_norm(camera_points, dim=-1, keepdim=True)
    raise ValueError(
        f"unknown depth {kind!r}: choose z (along the optical axis) or ray (along the viewing ray)"
    )


def pose_ate(
    truth: Float[Tensor, "*set view 3"], predicted: Float[Tensor, "*set view 3"]
) -> Float[Tensor, "*set"]:
    """Return the mean distance between camera centers after rigid alignment without scale (Pose ATE).

    With two views only the lengths of the baselines matter: ATE = |b − b̂|/2.
    """
    with disable_autocast(truth):
        return torch.linalg.vector_norm(align_rigidly(truth, predicted) - predicted, dim=-1).mean(-1)


def align_rigidly(
    points: Float[Tensor, "*set point 3"], target: Float[Tensor, "*set point 3"]
) -> Float[Tensor, "*set point 3"]:
    """Return R p + t for the rotation and translation that minimize Σ ‖R pᵢ + t − qᵢ‖² (Horn; Umeyama with scale 1)."""
    center, goal = points.mean(-2, keepdim=True), target.mean(-2, keepdim=True)
    covariance = (target - goal).mT @ (points - center)
    left, _, right = torch.linalg.svd(covariance)
    # Flip the axis of the smallest singular value where the best orthogonal matrix is a reflection.
    flip = torch.ones_like(center[..., 0, :])
    flip[..., 2] = torch.linalg.det(left @ right).sign()
    return (points - center) @ (left * flip[..., None, :] @ right).mT + goal


@dataclass(frozen=True)
class ReconstructionScores:
    """Six values per set: pixels are averaged within a view, then views within a set. Inliers are shares in [0, 1]."""

    points_rel: Float[Tensor, "set"]
    rays_deg: Float[Tensor, "set"]
    depth_rel: Float[Tensor, "set"]
    points_inlier: Float[Tensor, "set"]
    pose_ate: Float[Tensor, "set"]
    depth_inlier: Float[Tensor, "set"]
    unscored: tuple[tuple[int, int], ...] = ()
    """(set, view) of each view without a valid pixel: excluded from the point and depth means of its set, and to be
    reported with them."""

    @staticmethod
    def concatenate(parts: "list[ReconstructionScores]") -> "ReconstructionScores":
        """Join the sets of several batches, in order."""
        columns = {name: torch.cat([part.rows()[name] for part in parts]) for name in METRICS}
        starts = accumulate((len(part.pose_ate) for part in parts), initial=0)
        unscored = [
            (start + group, view)
            for start, part in zip(starts, parts, strict=False)
            for group, view in part.unscored
        ]
        return ReconstructionScores(**columns, unscored=tuple(unscored))

    def rows(self) -> dict[str, Float[Tensor, "set"]]:
        """Return the values per set by metric; a set without any valid pixel has NaN for all but rays."""
        return {name: getattr(self, name) for name in METRICS}


METRICS = tuple(f.name for f in fields(ReconstructionScores) if f.name != "unscored")
"""The columns of the paper's tables, in order: Points rel, Rays err°, Depth rel, Pts Inl., Pose ATE, Dp. Inl."""


@torch.no_grad()
def score_sets(
    truth: SetGeometry,
    predicted: SetGeometry,
    valid: Bool[Tensor, "set view h w"],
    *,
    depth_kind: DepthName,
    known_rays: Bool[Tensor, "set view h w"] | None = None,
) -> ReconstructionScores:
    """Compute all six metrics, after moving truth and prediction to their own first view and own unit scale.

    A set without a valid pixel has no unit scale, so that its pose error is NaN, too. Non-finite truth or predictions
    raise ValueError: in a mean they would spoil it, and left out they would make it look better than it is.
    """
    _check_finite("truth", truth, valid, known_rays)
    _check_finite("prediction", predicted, valid, known_rays)
    dtype = reduce(torch.promote_types, (truth.dtype, predicted.dtype), torch.float32)
    truth, predicted = (
        geometry.to(dtype).to_first_view().normalize(valid) for geometry in (truth, predicted)
    )
    true_depth, predicted_depth = (
        compute_depth(geometry.camera_points, depth_kind) for geometry in (truth, predicted)
    )
    points_rel = relative_error(truth.world_points, predicted.world_points, valid)
    return ReconstructionScores(
        points_rel=points_rel.nanmean(-1),
        rays_deg=ray_error_deg(truth.rays, predicted.rays, known_rays).nanmean(-1),
        depth_rel=relative_error(true_depth, predicted_depth, valid).nanmean(-1),
        points_inlier=norm_inliers(truth.world_points, predicted.world_points, valid).nanmean(-1),
        pose_ate=torch.where(
            valid.flatten(-3).any(-1),
            pose_ate(truth.poses.translation, predicted.poses.translation),
            torch.nan,
        ),
        depth_inlier=norm_inliers(true_depth, predicted_depth, valid).nanmean(-1),
        unscored=tuple((group, view) for group, view in points_rel.isnan().nonzero().tolist()),
    )


def _check_finite(name: str, geometry: SetGeometry, valid: Tensor, known_rays: Tensor | None) -> None:
    """Raise ValueError for non-finite values: in the scores NaN means "no valid pixel", and nothing else."""
    broken_rays = ~geometry.rays.isfinite().all(-1)
    broken = broken_rays if known_rays is None else broken_rays & known_rays
    for points in (geometry.world_points, geometry.camera_points):
        broken = broken | (~points.isfinite().all(-1) & valid)
    bad = broken.any(-1).any(-1) | ~geometry.poses.world_from_cam.isfinite().flatten(-2).all(-1)
    if bool(bad.any()):
        group, view = bad.nonzero()[0].tolist()
        raise ValueError(
            f"the {name} is not finite in {int(bad.sum())} views, first in view {view} of set {group}: "
            "mask out these pixels, or fix where they come from"
        )
