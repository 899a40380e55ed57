"""Angle between true and predicted viewing rays."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.metrics.reconstruction.pointmaps import average_valid


def ray_error_deg(
    truth: Float[Tensor, "*view h w 3"],
    predicted: Float[Tensor, "*view h w 3"],
    known: Bool[Tensor, "*view h w"] | None = None,
) -> Float[Tensor, "*view"]:
    """Mean of 2 asin(‖r − r̂‖/2) in degrees over all pixels, with depth or without (Rays err°).

    `known` leaves out pixels that no ray reaches, as in the black corners of a circular fisheye. The chord keeps
    its digits at small angles, where acos(r · r̂) has none.
    """
    chord = torch.linalg.vector_norm(truth - predicted, dim=-1)
    angle = torch.rad2deg(2 * torch.asin((chord / 2).clamp(max=1)))
    if known is None:
        known = torch.ones_like(angle, dtype=torch.bool)
    return average_valid(angle, known)
