"""Depth of one view: sweep inverse distances along its rays, score, aggregate, refine, judge."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import interpolate

from g_ray.media.view import View
from g_ray.stereo.depth_map import DepthMap
from g_ray.stereo.learned_depth import LearnedDepth
from g_ray.stereo.matching import NO_SCORE, Patches, SourceImage, aggregate_costs, average_best, average_boxes
from g_ray.stereo.stereo_options import DEFAULTS, StereoOptions
from g_ray.stereo.warp import NODES, Trajectories, measure_travel

GROUP = 32
"""Hypotheses whose source pixels are interpolated together, see `warp`."""
ELEMENTS_AT_ONCE = 1 << 18
"""Pixels times hypotheses scored in one go: a megabyte per intermediate stays in the cache."""
MIN_HYPOTHESES, MAX_HYPOTHESES = 16, 256
"""Inverse distances that are tried; between these, as many as `STEP_PX` asks for."""
STEP_PX = 0.5
"""How far neighboring hypotheses may lie apart in the source views, in pixels; twice that in a sweep at half
resolution, which finer steps follow."""
MAX_COST = 0.3
"""Costs are capped here before they are aggregated; occluded pixels then follow their neighbors."""
ANCHOR = 0.15
"""Refinement: score that it costs to leave the aggregated estimate by one step, and four times that by two."""
BAND = 6
"""Steps tried at full resolution to either side of a half-resolution estimate."""
LIKELY, POSSIBLE = 0.3, 0.05
"""Confidence of the network from which a depth needs one other view that agrees, and from which two."""
PIXEL_COST = 0.02
"""Gray value that a pixel of distance costs where estimates are enlarged."""
FINE_STEPS, FINE_PER_STEP, FINE_WINDOW = 3, 3, 5
"""Refinement tries FINE_STEPS steps to either side, FINE_PER_STEP of which make one step of the sweep, and averages
their scores over a square with sides of FINE_WINDOW pixels."""
FINE_NODES = 3
"""Exact projections in a band or a refinement, whose curves are short."""
SUPPORT_WINDOW, SUPPORT_STEPS = 5, 2
"""Side of the neighborhood, and steps that do not count as another hypothesis."""
SUPPORT_LOGIT, SCORE_LOGIT, BASE_LOGIT = 30.0, 1.0, -1.0
"""Confidence is the logistic function of SUPPORT_LOGIT × support + SCORE_LOGIT × score + BASE_LOGIT."""
TEXTURE_NOISE = 2.0
"""Smallest texture of a candidate, as a multiple of the noise."""
LUMA = (0.299, 0.587, 0.114)


def sweep_view(
    reference: View,
    sources: Sequence[View],
    near: float,
    far: float,
    options: StereoOptions = DEFAULTS,
    learned: LearnedDepth | None = None,
) -> DepthMap:
    """Estimate the ray distance of every pixel of a view, between `near` and `far` (which may be infinite).

    Views may be of any camera models and sizes. A large sweep runs at half resolution first and at full resolution
    in a band around the result; with a `learned` estimate only next to that. What cannot be judged from one view's own
    scores is left to `check_consistency`.
    """
    if not sources:
        raise ValueError(
            "sweep_view: no source views; stereo needs at least one other view of the same scene"
        )
    if not 0 < near < far:
        raise ValueError(f"sweep_view: near {near} and far {far} must satisfy 0 < near < far")
    # Equal steps of inverse distance are nearly equal steps in pixels of the sources; `far` may be infinite.
    low, high = 1 / far, 1 / near
    fine = SweepScorer.make(reference, sources, options)
    count = fine.count_hypotheses(low, high)
    if learned is not None:
        step = (high - low) / (max(MIN_HYPOTHESES, min(MAX_HYPOTHESES, count)) - 1)
        return _refine_learned(fine, learned, step, options)
    start = torch.full_like(fine.gray, low)
    if fine.gray.numel() * min(count, MAX_HYPOTHESES) * len(sources) <= options.full_volume:
        count = max(MIN_HYPOTHESES, min(MAX_HYPOTHESES, count))
        step = (high - low) / (count - 1)
        estimate = _solve(fine, start, step, count, options)
    else:
        halves = [view.limit_size((max(view.size) + 1) // 2) for view in (reference, *sources)]
        coarse = SweepScorer.make(halves[0], halves[1:], options)
        # Half as many pixels along a curve, and twice as far apart: the band makes up for it.
        count = max(MIN_HYPOTHESES, min(MAX_HYPOTHESES, count // 4))
        step = (high - low) / (count - 1)
        first = _solve(coarse, torch.full_like(coarse.gray, low), step, count, options)
        step /= 2
        estimate = _solve_band(fine, first, low, step, options)
    inverse, score = fine.refine(estimate.inverse, step)
    possible = fine.usable & (score >= options.min_score) & (inverse > 0)
    valid = possible & (estimate.support >= options.min_support)
    # A gradient without texture, as in the sky, correlates at all distances: views that agree on one do so by chance.
    candidate = possible & ~valid & (fine.patches.measure_texture() >= TEXTURE_NOISE * options.noise)
    distance = 1 / inverse.clamp_min(1e-12)
    # The odds of a correct depth, as measured on rectified pairs, an indoor scene and rendered rooms.
    odds = SUPPORT_LOGIT * estimate.support + SCORE_LOGIT * score + BASE_LOGIT
    return DepthMap(
        torch.where(valid, distance, 0.0),
        torch.where(valid | candidate, torch.sigmoid(odds), 0.0),
        valid,
        torch.where(candidate, distance, 0.0),
    )


def count_hypotheses(
    reference: View, sources: Sequence[View], near: float, far: float, options: StereoOptions
) -> int:
    """How many inverse distances a sweep of the whole range at full resolution tries."""
    count = SweepScorer.make(reference, sources, options).count_hypotheses(1 / far, 1 / near)
    return max(MIN_HYPOTHESES, min(MAX_HYPOTHESES, count))


@dataclass(frozen=True, eq=False)
class Estimate:
    """Inverse ray distances, and how much better than all others the images support them, see `_measure_support`."""

    inverse: Float[Tensor, "h w"]
    support: Float[Tensor, "h w"]


def _solve(
    scorer: "SweepScorer", start: Float[Tensor, "h w"], step: float, count: int, options: StereoOptions
) -> Estimate:
    """Sweep the same `count` steps for all pixels, aggregate, and pick the cheapest."""
    volume = scorer.fill_volume(start, step, count)
    index = _pick_best(aggregate_costs(volume, scorer.gray, options))
    return Estimate(start + index * step, _measure_support(volume, index))


def _solve_band(
    scorer: "SweepScorer", first: Estimate, low: float, step: float, options: StereoOptions
) -> Estimate:
    """As `_solve`, near an estimate of lower resolution: whole steps from `low`, so that bands of neighbors match."""
    inverse = _enlarge(first.inverse, scorer.gray)
    base = ((inverse - low) / step).round().long() - BAND
    start = low + base * step
    volume = scorer.fill_volume(start, step, 2 * BAND + 1, FINE_NODES)
    index = _pick_best(aggregate_costs(volume, scorer.gray, options, base))
    # Uniqueness is a matter of the whole range, so that the first estimate's support counts.
    support = interpolate(first.support[None, None], size=tuple(scorer.gray.shape), mode="bilinear")[0, 0]
    return Estimate(start + index * step, support)


def _enlarge(values: Float[Tensor, "h2 w2"], guide: Float[Tensor, "h w"]) -> Float[Tensor, "h w"]:
    """Give each pixel the value of one of the four coarse pixels around it, the one that looks most like it.

    Interpolating between them would invent depths between two surfaces.
    """
    size, shape = values.shape, guide.shape
    gray = interpolate(guide[None, None], size=tuple(size), mode="area")[0, 0]
    place = [
        (torch.arange(n, device=guide.device) + 0.5) * m / n - 0.5 for m, n in zip(size, shape, strict=True)
    ]
    best, enlarged = torch.full_like(guide, torch.inf), torch.zeros_like(guide)
    for down in (0, 1):
        for right in (0, 1):
            row, column = place[0].floor() + down, place[1].floor() + right
            apart = (place[0] - row).abs()[:, None] + (place[1] - column).abs()
            at = row.clamp(0, size[0] - 1).long()[:, None], column.clamp(0, size[1] - 1).long()
            cost = (guide - gray[at]).abs() + PIXEL_COST * apart
            enlarged = torch.where(cost < best, values[at], enlarged)
            best = torch.minimum(cost, best)
    return enlarged


def _refine_learned(
    scorer: "SweepScorer", learned: LearnedDepth, step: float, options: StereoOptions
) -> DepthMap:
    """Refine a network's estimate where patches correlate there, and keep it as a candidate where they do not.

    A wider search, or aggregation around the estimate, makes it worse: the network has seen more than patches.
    """
    inverse, score = scorer.refine(learned.inverse, step)
    matches = scorer.usable & (score >= options.min_score) & (inverse > 0)
    valid = matches & (learned.confidence >= LIKELY)
    candidate = scorer.usable & ~valid & (learned.confidence >= POSSIBLE)
    distance = 1 / torch.where(matches, inverse, learned.inverse).clamp_min(1e-12)
    return DepthMap(
        torch.where(valid, distance, 0.0),
        torch.where(valid | candidate, learned.confidence, 0.0),
        valid,
        torch.where(candidate, distance, 0.0),
    )


@dataclass(frozen=True, eq=False)
class SweepScorer:
    """Scores inverse distances of the pixels of a reference view by its sources."""

    gray: Float[Tensor, "h w"]
    usable: Bool[Tensor, "h w"]
    patches: Patches
    trajectories: Sequence[Trajectories]
    images: Sequence[SourceImage]
    best: int

    @staticmethod
    def make(reference: View, sources: Sequence[View], options: StereoOptions) -> "SweepScorer":
        rays, valid = reference.camera.to(torch.float32).unproject_grid()
        mask = reference.load_mask()
        usable = valid if mask is None else valid & mask
        gray = _measure_gray(reference)
        return SweepScorer(
            gray,
            usable,
            Patches.make(reference.load_image().float(), gray, usable, options),
            [Trajectories.between(reference, source, rays) for source in sources],
            [SourceImage.make(_measure_gray(source), source.load_mask()) for source in sources],
            min(options.best, len(sources)),
        )

    def count_hypotheses(self, low: float, high: float) -> int:
        """Count the steps that keep neighboring hypotheses `STEP_PX` apart in nearly all of the source pixels."""
        return math.ceil(measure_travel(self.trajectories, low, high) / STEP_PX) + 1

    def fill_volume(
        self, start: Float[Tensor, "h w"], step: float, count: int, nodes: int = NODES
    ) -> Float[Tensor, "h d w"]:
        """Costs 1 − score of the inverse distances start, start + step, …

        They are capped: where a surface is occluded all hypotheses are wrong, even the best, and their order must
        not outweigh the neighbors.
        """
        height, width = self.gray.shape
        volume = self.gray.new_empty(height, count, width)
        offsets = torch.arange(count, device=start.device).to(start) * step
        for first in range(0, count, GROUP):
            for place, scores in self.score(start, offsets[first : first + GROUP], nodes):
                at = first + place
                volume[:, at : at + len(scores)] = (1 - scores).clamp_max_(MAX_COST).transpose(0, 1)
        return volume

    def score(
        self, center: Float[Tensor, "h w"], offsets: Float[Tensor, "k"], nodes: int = NODES
    ) -> Iterator[tuple[int, Float[Tensor, "n h w"]]]:
        """Scores of the inverse distances center + offsets, a few hypotheses at a time, with their first index."""
        groups = [ways.prepare(center, offsets, nodes) for ways in self.trajectories]
        size = max(1, ELEMENTS_AT_ONCE // self.gray.numel())
        for start in range(0, len(offsets), size):
            stop = min(start + size, len(offsets))
            scores = []
            for group, image in zip(groups, self.images, strict=True):
                warped, seen = image.sample(*group.evaluate(start, stop))
                scores.append(self.patches.correlate(warped).masked_fill_(~seen, NO_SCORE))
            yield start, average_best(scores, self.best)

    def refine(
        self, inverse: Float[Tensor, "h w"], step: float
    ) -> tuple[Float[Tensor, "h w"], Float[Tensor, "h w"]]:
        """Search around an estimate, each pixel around its own: patches then follow the slope of the surface.

        Leaving the estimate costs `ANCHOR` per squared step, so that noise does not decide where texture is weak.
        Returns the inverse distances and their scores.
        """
        offsets = torch.arange(-FINE_STEPS, FINE_STEPS + 1, device=inverse.device) / FINE_PER_STEP
        scored = self.score(inverse, (offsets * step).to(inverse), FINE_NODES)
        scores = torch.cat([part for _, part in scored])
        # Neighbors are displaced from their own estimates alike, so that their scores may be averaged.
        shared = average_boxes(scores.transpose(0, 1), FINE_WINDOW).transpose(0, 1)
        held = shared - ANCHOR * offsets[:, None, None] ** 2
        index = held.argmax(0)
        moved = inverse + (index - FINE_STEPS + _fit_parabola(held, index)) * (step / FINE_PER_STEP)
        return moved, scores.gather(0, index[None])[0]


def _measure_gray(view: View) -> Float[Tensor, "h w"]:
    """Luma around zero, where sums of squares lose fewer digits."""
    image = view.load_image().float()
    return torch.einsum("chw,c->hw", image, image.new_tensor(LUMA)) - 0.5


def _pick_best(total: Float[Tensor, "h d w"]) -> Float[Tensor, "h w"]:
    """Index of the cheapest hypothesis, with the fraction that a parabola adds."""
    volume = total.transpose(0, 1)
    index = volume.argmin(0)
    return index + _fit_parabola(-volume, index)


def _measure_support(costs: Float[Tensor, "h d w"], index: Float[Tensor, "h w"]) -> Float[Tensor, "h w"]:
    """Cost of the best other hypothesis minus that of the chosen one, averaged over a neighborhood.

    Taken before aggregation: blank walls get a depth from their surroundings, but no support of their own; where
    texture repeats, two hypotheses are supported alike.
    """
    # By groups of hypotheses: the smoothed volume as a whole would double the memory.
    chosen, other = torch.full_like(index, torch.inf), torch.full_like(index, torch.inf)
    for first in range(0, costs.shape[1], GROUP):
        volume = average_boxes(costs[:, first : first + GROUP], SUPPORT_WINDOW).transpose(0, 1)
        steps = first + torch.arange(len(volume), device=index.device)[:, None, None]
        near = (steps - index).abs() <= SUPPORT_STEPS
        chosen = torch.minimum(chosen, volume.masked_fill(~near, torch.inf).amin(0))
        other = torch.minimum(other, volume.masked_fill(near, torch.inf).amin(0))
    return other - chosen


def _fit_parabola(scores: Float[Tensor, "d h w"], index: Int[Tensor, "h w"]) -> Float[Tensor, "h w"]:
    """Offset of the maximum of the parabola through the best score and its neighbors, within ±½."""
    inner = index.clamp(1, len(scores) - 2)
    before, here, after = (scores.gather(0, (inner + i)[None])[0] for i in (-1, 0, 1))
    curvature = 2 * here - before - after
    # Vertex of the parabola through (−1, before), (0, here), (1, after).
    offset = (after - before) / (2 * curvature.clamp_min(1e-6))
    return torch.where(inner == index, offset.clamp(-0.5, 0.5), 0.0)
