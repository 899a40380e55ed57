"""Image metrics of the NVS tables: PSNR, SSIM, and one value per scene and metric.

Per-scene aggregation follows the paper, appendix "NVS Metric Aggregation".
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import conv2d, pad

from g_ray_lab.metrics.intervals import Interval, bootstrap

Distance = Callable[[Tensor, Tensor], Tensor]
"""(truth, predicted) → one value per image."""


def mse(
    truth: Float[Tensor, "*batch channel h w"], predicted: Float[Tensor, "*batch channel h w"]
) -> Float[Tensor, "*batch"]:
    """Return e, the mean squared error over pixels and channels, per image."""
    return (truth - predicted).square().mean((-3, -2, -1))


def psnr(
    truth: Float[Tensor, "*scene target channel h w"], predicted: Float[Tensor, "*scene target channel h w"]
) -> Float[Tensor, "*scene"]:
    """Return −10 log₁₀ of the mean of e over a scene's targets, in dB, for images in [0, 1].

    This is eq:nvs_psnr_aggregation of the paper. The mean of the targets' own PSNRs would be at least as large.
    A perfect prediction has a PSNR of ∞.
    """
    return pool_psnr(mse(truth, predicted))


def pool_psnr(errors: Float[Tensor, "*scene target"]) -> Float[Tensor, "*scene"]:
    """Return the PSNR of scenes from the mean squared errors of their targets."""
    return -10 * errors.mean(-1).log10()


# Structural similarity, with the conventions of torchmetrics: libraries differ in the second digit.


REACH, SIGMA = 5, 1.5  # pixels: half the Gaussian window without its center, and its standard deviation
C1, C2 = 0.01**2, 0.03**2  # stabilizers of luminance and contrast (Wang et al. 2004: K1 = 0.01, K2 = 0.03)


def ssim(
    truth: Float[Tensor, "*batch channel h w"], predicted: Float[Tensor, "*batch channel h w"]
) -> Float[Tensor, "*batch"]:
    """Return the structural similarity per image, for images in [0, 1].

    The mean of (2μₓμᵧ + C₁)(2σₓᵧ + C₂) / ((μₓ² + μᵧ² + C₁)(σₓ² + σᵧ² + C₂)) over pixels and channels, with a
    Gaussian window of 11 pixels (σ = 1.5), the image mirrored at its borders, and biased variances. scikit-image
    and pytorch-msssim leave out the borders and give other numbers.
    """
    if min(truth.shape[-2:]) <= REACH:
        raise ValueError(
            f"SSIM needs more than {REACH} pixels on each side, not {truth.shape[-1]}×{truth.shape[-2]}"
        )
    x, y = truth.flatten(0, -3)[:, None], predicted.flatten(0, -3)[:, None]
    mean_x, mean_y, xx, yy, xy = (_blur(values) for values in (x, y, x * x, y * y, x * y))
    # Rounding can make the variance of flat regions slightly negative.
    variance = (xx - mean_x.square()).clamp(min=0) + (yy - mean_y.square()).clamp(min=0)
    covariance = xy - mean_x * mean_y
    luminance = (2 * mean_x * mean_y + C1) / (mean_x.square() + mean_y.square() + C1)
    structure = (2 * covariance + C2) / (variance + C2)
    return (luminance * structure).mean((-3, -2, -1)).unflatten(0, truth.shape[:-2]).mean(-1)


def _blur(values: Float[Tensor, "n 1 h w"]) -> Float[Tensor, "n 1 h w"]:
    """Convolve with the Gaussian window: two one-dimensional passes, because the window is separable."""
    offset = torch.arange(-REACH, REACH + 1, dtype=values.dtype, device=values.device)
    weight = torch.exp(-0.5 * (offset / SIGMA) ** 2)
    weight = weight / weight.sum()
    mirrored = pad(values, (REACH,) * 4, mode="reflect")
    return conv2d(conv2d(mirrored, weight[None, None, :, None]), weight[None, None, None, :])


@dataclass(frozen=True)
class SceneScores:
    """One value per scene: PSNR pools the targets before the logarithm, SSIM and LPIPS are averaged over them."""

    psnr: Float[Tensor, "scene"]
    ssim: Float[Tensor, "scene"]
    lpips: Float[Tensor, "scene"] | None

    @staticmethod
    def concatenate(parts: "list[SceneScores]") -> "SceneScores":
        """Join the scenes of several batches, in order."""
        perceptual = [part.lpips for part in parts if part.lpips is not None]
        if perceptual and len(perceptual) != len(parts):
            raise ValueError(
                "some batches have LPIPS scores and others do not: score all of them with the same metrics"
            )
        return SceneScores(
            torch.cat([part.psnr for part in parts]),
            torch.cat([part.ssim for part in parts]),
            torch.cat(perceptual) if perceptual else None,
        )

    def rows(self) -> dict[str, Float[Tensor, "scene"]]:
        """Return the values per scene by metric, without LPIPS where it was not computed."""
        scores = {"psnr": self.psnr, "ssim": self.ssim, "lpips": self.lpips}
        return {name: values for name, values in scores.items() if values is not None}

    def summarize(self, *, seed: int = 0) -> dict[str, Interval]:
        """Return equal-weight means over scenes with 95 % bootstrap intervals."""
        return {name: bootstrap(values, seed=seed) for name, values in self.rows().items()}


@dataclass(frozen=True)
class ImageScores:
    """One value per image: what all metrics of any choice of targets follow from."""

    mse: Float[Tensor, "scene target"]
    ssim: Float[Tensor, "scene target"]
    lpips: Float[Tensor, "scene target"] | None

    def select(self, targets: Int[Tensor, "scene chosen"]) -> "ImageScores":
        """Return the scores of some targets of each scene, by their positions."""
        lpips = None if self.lpips is None else self.lpips.gather(1, targets)
        return ImageScores(self.mse.gather(1, targets), self.ssim.gather(1, targets), lpips)

    def pool(self) -> SceneScores:
        """Return one value per scene and metric."""
        lpips = None if self.lpips is None else self.lpips.mean(-1)
        return SceneScores(pool_psnr(self.mse), self.ssim.mean(-1), lpips)


@torch.no_grad()
def score_images(
    truth: Float[Tensor, "scene target 3 h w"],
    predicted: Float[Tensor, "scene target 3 h w"],
    *,
    lpips: Distance | None,
) -> ImageScores:
    """Compute what the metrics of the paper's NVS tables need of each image, on the device of the images."""
    perceptual = None if lpips is None else lpips(truth, predicted)
    return ImageScores(mse(truth, predicted), ssim(truth, predicted), perceptual)


def score_scenes(
    truth: Float[Tensor, "scene target 3 h w"],
    predicted: Float[Tensor, "scene target 3 h w"],
    *,
    lpips: Distance | None,
) -> SceneScores:
    """Compute all metrics of the paper's NVS tables; pass `lpips=None` explicitly to leave out LPIPS."""
    return score_images(truth, predicted, lpips=lpips).pool()
