"""Compare a reference view with warped source views: normalized correlation of patches, best few of the sources."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import grid_sample, pad

from g_ray.stereo.stereo_options import StereoOptions

NO_SCORE = -1.0
"""Correlation of a patch that a source does not see."""


@dataclass(frozen=True, eq=False)
class SourceImage:
    """A gray image to sample from: values times mask, and the mask."""

    layers: Float[Tensor, "2 h w"]

    @staticmethod
    def make(gray: Float[Tensor, "h w"], mask: Bool[Tensor, "h w"] | None) -> "SourceImage":
        weight = torch.ones_like(gray) if mask is None else mask.to(gray)
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
    """Weighted patches of a reference view, for `correlate`.

    Neighbors count by how much they look like the center (bilateral weights): a patch on a silhouette then follows
    the surface of its center instead of both, and flat areas do not fatten their foreground.
    """

    taps: Sequence[tuple[int, int]]  # offsets of the neighbors, row and column
    weights: Float[Tensor, "tap h w"]  # sum to 1 over the taps
    products: Float[Tensor, "tap h w"]  # weight times the neighbor's gray value
    mean: Float[Tensor, "h w"]
    deviation: Float[Tensor, "h w"]  # with the noise floor
    floor: float  # variance of noise

    @staticmethod
    def make(
        image: Float[Tensor, "3 h w"],
        gray: Float[Tensor, "h w"],
        mask: Bool[Tensor, "h w"],
        options: StereoOptions,
    ) -> "Patches":
        reach = options.window // 2
        steps = range(-reach, reach + 1)
        taps = [(row, column) for row in steps for column in steps]
        usable, weights, values = mask.to(gray), [], []
        for row, column in taps:
            difference = (_shift(image, row, column) - image).abs().mean(0) / options.similar
            distance = (row**2 + column**2) / (2 * max(1, reach) ** 2)
            weights.append(torch.exp(-difference - distance) * _shift(usable, row, column))
            values.append(_shift(gray, row, column))
        weight, value = torch.stack(weights), torch.stack(values)
        weight /= weight.sum(0).clamp_min(1e-6)
        product = weight * value
        mean = product.sum(0)
        variance = ((product * value).sum(0) - mean * mean).clamp_min(0)
        floor = options.noise**2
        return Patches(taps, weight, product, mean, (variance + floor).sqrt(), floor)

    def measure_texture(self) -> Float[Tensor, "h w"]:
        """Standard deviation of the gray values in each patch, without the noise floor."""
        return (self.deviation.square() - self.floor).clamp_min(0).sqrt()

    def correlate(self, warped: Float[Tensor, "n h w"]) -> Float[Tensor, "n h w"]:
        """Zero-mean normalized cross-correlation with warped images.

        The noise floor in both deviations draws the score of patches without texture to 0.
        """
        height, width = warped.shape[-2:]
        reach = max(max(abs(row), abs(column)) for row, column in self.taps)
        values = pad(warped, (reach, reach, reach, reach))
        squares = values * values
        mean, square, product = (torch.zeros_like(warped) for _ in range(3))
        for (row, column), weight, weighted in zip(self.taps, self.weights, self.products, strict=True):
            window = (
                ...,
                slice(reach + row, reach + row + height),
                slice(reach + column, reach + column + width),
            )
            neighbor = values[window]
            mean.addcmul_(weight, neighbor)
            product.addcmul_(weighted, neighbor)
            square.addcmul_(weight, squares[window])
        covariance = product.addcmul_(mean, self.mean, value=-1)
        variance = square.addcmul_(mean, mean, value=-1).clamp_min_(0).add_(self.floor)
        return covariance.mul_(variance.rsqrt_()).div_(self.deviation)


def _shift(values: Float[Tensor, "*c h w"], row: int, column: int) -> Float[Tensor, "*c h w"]:
    """The neighbor at an offset of each pixel; zero outside the image."""
    height, width = values.shape[-2:]
    top, left = max(0, -row), max(0, -column)
    bottom, right = height - max(0, row), width - max(0, column)
    shifted = torch.zeros_like(values)
    shifted[..., top:bottom, left:right] = values[
        ..., top + row : bottom + row, left + column : right + column
    ]
    return shifted


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


def average_boxes(volume: Float[Tensor, "h d w"], side: int) -> Float[Tensor, "h d w"]:
    """Mean over a square of odd side around every pixel of each hypothesis; the border repeats."""
    for dim in (0, 2):
        length, reach = volume.shape[dim], side // 2
        first, last = volume.narrow(dim, 0, 1), volume.narrow(dim, length - 1, 1)
        padded = torch.cat([first] * reach + [volume] + [last] * reach, dim)
        total = padded.narrow(dim, 0, length).clone()
        for shift in range(1, side):
            total += padded.narrow(dim, shift, length)
        volume = total.div_(side)
    return volume
