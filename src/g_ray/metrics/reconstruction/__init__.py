"""The six metrics of the paper's reconstruction tables."""

from g_ray.metrics.reconstruction.depth import DepthName, compute_depth
from g_ray.metrics.reconstruction.geometry import SetGeometry
from g_ray.metrics.reconstruction.pointmaps import norm_inliers, relative_error
from g_ray.metrics.reconstruction.rays import ray_error_deg
from g_ray.metrics.reconstruction.scores import METRICS, ReconstructionScores, score_sets
from g_ray.metrics.reconstruction.trajectory import align_rigidly, pose_ate

__all__ = [
    "METRICS",
    "DepthName",
    "ReconstructionScores",
    "SetGeometry",
    "align_rigidly",
    "compute_depth",
    "norm_inliers",
    "pose_ate",
    "ray_error_deg",
    "relative_error",
    "score_sets",
]
