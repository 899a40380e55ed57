"""Metrics of point clouds, as published for 7-Scenes, Neural RGB-D, DTU and ETH3D: accuracy, completeness, normals.

Truth and prediction are pointmaps of the same pixels. The prediction is moved by the similarity that fits all pairs of
pixels best, then by ICP without scale; distances and normals are compared between nearest neighbors.
"""

from dataclasses import asdict, dataclass

import numpy as np
import torch

from g_ray.geometry.similarity import fit_similarity
from g_ray_lab.metrics.icp import register
from g_ray_lab.metrics.neighbors import Points, build_tree, check_points, find_nearest

ICP_LIMIT_M, ICP_LIMIT_DTU_MM = 0.1, 100.0
"""Largest distance of correspondences in ICP; of DTU in its own unit."""
NEIGHBORS = 30
"""Points that a normal is estimated from, with the point itself."""
AT_ONCE = 100_000
"""Normals per step, which bounds memory."""


@dataclass(frozen=True)
class PointCloudScores:
    """Distances in the unit of the truth, and |n · n̂| of nearest neighbors, in both directions."""

    acc: float
    """Mean distance from a predicted point to the nearest true one."""
    acc_median: float
    comp: float
    """Mean distance from a true point to the nearest predicted one."""
    comp_median: float
    nc: float
    """Mean of the means of |n · n̂| over predicted and over true points."""
    nc_median: float
    """Mean of both medians."""

    def rows(self) -> dict[str, float]:
        """Return the values by name."""
        return asdict(self)


def score_pointmaps(
    truth: Points, predicted: Points, *, icp_limit: float, surface: Points | None = None, workers: int = 1
) -> PointCloudScores:
    """Align predicted points to the true points of the same pixels, and compare both clouds.

    Pass the valid pixels of all views. Alignment is Umeyama's over all pairs, without rejecting any, then ICP with a
    limit: ICP_LIMIT_M, or ICP_LIMIT_DTU_MM for DTU. For a prediction with gaps pass all true points as `surface`: ICP
    and distances use these, so that gaps count in completeness.
    """
    check_points("true", truth, NEIGHBORS)
    check_points("predicted", predicted, NEIGHBORS)
    if len(truth) != len(predicted):
        raise ValueError(
            f"{len(truth)} true and {len(predicted)} predicted points: give both at the same pixels"
        )
    truth, predicted = truth.astype(np.float64), predicted.astype(np.float64)
    target = truth if surface is None else surface.astype(np.float64)
    similarity = fit_similarity(torch.from_numpy(predicted), torch.from_numpy(truth))
    coarse = similarity.apply(torch.from_numpy(predicted)).numpy()
    moved = register(coarse, target, limit=icp_limit, workers=workers).apply(coarse)
    return score_clouds(target, moved, workers=workers)


def score_clouds(truth: Points, predicted: Points, *, workers: int = 1) -> PointCloudScores:
    """Compare two clouds in one world, which need not have the same number of points."""
    check_points("true", truth, NEIGHBORS)
    check_points("predicted", predicted, NEIGHBORS)
    true_normals, normals = (estimate_normals(points, workers=workers) for points in (truth, predicted))
    accuracy, nearest_true = find_nearest(build_tree(truth), predicted, workers=workers)
    completeness, nearest = find_nearest(build_tree(predicted), truth, workers=workers)
    agreement = [
        np.abs((true_normals[nearest_true] * normals).sum(-1)),
        np.abs((true_normals * normals[nearest]).sum(-1)),
    ]
    return PointCloudScores(
        acc=float(accuracy.mean()),
        acc_median=float(np.median(accuracy)),
        comp=float(completeness.mean()),
        comp_median=float(np.median(completeness)),
        nc=float(np.mean([values.mean() for values in agreement])),
        nc_median=float(np.mean([np.median(values) for values in agreement])),
    )


def estimate_normals(points: Points, *, neighbors: int = NEIGHBORS, workers: int = 1) -> Points:
    """Return the direction of least variance among the nearest points of each, with an arbitrary sign."""
    tree = build_tree(points)
    parts = []
    for start in range(0, len(points), AT_ONCE):
        _, index = tree.query(points[start : start + AT_ONCE], k=min(neighbors, len(points)), workers=workers)
        near = points[index]
        near = near - near.mean(1, keepdims=True)
        covariance = np.einsum("nki,nkj->nij", near, near)
        parts.append(np.linalg.eigh(covariance)[1][..., 0])  # eigenvalues come in ascending order
    return np.concatenate(parts)
