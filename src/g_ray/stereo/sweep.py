"""Depth of one view: sweep inverse distances along its rays, score, aggregate, refine, judge."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from g_ray.stereo.aggregation import aggregate_costs
from g_ray.stereo.matching import NO_SCORE, Patches, SourceImage, average_best
from g_ray.stereo.options import StereoOptions
from g_ray.stereo.view import DepthMap, StereoView
from g_ray.stereo.warp import Trajectories

GROUP = 32
"""Hypotheses whose source pixels are interpolated together, see `warp`."""
ELEMENTS_AT_ONCE = 1 << 18
"""Pixels times hypotheses scored in one go: a megabyte per intermediate stays in the cache."""
LUMA = (0.299, 0.587, 0.114)


def sweep_view(
    reference: StereoView,
    sources: Sequence[StereoView],
    near: float,
    far: float,
    options: StereoOptions = StereoOptions(),
) -> DepthMap:
    """Estimate the ray distance of every pixel of a view, between `near` and `far` (which may be infinite).

    Views may be of any camera models and sizes. What cannot be judged from one view's own scores is left to
    `check_consistency`.
    """
    if not sources:
        raise ValueError(
            "sweep_view: no source views; stereo needs at least one other view of the same scene"
        )
    if not 0 < near < far:
        raise ValueError(f"sweep_view: near {near} and far {far} must satisfy 0 < near < far")
    scorer = Scorer.make(reference, sources, options)
    low, high = 1 / far, 1 / near
    count = scorer.count_hypotheses(low, high, options)
    inverse = torch.linspace(low, high, count, device=reference.device)
    volume = scorer.fill_volume(inverse)
    total = aggregate_costs(volume, scorer.gray, options.small_penalty, options.large_penalty, options.edge)
    index, offset, confidence = _pick_best(total, volume)
    center = low + (index + offset) * ((high - low) / (count - 1))
    refined, score = scorer.refine(center, (high - low) / (count - 1))
    refined = refined.clamp(low * 0.5, high * 1.5).clamp_min(1e-12)
    ray_depth = 1 / refined
    valid = scorer.usable & (score > options.min_confidence) & (refined > 0)
    confidence = confidence * score.clamp(0, 1)
    return DepthMap(torch.where(valid, ray_depth, 0.0), torch.where(valid, confidence, 0.0), valid)


@dataclass(frozen=True, eq=False)
class Scorer:
    """Scores inverse distances of the pixels of a reference view by its sources."""

    gray: Float[Tensor, "h w"]
    usable: Bool[Tensor, "h w"]
    patches: Patches
    trajectories: Sequence[Trajectories]
    images: Sequence[SourceImage]
    best: int

    @staticmethod
    def make(reference: StereoView, sources: Sequence[StereoView], options: StereoOptions) -> "Scorer":
        gray, usable, rays = prepare_view(reference)
        images = [SourceImage.make(*prepare_view(source)[:2]) for source in sources]
        return Scorer(
            gray,
            usable,
            Patches.make(gray, usable, options.window, options.noise),
            [Trajectories.between(reference, source, rays) for source in sources],
            images,
            min(options.best, len(images)),
        )

    def count_hypotheses(self, low: float, high: float, options: StereoOptions) -> int:
        """How many steps keep neighboring hypotheses `step_px` apart in nearly all of the source pixels."""
        stride = max(1, min(self.gray.shape) // 24)
        inverse = torch.linspace(low, high, 65, device=self.gray.device)
        longest = 0.0
        for ways in self.trajectories:
            coarse = Trajectories(ways.bearings[::stride, ::stride], ways.shift, ways.camera)
            pixels, valid = coarse.project(inverse[:, None, None].expand(-1, *coarse.bearings.shape[:2]))
            seen = valid & ways.camera.contains(pixels)
            step = (pixels[1:] - pixels[:-1]).norm(dim=-1)[seen[1:] & seen[:-1]]
            if len(step):
                longest = max(longest, 64 * float(step.quantile(0.9)))
        return max(16, min(options.hypotheses, math.ceil(longest / options.step_px) + 1))

    def fill_volume(self, inverse: Float[Tensor, "d"]) -> Float[Tensor, "h d w"]:
        """Costs 1 − score of hypotheses that hold for the whole view."""
        height, width = self.gray.shape
        volume = self.gray.new_empty(height, len(inverse), width)
        for first in range(0, len(inverse), GROUP):
            group = inverse[first : first + GROUP]
            middle = group.mean().expand(height, width)
            for start, scores in self.score(middle, group - group.mean()):
                volume[:, first + start : first + start + len(scores)] = (1 - scores).transpose(0, 1)
        return volume

    def score(
        self, center: Float[Tensor, "h w"], offsets: Float[Tensor, "k"]
    ) -> Iterator[tuple[int, Float[Tensor, "n h w"]]]:
        """Scores of the inverse distances center + offsets, a few hypotheses at a time, with their first index."""
        groups = [ways.prepare(center, offsets) for ways in self.trajectories]
        size = max(1, ELEMENTS_AT_ONCE // self.gray.numel())
        for start in range(0, len(offsets), size):
            stop = min(start + size, len(offsets))
            scores = []
            for group, image in zip(groups, self.images, strict=True):
                warped, seen = image.sample(*group.evaluate(start, stop))
                scores.append(self.patches.correlate(warped).masked_fill_(~seen, NO_SCORE))
            yield start, average_best(scores, self.best)

    def refine(
        self, center: Float[Tensor, "h w"], step: float, radius: int = 4
    ) -> tuple[Float[Tensor, "h w"], Float[Tensor, "h w"]]:
        """Search around an estimate, each pixel around its own: patches then follow the slope of the surface."""
        offsets = torch.arange(-radius, radius + 1, device=center.device) * (step / 3)
        scores = torch.cat([part for _, part in self.score(center, offsets.to(center))])
        index = scores.argmax(0)
        shift = _fit_parabola(scores, index)
        peak = scores.gather(0, index[None])[0]
        return center + (index - radius + shift) * (step / 3), peak


def prepare_view(
    view: StereoView,
) -> tuple[Float[Tensor, "h w"], Bool[Tensor, "h w"], Float[Tensor, "h w 3"]]:
    """Gray values around zero, usable pixels and bearings, in float32."""
    rays, valid = view.camera.to(torch.float32).unproject_grid()
    usable = valid if view.mask is None else valid & view.mask
    gray = torch.einsum("chw,c->hw", view.image.float(), view.image.new_tensor(LUMA, dtype=torch.float32))
    # Sums of squares lose fewer digits around zero.
    return gray - 0.5, usable, rays


def _pick_best(
    total: Float[Tensor, "h d w"], costs: Float[Tensor, "h d w"]
) -> tuple[Int[Tensor, "h w"], Float[Tensor, "h w"], Float[Tensor, "h w"]]:
    """Index of the cheapest hypothesis, the parabola's offset from it, and how unique it is, in [0, 1]."""
    volume = total.transpose(0, 1)
    lowest, index = volume.min(0)
    steps = torch.arange(len(volume), device=index.device)[:, None, None]
    others = volume.masked_fill((steps - index).abs() <= 2, torch.inf).amin(0)
    margin = ((others - lowest) / others.clamp_min(1e-3)).clamp(0, 1)
    return index, _fit_parabola(-volume, index), margin


def _fit_parabola(scores: Float[Tensor, "d h w"], index: Int[Tensor, "h w"]) -> Float[Tensor, "h w"]:
    """Offset of the maximum of the parabola through the best score and its neighbors, within ±½."""
    inner = index.clamp(1, len(scores) - 2)
    before, here, after = (scores.gather(0, (inner + i)[None])[0] for i in (-1, 0, 1))
    curvature = 2 * here - before - after
    offset = (after - before) / (2 * curvature.clamp_min(1e-6))
    return torch.where(inner == index, offset.clamp(-0.5, 0.5), 0.0)
