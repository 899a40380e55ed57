"""The rows of a reconstruction table: six values per set of views (appendix "Inlier and Pose Metric Definitions")."""

from dataclasses import dataclass, fields
from functools import reduce
from itertools import accumulate

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.metrics.bootstrap import Interval, bootstrap
from g_ray.metrics.reconstruction.depth import DepthName, compute_depth
from g_ray.metrics.reconstruction.geometry import SetGeometry
from g_ray.metrics.reconstruction.pointmaps import norm_inliers, relative_error
from g_ray.metrics.reconstruction.rays import ray_error_deg
from g_ray.metrics.reconstruction.trajectory import pose_ate


@dataclass(frozen=True)
class ReconstructionScores:
    """Pixels are averaged within a view, views within a set. Inliers are shares, in [0, 1]."""

    points_rel: Float[Tensor, "set"]
    rays_deg: Float[Tensor, "set"]
    depth_rel: Float[Tensor, "set"]
    points_inlier: Float[Tensor, "set"]
    pose_ate: Float[Tensor, "set"]
    depth_inlier: Float[Tensor, "set"]
    unscored: tuple[tuple[int, int], ...] = ()
    """(set, view) of each view without a valid pixel: it has no error of points and depth, is left out of its set's
    mean, and is to be reported beside it."""

    @staticmethod
    def concatenate(parts: "list[ReconstructionScores]") -> "ReconstructionScores":
        """The sets of several batches, in order."""
        columns = {name: torch.cat([part.rows()[name] for part in parts]) for name in METRICS}
        starts = accumulate((len(part.pose_ate) for part in parts), initial=0)
        unscored = [
            (start + group, view)
            for start, part in zip(starts, parts, strict=False)
            for group, view in part.unscored
        ]
        return ReconstructionScores(**columns, unscored=tuple(unscored))

    def rows(self) -> dict[str, Float[Tensor, "set"]]:
        """A value per metric and set; NaN for points and depth of a set that has no valid pixel at all."""
        return {name: getattr(self, name) for name in METRICS}

    def summarize(self, *, seed: int = 0) -> dict[str, Interval]:
        """Equal-weight means over the sets that have a value, with 95 % bootstrap intervals."""
        return {name: bootstrap(values[~values.isnan()], seed=seed) for name, values in self.rows().items()}


METRICS = tuple(f.name for f in fields(ReconstructionScores) if f.name != "unscored")
"""Points rel, Rays err°, Depth rel, Pts Inl., Pose ATE, Dp. Inl.: the columns of the paper's tables, in order."""


@torch.no_grad()
def score_sets(
    truth: SetGeometry,
    predicted: SetGeometry,
    valid: Bool[Tensor, "set view h w"],
    *,
    depth_kind: DepthName,
    known_rays: Bool[Tensor, "set view h w"] | None = None,
) -> ReconstructionScores:
    """All six metrics. Truth and prediction go to their own first view and are normalised each by its own scale.

    A prediction that is not finite is an error, not a bad score: a mean would hide it or be ruined by it.
    """
    _check_finite(predicted, valid, known_rays)
    dtype = reduce(torch.promote_types, (truth.dtype, predicted.dtype), torch.float32)
    ours, theirs = (geometry.to(dtype).to_first_view().normalize(valid) for geometry in (truth, predicted))
    our_depth, their_depth = (compute_depth(given.camera_points, depth_kind) for given in (ours, theirs))
    points_rel = relative_error(ours.world_points, theirs.world_points, valid)
    return ReconstructionScores(
        points_rel=points_rel.nanmean(-1),
        rays_deg=ray_error_deg(ours.rays, theirs.rays, known_rays).nanmean(-1),
        depth_rel=relative_error(our_depth, their_depth, valid).nanmean(-1),
        points_inlier=norm_inliers(ours.world_points, theirs.world_points, valid).nanmean(-1),
        pose_ate=pose_ate(ours.poses.translation, theirs.poses.translation),
        depth_inlier=norm_inliers(our_depth, their_depth, valid).nanmean(-1),
        unscored=tuple((group, view) for group, view in points_rel.isnan().nonzero().tolist()),
    )


def _check_finite(predicted: SetGeometry, valid: Tensor, known_rays: Tensor | None) -> None:
    """NaN means "no valid pixel" below, so it must not come in from elsewhere."""
    broken_rays = ~predicted.rays.isfinite().all(-1)
    broken = broken_rays if known_rays is None else broken_rays & known_rays
    for points in (predicted.world_points, predicted.camera_points):
        broken = broken | (~points.isfinite().all(-1) & valid)
    bad = broken.any(-1).any(-1) | ~predicted.poses.world_from_cam.isfinite().flatten(-2).all(-1)
    if bool(bad.any()):
        group, view = bad.nonzero()[0].tolist()
        raise ValueError(
            f"the prediction is not finite in {int(bad.sum())} views, first in view {view} of set {group}: "
            "score what is finite, or find out why it is not"
        )
