"""Compare points with a laser scan inside the volume that it covers, as DTU's evaluation does."""

import numpy as np
from jaxtyping import Float

from g_ray_lab.datasets.dtu_volume import ScannedVolume
from g_ray_lab.metrics.neighbors import build_tree, find_nearest
from g_ray_lab.metrics.surface import thin_out

SPACING_MM, OUTLIER_MM = 0.2, 20.0
"""Spacing to which points are thinned out, and the distance from which they are no longer counted."""


def score_scan(
    points: Float[np.ndarray, "point 3"], scan: Float[np.ndarray, "scanned 3"], volume: ScannedVolume
) -> dict[str, float]:
    """Return accuracy, completeness and their mean in millimeters; nothing without a point to compare.

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
