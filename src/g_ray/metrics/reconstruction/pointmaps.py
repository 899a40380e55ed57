"""Relative error and inliers of pointmaps and depth maps: a value per view, NaN where a view has no valid pixel."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

INLIER_RATIO = 1.03


def relative_error(
    truth: Float[Tensor, "*view h w channel"],
    predicted: Float[Tensor, "*view h w channel"],
    valid: Bool[Tensor, "*view h w"],
) -> Float[Tensor, "*view"]:
    """Mean of ‖p̂ − p‖ / ‖p‖ over valid pixels: Points rel of points, Depth rel of depths with their one channel."""
    size = torch.linalg.vector_norm(truth, dim=-1)
    error = torch.linalg.vector_norm(predicted - truth, dim=-1)
    return average_valid(error / torch.where(size > 0, size, 1), valid & (size > 0))


def norm_inliers(
    truth: Float[Tensor, "*view h w channel"],
    predicted: Float[Tensor, "*view h w channel"],
    valid: Bool[Tensor, "*view h w"],
    ratio: float = INLIER_RATIO,
) -> Float[Tensor, "*view"]:
    """Share of valid pixels with max(‖p̂‖/‖p‖, ‖p‖/‖p̂‖) < ratio (eq:inlier_ratio); a p̂ of 0 is an outlier.

    Of norms only, as the paper says: a point in a wrong direction at the right distance is an inlier.
    """
    ours, theirs = (torch.linalg.vector_norm(points, dim=-1) for points in (truth, predicted))
    # Products instead of quotients: 0 then needs no case of its own.
    inlier = (theirs < ratio * ours) & (ours < ratio * theirs)
    return average_valid(inlier.to(truth.dtype), valid & (ours > 0))


def average_valid(
    values: Float[Tensor, "*view h w"], valid: Bool[Tensor, "*view h w"]
) -> Float[Tensor, "*view"]:
    """NaN where nothing is valid: whoever averages has to say what happens to such a view."""
    return torch.where(valid, values, 0).sum((-2, -1)) / valid.sum((-2, -1))
