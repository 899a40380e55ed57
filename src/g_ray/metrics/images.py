"""Peak signal-to-noise ratio, pooled over a scene before the logarithm."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import conv2d, pad

from g_ray.metrics.bootstrap import Interval, bootstrap


def mse(
    truth: Float[Tensor, "*batch channel h w"], predicted: Float[Tensor, "*batch channel h w"]
) -> Float[Tensor, "*batch"]:
    """e: mean squared error over pixels and channels."""
    return (truth - predicted).square().mean((-3, -2, -1))


def psnr(
    truth: Float[Tensor, "*scene target channel h w"], predicted: Float[Tensor, "*scene target channel h w"]
) -> Float[Tensor, "*scene"]:
    """−10 log₁₀ of the mean of e over a scene's targets, in dB, for images in [0, 1] (eq:nvs_psnr_aggregation).

    Not the mean of the targets' own PSNRs: that is never smaller. A perfect scene has ∞.
    """
    return -10 * mse(truth, predicted).mean(-1).log10()


# Structural similarity, with the conventions of torchmetrics: libraries differ in the second digit.


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


# The rows of an NVS table: one value per scene and metric (paper, appendix "NVS Metric Aggregation").


Distance = Callable[[Tensor, Tensor], Tensor]
"""(truth, predicted) to a value per image."""


@dataclass(frozen=True)
class SceneScores:
    """PSNR pools a scene's targets before the logarithm; SSIM and LPIPS are averaged over them."""

    psnr: Float[Tensor, "scene"]
    ssim: Float[Tensor, "scene"]
    lpips: Float[Tensor, "scene"] | None

    @staticmethod
    def concatenate(parts: "list[SceneScores]") -> "SceneScores":
        """The scenes of several batches, in order."""
        perceptual = [part.lpips for part in parts if part.lpips is not None]
        if perceptual and len(perceptual) != len(parts):
            raise ValueError("some batches have LPIPS and some have not: score all of them alike")
        return SceneScores(
            torch.cat([part.psnr for part in parts]),
            torch.cat([part.ssim for part in parts]),
            torch.cat(perceptual) if perceptual else None,
        )

    def rows(self) -> dict[str, Float[Tensor, "scene"]]:
        scores = {"psnr": self.psnr, "ssim": self.ssim, "lpips": self.lpips}
        return {name: values for name, values in scores.items() if values is not None}

    def summarize(self, *, seed: int = 0) -> dict[str, Interval]:
        """Equal-weight means over scenes, with 95 % bootstrap intervals."""
        return {name: bootstrap(values, seed=seed) for name, values in self.rows().items()}


@torch.no_grad()
def score_scenes(
    truth: Float[Tensor, "scene target 3 h w"],
    predicted: Float[Tensor, "scene target 3 h w"],
    *,
    lpips: Distance | None,
) -> SceneScores:
    """All metrics of the paper's NVS tables; `lpips=None` leaves that column out, and must be said."""
    perceptual = None if lpips is None else lpips(truth, predicted).mean(-1)
    return SceneScores(psnr(truth, predicted), ssim(truth, predicted).mean(-1), perceptual)
