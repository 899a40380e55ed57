"""Point-to-point ICP (Besl and McKay 1992) between two clouds of points, with a limit for correspondences.

The stopping rule and its limits are those of Open3D's defaults, which published point-cloud scores use.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from g_ray.geometry.pose import Pose
from g_ray_lab.metrics.neighbors import Points, build_tree, check_points, find_nearest

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


def register(
    source: Points, target: Points, *, limit: float, max_steps: int = MAX_STEPS, workers: int = 1
) -> Registration:
    """Move the source onto the target rigidly, from where it is; points farther apart than the limit are not matched.

    Without a single match, or with fewer than three, the motion stays as it is.
    """
    check_points("source", source)
    check_points("target", target)
    if not limit > 0:
        raise ValueError(f"the limit {limit} of correspondences must be above 0")
    tree = build_tree(target)
    motion, moved = np.eye(4), source
    matched, partner, fitness, rmse = _match(tree, moved, limit, workers)
    steps = 0
    for steps in range(1, max_steps + 1):
        if matched.sum() < 3:
            return Registration(motion, fitness, rmse, steps - 1)
        step = fit_motion(moved[matched], target[partner])
        motion = step @ motion
        # From the source, not from the last place: rounding does not add up.
        moved = source @ motion[:3, :3].T + motion[:3, 3]
        before = fitness, rmse
        matched, partner, fitness, rmse = _match(tree, moved, limit, workers)
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


def _match(
    tree: Any, points: Points, limit: float, workers: int
) -> tuple[np.ndarray, np.ndarray, float, float]:
    """Return which points have a partner, these partners, their share and the root mean square of their distances."""
    # Most of the time goes into points without a partner, unless their search ends at the limit.
    distance, index = find_nearest(tree, points, limit=limit, workers=workers)
    matched = distance < limit
    rmse = float(np.sqrt(np.square(distance[matched]).mean())) if matched.any() else 0.0
    return matched, index[matched], float(matched.mean()), rmse
