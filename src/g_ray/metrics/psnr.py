"""Peak signal-to-noise ratio, pooled over a scene before the logarithm."""

from jaxtyping import Float
from torch import Tensor


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
