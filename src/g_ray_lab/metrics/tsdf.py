"""Score depth and poses by the surface that they make together, as DA3-BENCH does: a TSDF, points on it, an F-score."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import torch
from jaxtyping import Float

from g_ray.geometry.pose import Pose
from g_ray.geometry.similarity import Similarity, fit_similarity
from g_ray.mesh.depth_fusion import DepthView, extract_triangles, fuse_depth
from g_ray_lab.metrics.point_cloud import (
    Points,
    build_tree,
    check_points,
    find_nearest,
    sample_triangles,
    thin_out,
)
from g_ray_lab.metrics.pose_metrics import check_poses

SAMPLES = 1_000_000
"""Points that are drawn on a surface before they are thinned out."""
RANSAC_STEPS, RANSAC_SEED = 10, 42


@dataclass(frozen=True)
class FusionSettings:
    """How depth is fused and compared; lengths in meters."""

    voxel: float
    truncation: float
    threshold: float
    """Distance within which a point counts as right."""
    scoring_voxel: float
    """Both clouds are thinned out to one point in each."""
    max_depth: float = float("inf")
    """Along the optical axis."""
    crop_margin: float | None = None
    """Predicted points farther outside of the box of the truth are cut off; None: all are kept."""
    samples: int = SAMPLES


DA3_BENCH: dict[str, FusionSettings] = {
    "eth3d": FusionSettings(voxel=5 / 128, truncation=0.2, threshold=0.25, scoring_voxel=5 / 128),
    "7scenes": FusionSettings(voxel=1 / 128, truncation=0.04, threshold=0.05, scoring_voxel=1 / 128),
    "scannetpp": FusionSettings(
        voxel=0.02, truncation=0.15, threshold=0.05, scoring_voxel=0.02, max_depth=5.0, crop_margin=0.1
    ),
}


@dataclass(frozen=True)
class SurfaceScores:
    """Distances in the unit of the truth; shares in [0, 1]. Without predicted points distances are infinite."""

    acc: float
    comp: float
    overall: float
    """Mean of both."""
    precision: float
    """Share of predicted points within the threshold of the truth."""
    recall: float
    """Share of true points within the threshold of the prediction."""
    f_score: float
    """2 · precision · recall / (precision + recall)"""

    def rows(self) -> dict[str, float]:
        """Return the values by name."""
        return asdict(self)


def score_fusion(
    truth: Points, views: Sequence[DepthView], true_poses: Pose, settings: FusionSettings
) -> SurfaceScores:
    """Align predicted views to the true poses [view], fuse their depth, and compare the surface with true points.

    `truth` are points drawn from the true surface (`sample_triangles`). Views hold predicted depth and poses; as
    published, mask out the pixels without true depth before, since nothing can be said about these.
    """
    points = fuse_to_points(align_views(views, true_poses), settings)
    return compare_surfaces(truth, points, settings)


def fuse_to_points(views: Sequence[DepthView], settings: FusionSettings, *, seed: int = 0) -> Points:
    """Fuse the depth of views in one world, and draw points on the surface."""
    near = [view.limit_depth(settings.max_depth) for view in views]
    volume = fuse_depth(near, voxel=settings.voxel, truncation=settings.truncation)
    return sample_triangles(extract_triangles(volume), settings.samples, seed=seed)


def compare_surfaces(truth: Points, predicted: Points, settings: FusionSettings) -> SurfaceScores:
    """Thin out both clouds and compare nearest neighbors."""
    check_points("true", truth)
    if settings.crop_margin is not None:
        low, high = truth.min(0) - settings.crop_margin, truth.max(0) + settings.crop_margin
        predicted = predicted[((predicted >= low) & (predicted <= high)).all(1)]
    if not len(predicted):
        inf = float("inf")
        return SurfaceScores(inf, inf, inf, 0.0, 0.0, 0.0)
    check_points("predicted", predicted)
    truth, predicted = (thin_out(points, settings.scoring_voxel) for points in (truth, predicted))
    to_truth, _ = find_nearest(build_tree(truth), predicted)
    to_prediction, _ = find_nearest(build_tree(predicted), truth)
    precision, recall = (float((far < settings.threshold).mean()) for far in (to_truth, to_prediction))
    accuracy, completeness = float(to_truth.mean()), float(to_prediction.mean())
    both = precision + recall
    return SurfaceScores(
        acc=accuracy,
        comp=completeness,
        overall=(accuracy + completeness) / 2,
        precision=precision,
        recall=recall,
        f_score=2 * precision * recall / both if both > 0 else 0.0,
    )


# Alignment of poses


def align_views(views: Sequence[DepthView], true_poses: Pose) -> list[DepthView]:
    """Move views into the world of the true poses, with the scale that their centers fix."""
    poses = Pose(torch.stack([view.pose.world_from_cam.double() for view in views]))
    similarity = align_robustly(true_poses, poses)
    return [
        replace(
            view,
            pose=similarity.transform_pose(Pose(pose)),
            ray_depth=view.ray_depth * float(similarity.scale),
        )
        for view, pose in zip(views, poses.world_from_cam, strict=True)
    ]


def align_robustly(truth: Pose, predicted: Pose, *, seed: int = RANSAC_SEED) -> Similarity:
    """Find the similarity between camera centers [view] that most views agree with, as DA3-BENCH does.

    Ten times half of the views (at least three) are fitted; the fit with the most views within a threshold wins, then
    with the smallest mean error of these, and is repeated on them. The threshold is the median distance of the
    centers, after a fit of all, to the nearest true center. ValueError for fewer than three views.
    """
    check_poses(truth, predicted)
    centers, goals = predicted.translation.double(), truth.translation.double()
    best = fit_similarity(centers, goals)
    nearest = torch.cdist(best.apply(centers), goals).min(1).values
    # The published median is numpy's, which averages the two in the middle.
    threshold = float(np.median(nearest.numpy()))
    count, score, agreeing = max(3, (len(centers) + 1) // 2), (-1, -float("inf")), None
    rng = np.random.default_rng(seed)
    for _ in range(RANSAC_STEPS):
        chosen = torch.from_numpy(rng.choice(len(centers), size=count, replace=False))
        guess = _try_fit(centers[chosen], goals[chosen])
        if guess is None:
            continue
        error = torch.linalg.vector_norm(guess.apply(centers) - goals, dim=-1)
        inliers = error <= threshold
        mean = error[inliers].mean().item() if bool(inliers.any()) else float("inf")
        if (int(inliers.sum()), -mean) > score:
            score, best, agreeing = (int(inliers.sum()), -mean), guess, inliers
    if agreeing is not None and int(agreeing.sum()) >= 3:
        return _try_fit(centers[agreeing], goals[agreeing]) or best
    return best


def _try_fit(source: Float[torch.Tensor, "n 3"], target: Float[torch.Tensor, "n 3"]) -> Similarity | None:
    """Fit a similarity, or return None where the points do not fix one."""
    try:
        similarity = fit_similarity(source, target)
    except ValueError:
        return None
    return similarity if float(similarity.scale) > 0 else None
