"""Structural similarity, with the conventions of torchmetrics: libraries differ in the second digit."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import conv2d, pad

REACH, SIGMA = 5, 1.5  # pixels
C1, C2 = 0.01**2, 0.03**2


def ssim(
    truth: Float[Tensor, "*batch channel h w"], predicted: Float[Tensor, "*batch channel h w"]
) -> Float[Tensor, "*batch"]:
    """Mean of (2μₓμᵧ + C₁)(2σₓᵧ + C₂) / ((μₓ² + μᵧ² + C₁)(σₓ² + σᵧ² + C₂)) for images in [0, 1].

    Gaussian window of 11 pixels with σ = 1.5 around every pixel, the image mirrored at its edges; biased
    variances. (scikit-image and pytorch-msssim leave the edges out: other numbers.)
    """
    if min(truth.shape[-2:]) <= REACH:
        raise ValueError(
            f"SSIM needs more than {REACH} pixels on each side, not {truth.shape[-1]}×{truth.shape[-2]}"
        )
    x, y = truth.flatten(0, -3)[:, None], predicted.flatten(0, -3)[:, None]
    mean_x, mean_y, xx, yy, xy = (_blur(values) for values in (x, y, x * x, y * y, x * y))
    # Rounding may leave a tiny negative variance in flat regions.
    variance = (xx - mean_x.square()).clamp(min=0) + (yy - mean_y.square()).clamp(min=0)
    covariance = xy - mean_x * mean_y
    luminance = (2 * mean_x * mean_y + C1) / (mean_x.square() + mean_y.square() + C1)
    structure = (2 * covariance + C2) / (variance + C2)
    return (luminance * structure).mean((-3, -2, -1)).unflatten(0, truth.shape[:-2]).mean(-1)


def _blur(values: Float[Tensor, "n 1 h w"]) -> Float[Tensor, "n 1 h w"]:
    offset = torch.arange(-REACH, REACH + 1, dtype=values.dtype, device=values.device)
    weight = torch.exp(-0.5 * (offset / SIGMA) ** 2)
    weight = weight / weight.sum()
    mirrored = pad(values, (REACH,) * 4, mode="reflect")
    return conv2d(conv2d(mirrored, weight[None, None, :, None]), weight[None, None, None, :])
