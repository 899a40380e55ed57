"""The six metrics of the paper's reconstruction tables."""

from g_ray.metrics.reconstruction.depth import DepthName, depth
from g_ray.metrics.reconstruction.geometry import SetGeometry
from g_ray.metrics.reconstruction.pointmaps import norm_inliers, relative_error
from g_ray.metrics.reconstruction.rays import ray_error_deg
from g_ray.metrics.reconstruction.scores import METRICS, ReconstructionScores, score_sets
from g_ray.metrics.reconstruction.trajectory import pose_ate, rigidly_aligned

__all__ = [
    "METRICS",
    "DepthName",
    "ReconstructionScores",
    "SetGeometry",
    "depth",
    "norm_inliers",
    "pose_ate",
    "ray_error_deg",
    "relative_error",
    "rigidly_aligned",
    "score_sets",
]
