"""The novel-view-synthesis loss: L = L_MSE + 0.5 L_LPIPS (paper, appendix "Novel View Synthesis")."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from g_ray_lab.losses import NVSLossSettings


@dataclass(frozen=True)
class NVSLoss:
    """Terms of every scene, each averaged over its targets."""

    mse: Float[Tensor, "batch"]
    perceptual: Float[Tensor, "batch"]  # 0 where it was left out
    total: Float[Tensor, "batch"]


def nvs_loss(
    truth: Float[Tensor, "batch target 3 h w"],
    predicted: Float[Tensor, "batch target 3 h w"],
    *,
    perceptual: Callable[[Tensor, Tensor], Tensor] | None,
    weight: float = NVSLossSettings.lpips,
) -> NVSLoss:
    """Compute the terms of every scene.

    `perceptual` is LPIPS, a function of (truth, predicted) that returns a value per image. None, which has to be given
    explicitly, leaves the squared error alone.
    """
    predicted = predicted.to(truth.dtype)
    squared = (truth - predicted).square().mean((-4, -3, -2, -1))
    if perceptual is None:
        return NVSLoss(squared, torch.zeros_like(squared), squared)
    distance = perceptual(truth, predicted).mean(-1)
    return NVSLoss(squared, distance, squared + weight * distance)
