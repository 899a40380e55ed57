"""Compare a reference view with warped source views: normalized correlation of patches, best few of the sources."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import grid_sample, pad

NO_SCORE = -1.0
"""Correlation of a patch that a source does not see."""


@dataclass(frozen=True, eq=False)
class SourceImage:
    """A gray image to sample from: values times mask, and the mask."""

    layers: Float[Tensor, "2 h w"]

    @staticmethod
    def make(gray: Float[Tensor, "h w"], mask: Bool[Tensor, "h w"]) -> "SourceImage":
        weight = mask.to(gray)
        return SourceImage(torch.stack([gray * weight, weight]))

    def sample(
        self, pixels: Float[Tensor, "n h w 2"], imaged: Bool[Tensor, "n h w"]
    ) -> tuple[Float[Tensor, "n h w"], Bool[Tensor, "n h w"]]:
        """Interpolate bilinearly among usable pixels, and tell where there are any.

        Masked pixels and the outside have weight zero; dividing by the sampled weight renormalizes.
        """
        n, height, width, _ = pixels.shape
        size = pixels.new_tensor([self.layers.shape[-1], self.layers.shape[-2]])
        grid = (pixels * (2 / size) - 1).reshape(1, n * height, width, 2)
        value, weight = grid_sample(self.layers[None], grid, align_corners=False)[0].unflatten(1, (n, height))
        usable = (weight > 0.5) & imaged
        return value / weight.clamp_min(0.5) * usable, usable


@dataclass(frozen=True, eq=False)
class Patches:
    """Statistics of the patches of a reference view, for `correlate`."""

    gray: Float[Tensor, "h w"]  # 0 where masked out
    weight: Float[Tensor, "h w"] | None  # None: nothing is masked out
    scale: Float[Tensor, "h w"]  # 1 / number of usable pixels in the patch
    mean: Float[Tensor, "h w"]
    deviation: Float[Tensor, "h w"]  # with the noise floor
    window: int
    floor: float  # variance of noise

    @staticmethod
    def make(gray: Float[Tensor, "h w"], mask: Bool[Tensor, "h w"], window: int, noise: float) -> "Patches":
        weight = mask.to(gray)
        scale = 1 / sum_boxes(weight, window).clamp_min(1)
        values = gray * weight
        mean = sum_boxes(values, window) * scale
        variance = (sum_boxes(values * values, window) * scale - mean * mean).clamp_min(0)
        partial = None if bool(mask.all()) else weight
        return Patches(values, partial, scale, mean, (variance + noise**2).sqrt(), window, noise**2)

    @property
    def contrast(self) -> Float[Tensor, "h w"]:
        """Share of a patch's variance that is not noise, in [0, 1)."""
        return 1 - self.floor / self.deviation**2

    def correlate(self, warped: Float[Tensor, "n h w"]) -> Float[Tensor, "n h w"]:
        """Zero-mean normalized cross-correlation with warped images, by box sums.

        The noise floor in both deviations draws the score of patches without texture to 0.
        """
        if self.weight is not None:
            warped = warped * self.weight
        mean = sum_boxes(warped, self.window).mul_(self.scale)
        square = sum_boxes(warped * warped, self.window).mul_(self.scale)
        product = sum_boxes(warped * self.gray, self.window).mul_(self.scale)
        covariance = product.addcmul_(mean, self.mean, value=-1)
        variance = square.addcmul_(mean, mean, value=-1).clamp_min_(0).add_(self.floor)
        return covariance.mul_(variance.rsqrt_()).div_(self.deviation)


def sum_boxes(values: Float[Tensor, "*n h w"], side: int) -> Float[Tensor, "*n h w"]:
    """Sum over a square of odd side around every pixel; zero outside the image."""
    return _sum_along(_sum_along(values, side, -1), side, -2)


def _sum_along(values: Tensor, side: int, dim: int) -> Tensor:
    """Sum of `side` neighbors along one axis, by doubling: partial sums of 2, 4, 8 … elements are shared."""
    reach, length = side // 2, values.shape[dim]
    border = (reach, reach) if dim == -1 else (0, 0, reach, reach)
    part, size, start, total = pad(values, border), 1, 0, None
    while True:
        if side & size:
            piece = part.narrow(dim, start, length)
            total = piece if total is None else total + piece
            start += size
        size *= 2
        if size > side:
            assert total is not None
            return total
        rest = part.shape[dim] - size // 2
        part = part.narrow(dim, 0, rest) + part.narrow(dim, size // 2, rest)


def average_best(scores: list[Float[Tensor, "n h w"]], best: int) -> Float[Tensor, "n h w"]:
    """Mean of the `best` largest scores of the sources that see a pixel; NO_SCORE where none does.

    Occlusion hides a surface from some sources, at the true depth too; the best few decide.
    """
    ordered: list[Tensor] = []
    for score in scores:
        # Insertion into a short sorted list, elementwise.
        for i, other in enumerate(ordered):
            ordered[i], score = torch.maximum(other, score), torch.minimum(other, score)
        if len(ordered) < best:
            ordered.append(score)
    total, count = ordered[0], None
    for score in ordered[1:]:
        seen = (score > NO_SCORE).to(score)
        total = torch.where(seen > 0, total + score, total)
        count = 1 + seen if count is None else count + seen
    return total if count is None else total / count
