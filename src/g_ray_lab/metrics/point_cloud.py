"""Metrics of point clouds, as published for 7-Scenes, Neural RGB-D, DTU and ETH3D: accuracy, completeness, normals.

Truth and prediction are pointmaps of the same pixels. The prediction is moved by the similarity that fits all pairs of
pixels best, then by ICP without scale; distances and normals are compared between nearest neighbors.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int

from g_ray.geometry.pose import Pose
from g_ray.geometry.similarity import fit_similarity
from g_ray_lab.datasets.dtu import ScannedVolume

# Nearest neighbors, by SciPy's k-d tree


Points = Float[np.ndarray, "_ 3"]


def build_tree(points: Points) -> Any:
    """Build a k-d tree; OSError without SciPy, which is no dependency of the library itself."""
    try:
        from scipy.spatial import KDTree
    except ImportError:
        raise OSError("metrics of point clouds need SciPy; pip install 'g-ray[lab]'") from None
    # Balancing costs more than it saves: depth maps make clouds without clusters of equal coordinates.
    return KDTree(points, balanced_tree=False)


def find_nearest(
    tree: Any, points: Points, *, limit: float = np.inf
) -> tuple[Float[np.ndarray, "_"], Int[np.ndarray, "_"]]:
    """Return the distance and the index of the nearest point of the tree.

    A point whose neighbors are all at the limit or beyond has the distance inf and an index behind the last one: the
    search for it ends early.
    """
    distance, index = tree.query(points, distance_upper_bound=limit)
    return distance, index


def check_points(name: str, points: Points, least: int = 1) -> None:
    """Raise ValueError for too few points, or for points that are not finite."""
    if len(points) < least:
        raise ValueError(f"{len(points)} {name} points: at least {least} are needed")
    broken = ~np.isfinite(points).all(1)
    if broken.any():
        raise ValueError(f"{int(broken.sum())} of {len(points)} {name} points are not finite")


# Point-to-point ICP (Besl and McKay 1992), with the stopping rule and limits of Open3D's defaults, which published
# point-cloud scores use


MAX_STEPS = 30
TOLERANCE = 1e-6
"""Smallest change of the share of correspondences, and of their root mean square distance, that counts."""


@dataclass(frozen=True, eq=False)
class Registration:
    """The rigid motion that ICP found, and how well it fits."""

    target_from_source: Float[np.ndarray, "4 4"]
    fitness: float
    """Share of source points with a target point within the limit."""
    inlier_rmse: float
    """Root mean square distance of these; 0 if there are none."""
    steps: int

    def apply(self, points: Points) -> Points:
        return points @ self.target_from_source[:3, :3].T + self.target_from_source[:3, 3]


def register(source: Points, target: Points, *, limit: float) -> Registration:
    """Move the source onto the target rigidly, from where it is; points farther apart than the limit are not matched.

    Without a single match, or with fewer than three, the motion stays as it is.
    """
    check_points("source", source)
    check_points("target", target)
    if not limit > 0:
        raise ValueError(f"the limit {limit} of correspondences must be above 0")
    tree = build_tree(target)
    motion, moved = np.eye(4), source
    matched, partner, fitness, rmse = _match(tree, moved, limit)
    steps = 0
    for steps in range(1, MAX_STEPS + 1):
        if matched.sum() < 3:
            return Registration(motion, fitness, rmse, steps - 1)
        step = fit_motion(moved[matched], target[partner])
        motion = step @ motion
        # From the source, not from the last place: rounding does not add up.
        moved = source @ motion[:3, :3].T + motion[:3, 3]
        before = fitness, rmse
        matched, partner, fitness, rmse = _match(tree, moved, limit)
        if abs(fitness - before[0]) < TOLERANCE and abs(rmse - before[1]) < TOLERANCE:
            break
    return Registration(motion, fitness, rmse, steps)


def fit_motion(source: Points, target: Points) -> Float[np.ndarray, "4 4"]:
    """Find the rigid motion that minimizes Σ ‖R pᵢ + t − qᵢ‖² (Kabsch)."""
    center, goal = source.mean(0), target.mean(0)
    left, _, right = np.linalg.svd((target - goal).T @ (source - center))
    flip = np.array([1.0, 1.0, np.sign(np.linalg.det(left @ right))])  # the best rotation, not a reflection
    rotation = torch.from_numpy(left * flip @ right)
    translation = torch.from_numpy(goal) - rotation @ torch.from_numpy(center)
    return Pose.from_parts(rotation, translation).world_from_cam.numpy()


def _match(tree: Any, points: Points, limit: float) -> tuple[np.ndarray, np.ndarray, float, float]:
    """Return which points have a partner, these partners, their share and the root mean square of their distances."""
    # Most of the time goes into points without a partner, unless their search ends at the limit.
    distance, index = find_nearest(tree, points, limit=limit)
    matched = distance < limit
    rmse = float(np.sqrt(np.square(distance[matched]).mean())) if matched.any() else 0.0
    return matched, index[matched], float(matched.mean()), rmse


# Accuracy, completeness and normals


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
    truth: Points, predicted: Points, *, icp_limit: float, surface: Points | None = None
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
    # Scale comes from the pairs: ICP with a free scale would shrink a cloud towards its nearest points.
    coarse = similarity.apply(torch.from_numpy(predicted)).numpy()
    moved = register(coarse, target, limit=icp_limit).apply(coarse)
    return score_clouds(target, moved)


def score_clouds(truth: Points, predicted: Points) -> PointCloudScores:
    """Compare two clouds in one world, which need not have the same number of points."""
    check_points("true", truth, NEIGHBORS)
    check_points("predicted", predicted, NEIGHBORS)
    true_normals, normals = (estimate_normals(points) for points in (truth, predicted))
    accuracy, nearest_true = find_nearest(build_tree(truth), predicted)
    completeness, nearest = find_nearest(build_tree(predicted), truth)
    # Normals have arbitrary signs, so their products count without one.
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


def estimate_normals(points: Points) -> Points:
    """Return the direction of least variance among the nearest points of each, with an arbitrary sign."""
    tree = build_tree(points)
    parts = []
    for start in range(0, len(points), AT_ONCE):
        _, index = tree.query(points[start : start + AT_ONCE], k=min(NEIGHBORS, len(points)))
        near = points[index]
        near = near - near.mean(1, keepdims=True)
        covariance = np.einsum("nki,nkj->nij", near, near)
        parts.append(np.linalg.eigh(covariance)[1][..., 0])  # eigenvalues come in ascending order
    return np.concatenate(parts)


# Samples of surfaces


def sample_triangles(triangles: Float[np.ndarray, "triangle 3 3"], count: int, *, seed: int = 0) -> Points:
    """Draw points on triangles, uniformly by area; no points if the triangles have no area."""
    sides = triangles[:, 1:] - triangles[:, :1]
    areas = np.linalg.norm(np.cross(sides[:, 0], sides[:, 1]), axis=-1)
    if not areas.sum() > 0:
        return np.zeros((0, 3))
    rng = np.random.default_rng(seed)
    chosen = rng.choice(len(triangles), size=count, p=areas / areas.sum())
    a, b = rng.random((2, count, 1))
    # The upper half of the square of (a, b) is folded onto the triangle.
    a, b = np.where(a + b > 1, 1 - a, a), np.where(a + b > 1, 1 - b, b)
    return triangles[chosen, 0] + a * sides[chosen, 0] + b * sides[chosen, 1]


def thin_out(points: Points, voxel: float) -> Points:
    """Replace the points in each voxel by their mean; voxels begin half a voxel below the smallest coordinates."""
    if not len(points):
        return points
    cells = np.floor((points - points.min(0)) / voxel + 0.5).astype(np.int64)
    # One number per voxel sorts much faster than rows of three.
    extent = cells.max(0) + 1
    keys = (cells[:, 0] * extent[1] + cells[:, 1]) * extent[2] + cells[:, 2]
    _, place, count = np.unique(keys, return_inverse=True, return_counts=True)
    sums = np.stack([np.bincount(place, weights=points[:, axis]) for axis in range(3)], -1)
    return sums / count[:, None]


# Laser scans (DTU)


SPACING_MM, OUTLIER_MM = 0.2, 20.0
"""Spacing to which points are thinned out, and the distance from which they are no longer counted."""


def score_scan(
    points: Float[np.ndarray, "point 3"], scan: Float[np.ndarray, "scanned 3"], volume: ScannedVolume
) -> dict[str, float]:
    """Compare points with a laser scan inside the volume that it covers, as DTU's evaluation does.

    Return accuracy, completeness and their mean in millimeters; nothing without a point to compare.

    Accuracy is over the points in observed voxels, completeness over the scanned points above the table. Points in
    voxels that the scanner did not observe are no errors, but they may complete the scan.
    """
    points = thin_out(points[volume.is_near(points)], SPACING_MM)
    observed, above = points[volume.is_observed(points)], scan[volume.is_above_ground(scan)]
    if not len(observed) or not len(above):
        return {}
    accuracy = _average_without_outliers(find_nearest(build_tree(scan), observed)[0])
    completeness = _average_without_outliers(find_nearest(build_tree(points), above)[0])
    return {"acc": accuracy, "comp": completeness, "overall": (accuracy + completeness) / 2}


def _average_without_outliers(distances: Float[np.ndarray, "point"]) -> float:
    near = distances[distances < OUTLIER_MM]
    return float(near.mean()) if len(near) else OUTLIER_MM
