"""The losses of the appendix "3D Reconstruction"."""

from g_ray.losses.reconstruction.camera import CameraTerms, camera_loss
from g_ray.losses.reconstruction.normals import multi_scale_normal_loss, normal_loss
from g_ray.losses.reconstruction.objective import (
    Prediction,
    ReconstructionLoss,
    ReconstructionWeights,
    reconstruction_loss,
)
from g_ray.losses.reconstruction.outliers import mean_below_quantile
from g_ray.losses.reconstruction.points import PointTerms, confidence_weighted_loss, pointmap_loss
from g_ray.losses.reconstruction.truth import NormalizedTruth, Truth, normalize_truth

__all__ = [
    "CameraTerms",
    "NormalizedTruth",
    "PointTerms",
    "Prediction",
    "ReconstructionLoss",
    "ReconstructionWeights",
    "Truth",
    "camera_loss",
    "confidence_weighted_loss",
    "mean_below_quantile",
    "multi_scale_normal_loss",
    "normal_loss",
    "normalize_truth",
    "pointmap_loss",
    "reconstruction_loss",
]
