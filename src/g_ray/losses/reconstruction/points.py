"""Pointmap loss: confidence-weighted L2 regression, plain L2 regression, and normals."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.losses.reconstruction.normals import multi_scale_normal_loss
from g_ray.losses.reconstruction.outliers import mean_below_quantile

ENOUGH = 100
"""A batch with fewer valid pixels teaches nothing about points."""


@dataclass(frozen=True)
class PointTerms:
    """Means over the valid pixels of a whole batch."""

    confidence: Float[Tensor, ""]
    regression: Float[Tensor, ""]
    normals: Float[Tensor, ""]

    @property
    def total(self) -> Float[Tensor, ""]:
        return self.confidence + self.regression + self.normals


def confidence_weighted_loss(
    error: Float[Tensor, "*shape"], confidence: Float[Tensor, "*shape"], *, gamma: float, alpha: float
) -> Float[Tensor, "*shape"]:
    """γ c r − α log c: smallest at c = α / (γ r), so that a confidence learns the inverse of its error."""
    return gamma * error * confidence - alpha * confidence.log()


def pointmap_loss(
    truth: Float[Tensor, "set view h w 3"],
    predicted: Float[Tensor, "set view h w 3"],
    confidence: Float[Tensor, "set view h w"],
    valid: Bool[Tensor, "set view h w"],
    *,
    gamma: float,
    alpha: float,
    quantile: float,
    scales: int,
) -> PointTerms:
    """The terms of one pointmap, each with its worst pixels left out but for normals (appendix "3D Reconstruction").

    Errors of the whole batch compete for the quantile, not those of an image.
    """
    if int(valid.sum()) < ENOUGH:
        nothing = 0 * (predicted.sum() + confidence.sum())
        return PointTerms(nothing, nothing, nothing)
    error = torch.linalg.vector_norm(predicted - truth, dim=-1)[valid]
    weighted = confidence_weighted_loss(error, confidence[valid], gamma=gamma, alpha=alpha)
    return PointTerms(
        confidence=mean_below_quantile(weighted, quantile),
        regression=mean_below_quantile(error, quantile),
        normals=multi_scale_normal_loss(truth, predicted, valid, scales=scales),
    )
