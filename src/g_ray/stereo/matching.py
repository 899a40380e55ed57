"""Compare a reference view with warped source views: normalized correlation of patches, best few of the sources."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor
from torch.nn.functional import grid_sample, pad

from g_ray.stereo.stereo_options import StereoOptions

NO_SCORE = -1.0
"""Correlation of a patch that a source does not see."""


@dataclass(frozen=True, eq=False)
class SourceImage:
    """A gray image to sample from: values times mask, and the mask if there is one."""

    layers: Float[Tensor, "layer h w"]

    @staticmethod
    def make(gray: Float[Tensor, "h w"], mask: Bool[Tensor, "h w"] | None) -> "SourceImage":
        return SourceImage(gray[None] if mask is None else torch.stack([gray * mask, mask.to(gray)]))

    def sample(
        self, pixels: Float[Tensor, "n h w 2"], imaged: Bool[Tensor, "n h w"]
    ) -> tuple[Float[Tensor, "n h w"], Bool[Tensor, "n h w"]]:
        """Interpolate bilinearly among usable pixels, and return where there are any.

        Masked pixels and the outside have weight zero; dividing by the sampled weight renormalizes.
        """
        n, height, width, _ = pixels.shape
        size = pixels.new_tensor([self.layers.shape[-1], self.layers.shape[-2]])
        # grid_sample without align_corners has the same corner origin: −1 and 1 are the edges of the image.
        grid = (pixels * (2 / size) - 1).reshape(1, n * height, width, 2)
        if len(self.layers) == 1:
            value = grid_sample(self.layers[None], grid, padding_mode="border", align_corners=False)[0, 0]
            u, v = grid[0].abs().unflatten(0, (n, height)).unbind(-1)
            usable = imaged & (u <= 1) & (v <= 1)
            return value.unflatten(0, (n, height)) * usable, usable
        value, weight = grid_sample(self.layers[None], grid, align_corners=False)[0].unflatten(1, (n, height))
        usable = (weight > 0.5) & imaged
        return value / weight.clamp_min(0.5) * usable, usable


@dataclass(frozen=True, eq=False)
class Patches:
    """Weighted patches of a reference view, for `correlate`.

    Neighbors count by how much they look like the center (bilateral weights): a patch on a silhouette then follows
    the surface of its center instead of both, and flat areas do not fatten their foreground. Every other neighbor of
    the square counts, as on a chessboard: half the work, and better depth than with all of them.
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
        taps = [(row, column) for row in steps for column in steps if (row + column) % 2 == 0]
        usable, weights, values = mask.to(gray), [], []
        for row, column in taps:
            difference = (_shift(image, row, column) - image).abs().mean(0) / options.similar
            # Gaussian in the distance, exponential in the color: support weights of Yoon and Kweon (2006).
            distance = (row**2 + column**2) / (2 * max(1, reach) ** 2)
            weights.append(torch.exp(-difference - distance) * _shift(usable, row, column))
            values.append(_shift(gray, row, column))
        weight, value = torch.stack(weights), torch.stack(values)
        weight /= weight.sum(0).clamp_min(1e-6)
        product = weight * value
        mean = product.sum(0)
        # E[v²] − E[v]² may round below 0 in flat patches.
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


# Semi-global aggregation


def aggregate_costs(
    costs: Float[Tensor, "h d w"],
    guide: Float[Tensor, "h w"],
    options: StereoOptions,
    base: Int[Tensor, "h w"] | None = None,
) -> Float[Tensor, "h d w"]:
    """Mean over eight directions of the cheapest path that ends in a pixel with a hypothesis.

    A path pays its matching costs, `small_penalty` for a step to a neighboring hypothesis and up to `large_penalty`
    for any other, less where the guide image has an edge: large / (1 + |difference| / edge), at least 1.5 small.

    `base` is the hypothesis that index 0 stands for, where each pixel has a band of its own; a step between adjacent
    pixels is then counted between hypotheses, not between indices.

    Rows are the outer axis and all hypotheses of a row lie together, so that one step of a path is a handful of
    operations on a block that stays in the cache.
    """
    total = torch.zeros_like(costs)
    for reverse in (False, True):
        _add_paths(total, costs, guide, base, (-1, 0, 1), reverse, options)
    # The two horizontal directions are the vertical ones of the transposed volume.
    across, sideways = costs.permute(2, 1, 0).contiguous(), guide.mT.contiguous()
    part, turned = torch.zeros_like(across), None if base is None else base.mT
    for reverse in (False, True):
        _add_paths(part, across, sideways, turned, (0,), reverse, options)
    return total.add_(part.permute(2, 1, 0)).div_(8)


def _add_paths(
    total: Tensor,
    costs: Tensor,
    guide: Tensor,
    base: Tensor | None,
    slants: tuple[int, ...],
    reverse: bool,
    options: StereoOptions,
) -> None:
    """Add the path costs of one pass over the rows, downwards or upwards, for some slants (columns per row)."""
    small, large, edge = options.small_penalty, options.large_penalty, options.edge
    rows = range(len(costs))
    order = list(reversed(rows) if reverse else rows)
    first = costs[order[0]]
    state = first.expand(len(slants), *first.shape).clone()
    total[order[0]] += first * len(slants)
    for before, row in pairwise(order):
        state = _shift_columns(state, slants)
        lowest = state.amin(1, keepdim=True)
        if base is not None:
            moved = base[row] - _shift_columns(base[before].expand(len(slants), 1, -1), slants)
            state = _align_bands(state, moved)
        steps = (guide[row] - _shift_columns(guide[before].expand(len(slants), 1, -1), slants)).abs()
        jump = (large / (1 + steps / edge)).clamp_min(1.5 * small)
        # Hirschmüller (2008): L(p, d) = C(p, d) + min(L(d), L(d ± 1) + P1, min L + P2) − min L of the pixel before p.
        best = torch.minimum(state, lowest + jump)
        stepped = state + small
        torch.minimum(best[:, 1:], stepped[:, :-1], out=best[:, 1:])
        torch.minimum(best[:, :-1], stepped[:, 1:], out=best[:, :-1])
        # Subtracting the lowest cost, the same for all hypotheses of a pixel, keeps path costs from growing.
        state = best.sub_(lowest).add_(costs[row])
        total[row] += state.sum(0)


def _align_bands(
    state: Float[Tensor, "slant d w"], moved: Int[Tensor, "slant 1 w"]
) -> Float[Tensor, "slant d w"]:
    """Path costs of the predecessor at the hypotheses of the pixel's own band; infinite outside of its band."""
    count = state.shape[1]
    index = torch.arange(count, device=state.device)[:, None] + moved
    aligned = state.gather(1, index.clamp(0, count - 1))
    return aligned.masked_fill_((index < 0) | (index >= count), torch.inf)


def _shift_columns(
    state: Shaped[Tensor, "slant d w"], slants: tuple[int, ...]
) -> Shaped[Tensor, "slant d w"]:
    """The predecessor of each pixel along each slant; at the border the pixel straight above stands in."""
    shifted = []
    for part, slant in zip(state, slants, strict=True):
        if slant == 0:
            shifted.append(part)
        elif slant > 0:
            shifted.append(torch.cat([part[:, :1], part[:, :-1]], 1))
        else:
            shifted.append(torch.cat([part[:, 1:], part[:, -1:]], 1))
    return torch.stack(shifted)
