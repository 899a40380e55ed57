"""Networks that receive their encoding: no camera is stored on a module."""

from g_ray.models.lvsm import LVSM, METHODS, SIZES, LVSMConfig, Method
from g_ray.models.prediction import Prediction
from g_ray.models.reconstruction import ReconstructionModel
from g_ray.models.reconstruction_config import (
    RECONSTRUCTION_METHODS,
    RECONSTRUCTION_SIZES,
    ReconstructionConfig,
    ReconstructionMethod,
)

__all__ = [
    "LVSM",
    "METHODS",
    "RECONSTRUCTION_METHODS",
    "RECONSTRUCTION_SIZES",
    "SIZES",
    "LVSMConfig",
    "Method",
    "Prediction",
    "ReconstructionConfig",
    "ReconstructionMethod",
    "ReconstructionModel",
]
