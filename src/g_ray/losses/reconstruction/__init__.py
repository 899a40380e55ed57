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
from g_ray.losses.reconstruction.points import PointTerms, confidence_weighted, pointmap_loss
from g_ray.losses.reconstruction.truth import NormalisedTruth, Truth, normalised_truth

__all__ = [
    "CameraTerms",
    "NormalisedTruth",
    "PointTerms",
    "Prediction",
    "ReconstructionLoss",
    "ReconstructionWeights",
    "Truth",
    "camera_loss",
    "confidence_weighted",
    "mean_below_quantile",
    "multi_scale_normal_loss",
    "normal_loss",
    "normalised_truth",
    "pointmap_loss",
    "reconstruction_loss",
]
